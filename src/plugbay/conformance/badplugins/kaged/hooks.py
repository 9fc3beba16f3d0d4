"""Answers hooks as KIND says, and post_compact with nothing: what cannot be used is recorded as skipped."""

from __future__ import annotations

import time

from child import KIND, Message, answer, greet, refuse, serve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

RESULTS: dict[str, Any] = {
    "injects": {"inject": "remember this"},
    "null": None,
    "empty": {},
    "list": ["remember this"],
    "text": "remember this",
    "inject_number": {"inject": 7},
    "messages": {"messages": [{"role": "system", "content": "it was long"}]},
    "messages_text": {"messages": "all"},
    "messages_numbers": {"messages": [1, 2]},
    "messages_missing": {"kept": []},
}

WAYS: dict[str, Callable[[Message], Any]] = {
    "hangs": lambda request: time.sleep(3),
    "fails": lambda request: refuse(request, -32000),
    "unknown": lambda request: refuse(request, -32601),
}


def handle(request: Message) -> None:
    if request["method"] == "kaged.hook.post_compact":
        answer(request, None)
    elif KIND in WAYS:
        WAYS[KIND](request)
    else:
        answer(request, RESULTS[KIND])


greet()
serve(handle)
