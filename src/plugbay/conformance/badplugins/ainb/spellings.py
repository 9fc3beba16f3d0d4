"""Frames as few write them, as KIND says, and all of them right: accepted."""

from __future__ import annotations

import time
from collections.abc import Callable

import child
from child import KIND, SERVES, serve

SPELLINGS: dict[str, str] = {
    "lower_case": "content-length: {}\r\n\r\n",
    "upper_case": "CONTENT-LENGTH:{}\r\n\r\n",
    "blanks": " Content-Length :   {}  \r\n\r\n",
    "zeros": "Content-Length: 000{}\r\n\r\n",
    "plus": "Content-Length: +{}\r\n\r\n",
    "repeated": "Content-Length: 3\r\nContent-Length: {}\r\n\r\n",
    "longest_header": "Content-Length: " + "0" * 8000 + "{}\r\n\r\n",
}


def spelt(data: bytes) -> bytes:
    return SPELLINGS[KIND].format(len(data)).encode() + data


def byte_by_byte(data: bytes) -> None:
    for at in range(len(data)):
        proper(data[at : at + 1])
        time.sleep(0.0005)


proper: Callable[[bytes], None] = child.write
if KIND in SPELLINGS:
    child.framed = spelt
else:
    child.write = byte_by_byte
SERVES |= {"plugin/cli_dispatch": child.dispatch, "plugin/render": child.render}
serve()
