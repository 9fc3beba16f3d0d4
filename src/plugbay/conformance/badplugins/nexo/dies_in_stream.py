"""Dies in the middle of a stream.

What came has come, and the call ends: crashed.
"""

from __future__ import annotations

import sys

import child


def delta(id: object, chunk: object) -> None:
    child.say(method="llm.chat.delta", params={"request_id": id, "chunk": chunk})


child.greet()
request = child.asked("llm.chat")
text = {"type": "text_delta", "delta": "h"}
delta(request["id"], text)
sys.exit(3)
