"""Streams and answers as the contract says.

Nothing is wrong with it: the positive control.
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
delta(request["id"], text)
child.say(id=request["id"], result=WHOLE)
child.serve()
