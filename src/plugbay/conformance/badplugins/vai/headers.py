"""Breaks the rules of a frame, as KIND says, in place of its answer; the last two keep them."""

from __future__ import annotations

import os

import child
from child import KIND, Message, json, serve, write

HEADERS: dict[str, bytes] = {
    "text": b"Listening on port 8080\n",
    "binary": bytes(range(256)),
    "bare_newlines": b"Content-Length: 2\n\n{}",
    "no_colon": b"Content-Length 2\r\n\r\n{}",
    "no_length": b"Content-Type: application/json\r\n\r\n{}",
    "length_twice": b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "negative": b"Content-Length: -1\r\n\r\n",
    "plus": b"Content-Length: +2\r\n\r\n{}",
    "hex": b"Content-Length: 0x10\r\n\r\n",
    "no_number": b"Content-Length: \r\n\r\n",
    "1_gib": b"Content-Length: 1073741824\r\n\r\n",
    "one_byte_too_large": b"Content-Length: 8388609\r\n\r\n",
    "huge": b"Content-Length: 99999999999999999999999999\r\n\r\n",
    "endless_header": b"X-Pad: " + b"0" * 20_000,
    "ends_in_header": b"Content-Length: 2\r\n",
    "ends_in_body": b"Content-Length: 200\r\n\r\n{}",
}

SPELLINGS: dict[str, bytes] = {
    "other_headers": b"X-Trace: 1\r\nContent-Length: %d\r\nContent-Type: application/json\r\n\r\n",
    "small_letters": b"content-length:%d\r\n\r\n",
}


def begin(message: Message) -> None:
    if KIND in SPELLINGS:
        body = {"status": "succeeded", "result": {"content": [{"type": "text", "text": "hello"}]}}
        frame = {"protocol": child.PROTOCOL, "type": "response", "id": message["id"], "ok": True, "body": body}
        data = json.dumps(frame).encode()
        write(SPELLINGS[KIND] % len(data) + data)
        return
    write(HEADERS[KIND])
    if KIND.startswith("ends_in"):
        os._exit(0)


child.begin = begin
serve()
