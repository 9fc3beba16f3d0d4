"""Asks for memory before it answers initialize.

Refused with -32603, because nobody knows yet who it is: accepted.
"""

from __future__ import annotations

import child

greeting = child.read()
child.say(id=1, method="memory.recall", params={"agent_id": "a", "query": "q"})
refusal = child.answers()
child.say(id=greeting["id"], result=child.hello())
child.say(id=child.asked()["id"], result=refusal["error"]["code"])
child.serve()
