"""Asks with ids that are none before its answer.

A line that is no message is counted and read past: accepted.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.say(id=[1], method="memory.recall")
child.say(id={}, method="memory.recall")
child.say(id=True, method="memory.recall")
child.say(id=request["id"], result=child.SAID)
child.serve()
