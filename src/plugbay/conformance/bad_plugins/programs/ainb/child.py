"""The correct half of the bad plugins of ainb: frames, requests both ways, and a life as the contract wants it.

Nothing here is wrong. A program imports it and replaces something: a handler in SERVES or HEARS, or a function of this
module. The first argument, KIND, says which of its cases it does.
"""

from __future__ import annotations

import binascii
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import json
    from collections.abc import Callable
    from typing import Any
else:
    # In the kit, what all contracts share lies one folder up; beside a copy of this file lies a copy of that.
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    import light_json as json

Message = dict[str, "Any"]

KIND = sys.argv[1] if len(sys.argv) > 1 else ""
NAME = os.environ.get("PLUGIN_NAME") or os.path.basename(os.path.dirname(os.path.abspath(__file__)))
MAX_BODY = 16 << 20
SAID = b"hello\n"

waiting: list[Message] = []
"""What came while an answer of the host was waited for."""
asked = 0
"""Requests of ours so far."""


class Refusal(Exception):
    """An answer that is an error: code and message."""


# Frames.


def line() -> bytes:
    """The next line of a header, with its end; leaves where there is none, or none that can be trusted."""
    found = sys.stdin.buffer.readline(8193)
    if not found:
        sys.exit(0)
    if not found.endswith(b"\r\n"):
        sys.exit("broken header")
    return found


def length() -> int:
    """How long the next body is."""
    size = -1
    while (found := line()) != b"\r\n":
        name, _, value = found.partition(b":")
        digits = value.strip().removeprefix(b"+")
        if name.strip().lower() != b"content-length" or not digits.isdigit():
            sys.exit("broken header")
        size = int(digits)
    if not 0 <= size <= MAX_BODY:
        sys.exit("broken length")
    return size


def body() -> bytes:
    size = length()
    data = sys.stdin.buffer.read(size)
    return data if len(data) == size else sys.exit(0)


def parsed(data: bytes) -> Any:
    """The JSON value of a body; None when there is none."""
    try:
        return json.loads(data)
    except ValueError:
        return None


def read() -> Message:
    """The next message; bodies that are none are passed over."""
    while True:
        message = parsed(body())
        if isinstance(message, dict):
            return message


def more_to_read() -> bool:
    """Whether another message is there already."""
    stdin: Any = sys.stdin.buffer
    os.set_blocking(0, False)
    try:
        return bool(stdin.peek(1))
    finally:
        os.set_blocking(0, True)


def write(data: bytes) -> None:
    """These very bytes, all of them."""
    while data:
        data = data[os.write(1, data) :]


def framed(data: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n%b" % (len(data), data)


def say(**message: Any) -> None:
    write(framed(json.dumps({"jsonrpc": "2.0", **message}).encode()))


def answer(request: Message, result: Any) -> None:
    say(id=request["id"], result=result)


def refuse(request: Message, code: int, message: str = "no") -> None:
    say(id=request["id"], error={"code": code, "message": message})


def tell(method: str, /, **params: Any) -> None:
    say(method=method, params=params)


def ask(method: str, /, **params: Any) -> Message:
    """Ask the host and wait for its answer; what comes in between waits."""
    global asked
    asked += 1
    say(id=asked, method=method, params=params)
    while True:
        message = read()
        if "method" not in message and message.get("id") == asked:
            return message
        waiting.append(message)


def b64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def unb64(payload: Any) -> bytes:
    return bytes(payload) if isinstance(payload, list) else binascii.a2b_base64(payload, strict_mode=True)


def publish(topic: str, data: bytes) -> None:
    tell("host/snapshot/publish", topic=topic, payload=b64(data))


# What a plugin is asked and told.


def init(params: Message) -> Any:
    return {"name": NAME, "version": "1.0.0", "abi_version": 2}


def shutdown(params: Message) -> Any:
    return {}


def size_of(params: Message) -> tuple[int, int]:
    viewport = params.get("viewport")
    sides: list[Any] = [viewport.get("width"), viewport.get("height")] if isinstance(viewport, dict) else []
    if not sides or not all(type(side) is int and 0 <= side <= 65535 for side in sides):
        raise Refusal(-32602, "a viewport has a width and a height")
    return sides[0], sides[1]


def picture(width: int, height: int, text: str = "hello") -> Message:
    """A text in the first row, as far as it fits."""
    fits = text[:width] if height else ""
    cells = [[{"x": x, "y": 0}, {"symbol": symbol, "modifier": 0}] for x, symbol in enumerate(fits)]
    return {"buffer": {"width": width, "height": height, "cells": cells}, "redraw": False, "captures_text": False}


def render(params: Message) -> Any:
    return picture(*size_of(params))


def dispatch(params: Message) -> Any:
    if params["namespace"] != NAME:
        return {"stdout": "", "stderr": b64(b"no such namespace\n"), "exit_code": 2}
    return {"stdout": b64(SAID), "stderr": "", "exit_code": 0}


def ignore(params: Message) -> None:
    """A notification that means nothing to us."""


SERVES: dict[str, Callable[[Message], Any]] = {"plugin/init": init, "plugin/shutdown": shutdown}
HEARS: dict[str, Callable[[Message], Any]] = {"plugin/shutdown": ignore}


def serve() -> None:
    """Answer and hear until the input ends."""
    while True:
        handle(waiting.pop(0) if waiting else read())


def handle(message: Message) -> None:
    method, params = message.get("method"), message.get("params")
    if "method" not in message:
        return
    if "id" not in message:
        HEARS.get(str(method), ignore)(params if isinstance(params, dict) else {})
    elif method not in SERVES:
        refuse(message, -32601, f"method not found: {method}")
    elif not isinstance(params, dict):
        refuse(message, -32602, "params must be an object")
    else:
        attempt(message, params)


def attempt(message: Message, params: Message) -> None:
    try:
        result = SERVES[message["method"]](params)
    except Refusal as refusal:
        refuse(message, *refusal.args)
    else:
        answer(message, result)
