"""Asks 10,000 times at once.

Each is answered, refused or not: accepted.
"""

from __future__ import annotations

import threading

import child

child.greet()
request = child.asked()


def ask() -> None:
    for number in range(10_000):
        child.say(id=number, method="memory.recall", params={"agent_id": "a", "query": "q"})


threading.Thread(target=ask).start()
seen = {child.answers()["id"] for _ in range(10_000)}
child.say(id=request["id"], result=len(seen))
child.serve()
