"""What the bad plugins share: reading, writing and a greeting as the contract wants it.

Nothing here is wrong; what is wrong is in the file that imports it.
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


def hello(**over: Any) -> Message:
    """What is answered to initialize."""
    return {"manifest": {"plugin": PLUGIN}, "server_version": "bad-1.0.0", "tools": [TOOL], **over}


def greet(**over: Any) -> None:
    """Answer initialize."""
    say(id=read()["id"], result=hello(**over))


def publish(topic: Any, event: Any) -> None:
    say(method="broker.publish", params={"topic": topic, "event": event})


def asked(method: str = "") -> Message:
    """The next request of this method, or of any but shutdown, which is answered."""
    while True:
        message = read()
        if message.get("method") == "shutdown":
            say(id=message["id"], result={"ok": True})
            sys.exit(0)
        if "method" in message and "id" in message and method in ("", message["method"]):
            return message


def answers() -> Message:
    """The next answer of the host."""
    while True:
        message = read()
        if "method" not in message:
            return message


def serve(handle: Callable[[Message], object] | None = None) -> None:
    """Answer everything with `handle`, or with a friendly word, until asked to leave."""
    while True:
        request = asked()
        if handle is None:
            say(id=request["id"], result=SAID)
        else:
            handle(request)
