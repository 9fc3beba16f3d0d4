"""Answers with a fraction as id.

An answer to no call: timeout.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.say(id=request["id"] + 0.5, result=child.SAID)
child.serve()
