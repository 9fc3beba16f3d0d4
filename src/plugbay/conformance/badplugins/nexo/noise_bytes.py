"""Writes bytes that are not UTF-8 before its answer.

A line that is no message is counted and read past: accepted.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.write(b"\xff\xfe\x00\n")
child.say(id=request["id"], result=child.SAID)
child.serve()
