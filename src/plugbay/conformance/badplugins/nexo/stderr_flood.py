"""Writes 5 MB to stderr before its answer.

Stderr is drained all the while: accepted.
"""

from __future__ import annotations

import sys

import child

child.greet()
request = child.asked()
for number in range(50_000):
    sys.stderr.write(f"{number} " + "x" * 90 + "\n")
child.say(id=request["id"], result=child.SAID)
child.serve()
