"""A nexo plugin that greets correctly, and then misbehaves as its first argument says."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

NAME = Path(__file__).resolve().parent.name


def say_hello() -> None:
    """A correct greeting, so that the host accepts the plugin."""
    asked = json.loads(sys.stdin.readline())
    tools: list[object] = [
        {"name": f"{NAME}_{tool}", "description": tool, "input_schema": {}} for tool in ("echo", "die")
    ]
    manifest = {"plugin": {"id": NAME, "version": "1.0.0", "name": NAME, "description": "a neighbour"}}
    result = {"manifest": manifest, "server_version": "1", "tools": tools}
    os.write(1, json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}).encode() + b"\n")


def for_ever(fd: int, data: bytes) -> None:
    """All of it, again and again."""
    while True:
        rest = data
        while rest:
            rest = rest[os.write(fd, rest) :]


def message(body: bytes) -> bytes:
    """One line of the conversation."""
    return b'{"jsonrpc":"2.0",' + body + b"}\n"


def garbage() -> None:
    for_ever(1, b"no message at all, only a line\n" * 2000)


def events() -> None:
    for_ever(1, message(b'"method":"broker.publish","params":{"topic":"a.b","event":{}}') * 500)


def questions() -> None:
    """Reads each response, and sends the next request."""
    threading.Thread(target=lambda: [None for _ in iter(lambda: os.read(0, 65_536), b"")], daemon=True).start()
    for_ever(1, b"".join(message(b'"id":%d,"method":"memory.recall","params":{"query":"x"}' % n) for n in range(500)))


def brackets() -> None:
    for_ever(1, message(b'"id":1,"result":' + b"[" * 30_000 + b"]" * 30_000))


def lists() -> None:
    for_ever(1, message(b'"id":1,"result":[' + b"[]," * 90_000 + b"[]]"))


def one_long_line() -> None:
    for_ever(1, b"x" * 65_536)


def stderr() -> None:
    for_ever(2, b"a line of a log that nobody reads\n" * 2000)


def deaf() -> None:
    time.sleep(3600)


def drops() -> None:
    """A byte at a time, never a whole message."""
    while True:
        os.write(1, b"{")
        time.sleep(0.0005)


def spin() -> None:
    while True:
        pass


def hoard() -> None:
    kept = []
    while True:
        kept.append(b"x" * (1 << 20))


def breed() -> None:
    while True:
        try:
            os.fork()
        except OSError:
            pass


def die() -> None:
    os._exit(3)


WAYS: dict[str, Callable[[], None]] = {
    way.__name__: way
    for way in (
        garbage,
        events,
        questions,
        brackets,
        lists,
        one_long_line,
        stderr,
        deaf,
        drops,
        spin,
        hoard,
        breed,
        die,
    )
}

if __name__ == "__main__":
    say_hello()
    WAYS[sys.argv[1]]()
