"""Answers without an id.

An answer to no call: timeout.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.say(result=child.SAID)
child.serve()
