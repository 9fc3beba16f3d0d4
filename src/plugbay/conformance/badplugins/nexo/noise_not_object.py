"""Writes JSON that is no object before its answer.

A line that is no message is counted and read past: accepted.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.write(b'[1]\n42\nnull\n"text"\ntrue\n')
child.say(id=request["id"], result=child.SAID)
child.serve()
