"""Sends a piece of an answer that nobody asked for.

Counted as noise: accepted.
"""

from __future__ import annotations

import child

WHOLE = {
    "content": {"type": "text", "text": "hi"},
    "usage": {"prompt_tokens": 1, "completion_tokens": 1},
    "finish_reason": {"kind": "stop"},
}


def delta(id: object, chunk: object) -> None:
    child.say(method="llm.chat.delta", params={"request_id": id, "chunk": chunk})


child.greet()
request = child.asked("llm.chat")
text = {"type": "text_delta", "delta": "h"}
delta(4711, text)
delta("x", text)
delta(None, text)
child.say(id=request["id"], result=WHOLE)
child.serve()
