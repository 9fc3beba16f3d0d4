"""Asks for memory where the operator has none.

Refused with -32603: accepted.
"""

from __future__ import annotations

import child

child.greet()
request = child.asked()
child.say(id=1, method="memory.recall", params={"agent_id": "a", "query": "q"})
child.say(id=request["id"], result=child.answers()["error"]["code"])
child.serve()
