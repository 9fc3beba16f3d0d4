"""Breaks the rules of a frame, as KIND says, in place of its answer: malformed_response, frame_too_large or crashed."""

from __future__ import annotations

import sys

import child
from child import KIND, SERVES, Message, serve, write

HEADERS: dict[str, bytes] = {
    "text": b"Listening on port 8080\n",
    "bare_newlines": b"Content-Length: 2\n\n{}",
    "no_colon": b"Content-Length 2\r\n\r\n{}",
    "other_header": b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    "no_ascii": b"Content-Length: 2\xff\r\n\r\n{}",
    "negative": b"Content-Length: -1\r\n\r\n",
    "hex": b"Content-Length: 0x10\r\n\r\n",
    "underscore": b"Content-Length: 1_0\r\n\r\n0123456789",
    "no_number": b"Content-Length: \r\n\r\n",
    "blank_line_first": b"\r\nContent-Length: 2\r\n\r\n{}",
    "17_mib": b"Content-Length: 17825792\r\n\r\n",
    "one_byte_too_large": b"Content-Length: 16777217\r\n\r\n",
    "huge": b"Content-Length: 99999999999999999999999999\r\n\r\n",
    "endless_header": b"Content-Length: " + b"0" * 20_000,
    "ends_in_header": b"Content-Length: 2\r\n",
    "ends_in_body": b"Content-Length: 200\r\n\r\n{}",
}


def broken(params: Message) -> None:
    write(HEADERS[KIND])
    if KIND.startswith("ends_in"):
        sys.exit(0)
    while True:
        child.read()


SERVES["plugin/cli_dispatch"] = broken
serve()
