"""Writes 200,000 lines that are no JSON before its answer.

A line that is no message is counted and read past: accepted.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.write(b"spam and more spam\n" * 200_000)
child.say(id=request["id"], result=child.SAID)
child.serve()
