"""Answers with true as id.

An answer to no call: timeout.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.say(id=True, result=child.SAID)
child.serve()
