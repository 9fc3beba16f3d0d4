"""Answers a call as KIND says: what merely looks odd is accepted, what answers no call is a timeout.

What answers the call and says nothing, or both yes and no, is a malformed_response.
"""

from __future__ import annotations

import sys
import time

from child import KIND, SAID, Message, answer, greet, json, say, serve, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def _raw(text: str) -> Callable[[Message], None]:
    return lambda request: write(text.replace("ID", str(request["id"])).encode() + b"\n")


def _line(request: Message) -> bytes:
    text: str = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": SAID})
    return text.encode()


def _twice(request: Message) -> None:
    answer(request)
    answer(request)


def _late(request: Message) -> None:
    time.sleep(0.7)
    answer(request)


def _unknown_first(request: Message) -> None:
    say(id=9999, result="for nobody")
    answer(request)


def _slowly(request: Message) -> None:
    for byte in _line(request) + b"\n":
        write(bytes((byte,)))


def _without_newline(request: Message) -> None:
    write(_line(request))
    sys.exit(0)


def _of(size: int) -> Callable[[Message], None]:
    return lambda request: answer(request, "x" * size)


WAYS: dict[str, Callable[[Message], Any]] = {
    "text_id": lambda request: say(id=str(request["id"]), result=SAID),
    "null_id": lambda request: say(id=None, result=SAID),
    "zero_id": lambda request: say(id=0, result=SAID),
    "float_id": lambda request: say(id=request["id"] + 0.5, result=SAID),
    "boolean_id": lambda request: say(id=True, result=SAID),
    "list_id": lambda request: say(id=[request["id"]], result=SAID),
    "no_id": lambda request: say(result=SAID),
    "both": lambda request: say(id=request["id"], result=SAID, error={"code": -32603, "message": "no"}),
    "neither": lambda request: say(id=request["id"]),
    "null": lambda request: answer(request, None),
    "error_null": lambda request: say(id=request["id"], error=None),
    "error_text": lambda request: say(id=request["id"], error="no"),
    "error_empty": lambda request: say(id=request["id"], error={}),
    "twice": _twice,
    "late": _late,
    "unknown_first": _unknown_first,
    "no_jsonrpc": _raw('{"id":ID,"result":{"said":"hello"}}'),
    "crlf": _raw('{"jsonrpc":"2.0","id":ID,"result":{"said":"hello"}}\r'),
    "slowly": _slowly,
    "without_newline": _without_newline,
    "nan": _raw('{"jsonrpc":"2.0","id":ID,"result":NaN}'),
    "deep": _raw('{"jsonrpc":"2.0","id":ID,"result":' + "[" * 100_000 + "]" * 100_000 + "}"),
    "bad_bytes": lambda request: write(_line(request).replace(b"hello", b"\xff\xfe") + b"\n"),
    "of_3_9_mb": _of(3_900_000),
    "of_5_mb": _of(5_000_000),
}

greet()
serve(WAYS[KIND])
