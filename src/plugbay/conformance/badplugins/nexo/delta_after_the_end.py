"""Sends pieces after the end.

There is one end: accepted.
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
child.say(id=request["id"], result=WHOLE)
for _ in range(3):
    delta(request["id"], text)
child.serve()
