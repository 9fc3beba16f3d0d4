"""The correct half of the bad plugins of nexo: reading, writing, and a greeting as the contract wants it.

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

PLUGIN = {"id": "bad", "version": "1.0.0", "name": "Bad", "description": "misbehaves on purpose"}
TOOL = {"name": "bad_tool", "description": "does it wrong", "input_schema": {"type": "object"}}
SAID = {"said": "hello"}
KIND = sys.argv[1] if len(sys.argv) > 1 else ""


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


def hello(**over: Any) -> Message:
    """What is answered to initialize."""
    return {"manifest": {"plugin": PLUGIN}, "server_version": "bad-1.0.0", "tools": [TOOL], **over}


def greet(**over: Any) -> None:
    """Answer initialize."""
    answer(read(), hello(**over))


def publish(topic: Any, event: Any) -> None:
    say(method="broker.publish", params={"topic": topic, "event": event})


def await_request(method: str = "") -> Message:
    """The next request of this method, or of any but shutdown, which is answered."""
    while True:
        message = read()
        if message.get("method") == "shutdown":
            answer(message, {"ok": True})
            sys.exit(0)
        if "method" in message and "id" in message and method in ("", message["method"]):
            return message


def await_answer() -> Message:
    """The next answer of the host."""
    while True:
        message = read()
        if "method" not in message:
            return message


def serve(handle: Callable[[Message], object] = answer) -> None:
    """Answer every request with `handle` until the host says shutdown."""
    while True:
        handle(await_request())
