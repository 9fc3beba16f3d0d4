"""Asks the host for storage as KIND says and answers its call with what came of it.

What is refused is answered with an error, and the plugin is accepted as before.
"""

from __future__ import annotations

from child import IDENTITY, KIND, Message, answer, answers, ask, read, say, serve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

GET, SET, DELETE, LIST = (f"kaged.storage.{name}" for name in ("get", "set", "delete", "list"))
K: dict[str, Any] = {"key": "k"}
V = {"key": "k", "value": [1, {"n": None}]}

MANY = 2000
"""Requests at once; more than any buffer between the two ends holds."""


def _code(method: str, params: Any, id: Any = 7) -> int:
    message = ask(id, method, params)
    return int(message["error"]["code"]) if "error" in message else 0


def _result(method: str, params: Any) -> Any:
    return ask(7, method, params).get("result")


def _flood() -> int:
    for number in range(MANY):
        say(id=number, method=GET, params=K)
    return len({answers()["id"] for _ in range(MANY)})


ODD: tuple[tuple[str, Any], ...] = (
    *((GET, params) for params in (None, "k", {"k": 1}, {"key": ""}, {"key": 7}, {"key": "ä" * 257})),
    *((DELETE, params) for params in (["k"], {"k": 1}, {"key": None})),
    *((SET, params) for params in (K, {"value": 1}, {"key": None, "value": 1}, {"key": "k", "value": "x" * 2_000_000})),
    *((LIST, params) for params in (None, {"prefix": 7}, {"limit": 0}, {"limit": True}, {"prefix": "x" * 513})),
)

WAYS: dict[str, Callable[[], Any]] = {
    "properly": lambda: [_result(SET, V), _result(GET, K), _result(LIST, {"prefix": ""}), _result(DELETE, K)],
    "all": lambda: [_code(GET, K), _code(LIST, {}), _code(SET, V), _code(DELETE, K)],
    "odd": lambda: sorted({_code(method, params) for method, params in ODD}),
    "unknown": lambda: [_code("kaged.storage.drop", K), _code("kaged.hook.pre_compact", {}), _code("system.exit", {})],
    "text_id": lambda: ask("a-1", GET, K)["id"],
    "null_id": lambda: ask(None, GET, K)["id"],
    "our_id": lambda: ask(2, GET, K)["id"],
    "flood": _flood,
}

hello = read()
early = _code(GET, K) if KIND == "before_greeting" else 0
answer(hello, {**IDENTITY, "capabilities_used": []})


def handle(request: Message) -> None:
    answer(request, early or WAYS[KIND]())


serve(handle)
