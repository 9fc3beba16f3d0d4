"""The correct half of the bad plugins of kaged: reading, writing, and a greeting as the contract wants it.

Nothing here is wrong. `plugin` imports it and does one thing wrong; the first argument, KIND, says which.
"""

from __future__ import annotations

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
SAID = {"said": "hello"}
WELL = {"status": "ok"}
IDENTITY = {
    "name": "bad",
    "version": "1.0.0",
    "api_version": 1,
    "methods": ["bad.bad_tool", "bad.look.around"],
    "notifications": ["changed"],
    "capabilities_used": ["kaged:storage:read"],
}


def read() -> Message:
    """The next message; leaves when there is none."""
    line = sys.stdin.buffer.readline()
    if not line:
        sys.exit(0)
    message: Message = json.loads(line)
    return message


def write(data: bytes) -> None:
    """These very bytes, all of them."""
    while data:
        data = data[os.write(1, data) :]


def say(**message: Any) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def answer(request: Message, result: Any = SAID) -> None:
    say(id=request["id"], result=result)


def refuse(request: Message, code: int) -> None:
    say(id=request["id"], error={"code": code, "message": "no"})


def greet(**over: Any) -> None:
    """Answer initialize."""
    answer(read(), {**IDENTITY, **over})


def await_request() -> Message:
    """The next request for what the plugin offers; its life goes on in between."""
    while True:
        message = read()
        if message.get("method") in ("health.check", "shutdown"):
            answer(message, WELL)
        elif "method" in message and "id" in message:
            return message


def await_answer() -> Message:
    """The next answer of the host."""
    while True:
        message = read()
        if "method" not in message:
            return message


def ask(id: Any, method: str, params: Any) -> Message:
    """Ask the host, and wait for its answer."""
    say(id=id, method=method, params=params)
    return await_answer()


def serve(handle: Callable[[Message], object] = answer) -> None:
    """Answer every request with `handle` until the input ends."""
    while True:
        handle(await_request())
