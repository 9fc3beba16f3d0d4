"""Writes an array of 3,000,000 empty arrays before its answer.

A line that is no message is counted and read past: accepted.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.write(b"[" + b"[]," * 3_000_000 + b"[]]\n")
child.say(id=request["id"], result=child.SAID)
child.serve()
