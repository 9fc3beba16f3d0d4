"""A plugin that offers nothing, in proper frames; broken: it writes or reads them otherwise."""

from __future__ import annotations

import os
import sys

import child
from child import KIND, SERVES, Message, serve, write


def banner() -> None:
    write(b"canary 1.0.0 ready\n")


def one_more_newline() -> None:
    proper = child.framed
    child.framed = lambda data: proper(data) + b"\n"


def more_headers() -> None:
    proper = child.framed
    child.framed = lambda data: b"Content-Type: application/json\r\n" + proper(data)


def bare_newlines() -> None:
    child.framed = lambda data: b"Content-Length: %d\n\n%b" % (len(data), data)


def prints_at_the_end() -> None:
    def shutdown(params: Message) -> Message:
        write(b"good-bye\n")
        return {}

    SERVES["plugin/shutdown"] = shutdown


def takes_bare_newlines() -> None:
    def line() -> bytes:
        found = sys.stdin.buffer.readline()
        return found.rstrip(b"\r\n") + b"\r\n" if found else sys.exit(0)

    child.line = line


def knows_one_spelling() -> None:
    def length() -> int:
        head = child.line()
        child.line()
        return int(head.removeprefix(b"Content-Length: ")) if head.startswith(b"Content-Length: ") else sys.exit(1)

    child.length = length


def up_to_1_mib() -> None:
    child.MAX_BODY = 1 << 20


def dies_of_odd_bodies() -> None:
    def parsed(data: bytes) -> Message:
        return dict(child.json.loads(data))

    child.parsed = parsed


def frame_of(data: bytes) -> tuple[bytes, bytes]:
    """The body of the first frame in these bytes, and what is behind it; leaves when there is no whole one."""
    head, _, rest = data.partition(b"\r\n\r\n")
    size = int(head.partition(b":")[2] or -1)
    return (rest[:size], rest[size:]) if 0 <= size <= len(rest) else sys.exit("half a frame")


def takes_a_read_for_a_frame() -> None:
    def body() -> bytes:
        return frame_of(os.read(0, 1 << 20) or sys.exit(0))[0]

    child.body = body


def expects_one_at_a_time() -> None:
    def body() -> bytes:
        found, rest = frame_of(os.read(0, 1 << 20) or sys.exit(0))
        return sys.exit("too much") if rest else found

    child.body = body


KINDS = {
    "takes_a_read_for_a_frame": takes_a_read_for_a_frame,
    "expects_one_at_a_time": expects_one_at_a_time,
    "banner": banner,
    "one_more_newline": one_more_newline,
    "more_headers": more_headers,
    "bare_newlines": bare_newlines,
    "prints_at_the_end": prints_at_the_end,
    "takes_bare_newlines": takes_bare_newlines,
    "knows_one_spelling": knows_one_spelling,
    "up_to_1_mib": up_to_1_mib,
    "dies_of_odd_bodies": dies_of_odd_bodies,
}

if KIND:
    KINDS[KIND]()
serve()
