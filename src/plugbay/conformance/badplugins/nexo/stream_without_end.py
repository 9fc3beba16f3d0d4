"""Streams and never ends.

The deadline runs from the beginning: timeout.
"""

from __future__ import annotations

import time

import child


def delta(id: object, chunk: object) -> None:
    child.say(method="llm.chat.delta", params={"request_id": id, "chunk": chunk})


child.greet()
request = child.asked("llm.chat")
text = {"type": "text_delta", "delta": "h"}
for _ in range(50):
    delta(request["id"], text)
    time.sleep(0.05)
child.serve()
