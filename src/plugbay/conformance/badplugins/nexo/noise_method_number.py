"""Writes a method that is no text before its answer.

A line that is no message is counted and read past: accepted.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.say(method=7, params={})
child.say(id=request["id"], result=child.SAID)
child.serve()
