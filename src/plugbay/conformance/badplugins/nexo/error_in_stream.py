"""Ends a stream with an error.

Its own error, in its class: unavailable.
"""

from __future__ import annotations

import child


def delta(id: object, chunk: object) -> None:
    child.say(method="llm.chat.delta", params={"request_id": id, "chunk": chunk})


child.greet()
request = child.asked("llm.chat")
text = {"type": "text_delta", "delta": "h"}
delta(request["id"], text)
child.say(id=request["id"], error={"code": -33101, "message": "gone"})
child.serve()
