"""Answers a call that nobody made before its answer.

A line that is no message is counted and read past: accepted.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.say(id=4711, result={})
child.say(id=-1, result={})
child.say(id="x", result={})
child.say(id=request["id"], result=child.SAID)
child.serve()
