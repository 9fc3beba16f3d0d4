"""The child of the JSON floor for screens: a line requests a frame or presses a key.

The frame is painted once; each request costs a read, the insertion of the mark, and a write. An argument is the core to
run on.
"""

from __future__ import annotations

import os
import sys

import msgspec

from bench.children.full_frame import MARKS, painted


class Request(msgspec.Struct):
    """A key has no id."""

    size: tuple[int, int]
    id: int = -1


def main() -> None:
    """Serve until the end of input."""
    decode = msgspec.json.Decoder(Request).decode
    pictures: dict[tuple[int, int], tuple[bytes, bytes]] = {}
    keys, rest = 0, b""
    while data := os.read(0, 65_536):
        *lines, rest = (rest + data).split(b"\n")
        for request in map(decode, lines):
            if request.id < 0:
                keys += 1
                continue
            if request.size not in pictures:
                pictures[request.size] = painted(*request.size)
            before, after = pictures[request.size]
            mark = MARKS[keys % len(MARKS)].encode()
            send(b'{"jsonrpc":"2.0","id":%d,"result":%b%b%b}\n' % (request.id, before, mark, after))


def send(data: bytes) -> None:
    """All of it, however small the pipe's bites."""
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        os.sched_setaffinity(0, {int(sys.argv[1])})
    main()
