"""Asks for memory with wrong params.

Refused with -32602: accepted.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
codes = []
odd: list[object] = [{}, {"agent_id": 7, "query": "q"}, {"agent_id": "a"}, [], None, {"agent_id": "a", "query": None}]
for params in odd:
    child.say(id=1, method="memory.recall", params=params)
    codes.append(child.answers()["error"]["code"])
child.say(id=request["id"], result=codes)
child.serve()
