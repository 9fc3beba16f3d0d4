"""A nexo child that answers each call after a pause, its argument in seconds, many calls at a time."""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections import deque
from typing import Any

HELLO = {
    "manifest": {"plugin": {"id": "bench_sleep", "version": "1.0.0"}},
    "server_version": "1",
    "tools": [{"name": "bench_sleep_nap", "description": "Answer later.", "input_schema": {"type": "object"}}],
}


def answer(request: dict[str, Any]) -> bytes:
    """The line for a request."""
    result = HELLO if request["method"] == "initialize" else {"ok": True}
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode() + b"\n"


def take(lines: list[bytes], seconds: float, waiting: deque[tuple[float, bytes]]) -> None:
    """Put the answers of calls off; the others leave at once."""
    for request in filter(lambda each: "id" in each, map(json.loads, lines)):
        if request["method"] == "tool.invoke":
            waiting.append((time.monotonic() + seconds, answer(request)))
        else:
            os.write(1, answer(request))


def main(seconds: float) -> None:
    waiting: deque[tuple[float, bytes]] = deque()
    rest = b""
    while True:
        pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        if select.select([0], [], [], pause)[0]:
            data = os.read(0, 65_536)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            take(lines, seconds, waiting)
        while waiting and waiting[0][0] <= time.monotonic():
            os.write(1, waiting.popleft()[1])


if __name__ == "__main__":
    main(float(sys.argv[1]))
