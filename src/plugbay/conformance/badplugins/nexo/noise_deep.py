"""Writes arrays nested 100,000 deep before its answer.

A line that is no message is counted and read past: accepted.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.write(b"[" * 100_000 + b"]" * 100_000 + b"\n")
child.say(id=request["id"], result=child.SAID)
child.serve()
