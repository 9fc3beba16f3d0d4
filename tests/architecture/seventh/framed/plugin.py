"""A plugin of the contract `sketch`, copied from vai: frames with a Content-Length."""

from __future__ import annotations

import json
import sys
from typing import Any

PROTOCOL = "sketch.rpc.v1"


def read() -> Any:
    """The next frame; None at the end of the input."""
    length = 0
    while header := sys.stdin.buffer.readline().strip():
        length = int(header.partition(b":")[2])
    return json.loads(sys.stdin.buffer.read(length)) if length else None


def write(**frame: Any) -> None:
    body = json.dumps({"protocol": PROTOCOL, **frame}).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    sys.stdout.buffer.flush()


while (frame := read()) is not None and frame["type"] != "shutdown":
    assert frame["protocol"] == PROTOCOL
    if frame["type"] == "hello":
        write(type="hello", role="plugin", plugin={"package_id": "sketch/plugin", "version": "1.0.0"})
    if frame["type"] == "request":
        output = {"doubled": 2 * frame["body"]["input"]["number"]}
        result = {"content": [], "structured_output": output, "is_error": False, "retryable": False}
        write(type="response", id=frame["id"], ok=True, body={"status": "succeeded", "result": result})
