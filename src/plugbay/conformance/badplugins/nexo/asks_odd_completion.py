"""Asks for completions with wrong params.

Refused with -32602: accepted.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
codes = []
hi = [{"role": "user", "content": "hi"}]
for params in ({}, {"provider": "p", "model": "m", "messages": []}, {"model": "m", "messages": hi}):
    child.say(id=1, method="llm.complete", params=params)
    codes.append(child.answers()["error"]["code"])
child.say(id=request["id"], result=codes)
child.serve()
