"""An ainb child at the speed limit of Python: frames painted once, events discarded unread.

Draws as many cells as requested, and one more mark for each key. BENCH_CORE is the core to run on.
"""

from __future__ import annotations

import os

import msgspec

from bench.children.full_frame import MARKS, painted


class Viewport(msgspec.Struct):
    """How large a picture is."""

    width: int
    height: int


class Params(msgspec.Struct, frozen=True):
    """The one parameter that is looked at."""

    viewport: Viewport | None = None


class Request(msgspec.Struct):
    """What the host sends; a notification has no id."""

    method: str
    id: int = -1
    params: Params = Params()


HELLO = b'{"jsonrpc":"2.0","id":%d,"result":{"name":"ainb_fast","version":"1.0.0","abi_version":2}}'
PICTURE = b'{"jsonrpc":"2.0","id":%d,"result":%b%b%b}'
NOTHING = b'{"jsonrpc":"2.0","id":%d,"result":{}}'
EVENT = b'"plugin/handle_event"'
HEAD = 100
"""Bytes in which the method of an event is named."""

READ_SIZE = 1 << 18
"""As much as the pipe of a large frame gives at once."""


class Child:
    """The pictures, and how many keys there were."""

    def __init__(self) -> None:
        self.decode = msgspec.json.Decoder(Request).decode
        self.pictures: dict[tuple[int, int], tuple[bytes, bytes]] = {}
        self.keys = 0

    def heard(self, body: bytes) -> bytes | None:
        """The answer to a frame, if it wants one."""
        if EVENT in body[:HEAD]:
            return None
        request = self.decode(body)
        if request.method == "plugin/handle_key":
            self.keys += 1
        if request.id < 0:
            return None
        if request.method == "plugin/init":
            return HELLO % request.id
        if request.params.viewport is None:
            return NOTHING % request.id
        before, after = self.picture((request.params.viewport.width, request.params.viewport.height))
        return PICTURE % (request.id, before, MARKS[self.keys % len(MARKS)].encode(), after)

    def picture(self, size: tuple[int, int]) -> tuple[bytes, bytes]:
        if size not in self.pictures:
            self.pictures[size] = painted(*size)
        return self.pictures[size]


def main() -> None:
    """Serve until the end of input."""
    child, buffered = Child(), bytearray()
    while data := os.read(0, READ_SIZE):
        buffered += data
        while (end := buffered.find(b"\r\n\r\n", 0, HEAD)) >= 0:
            begin = end + 4
            length = int(buffered[:end].partition(b":")[2])
            if len(buffered) < begin + length:
                break
            answer = child.heard(bytes(buffered[begin : begin + length]))
            del buffered[: begin + length]
            if answer is not None:
                send(b"Content-Length: %d\r\n\r\n%b" % (len(answer), answer))


def send(data: bytes) -> None:
    """All of it, however small the pipe's bites."""
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


if __name__ == "__main__":
    if "BENCH_CORE" in os.environ:
        os.sched_setaffinity(0, {int(os.environ["BENCH_CORE"])})
    main()
