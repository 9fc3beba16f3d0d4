"""A line JSON-RPC echo child at the speed limit of Python: msgspec, no framework, batched replies.

Greets, then answers each `call` with its own input. All requests that arrived together are answered with one write, as
the SDK of a resident contract does. The JSON floor and the link use this same child. An argument is the core to run on.
"""

from __future__ import annotations

import os
import sys

import msgspec


class Params(msgspec.Struct, frozen=True):
    """The part of a call that is sent back, unread."""

    input: msgspec.Raw = msgspec.Raw(b"null")


class Request(msgspec.Struct):
    """What the host sends; a notification has no id."""

    method: str
    id: int = -1
    params: Params = Params()


class Reply(msgspec.Struct):
    """What goes back."""

    id: int
    result: msgspec.Raw
    jsonrpc: str = "2.0"


HELLO = b'{"jsonrpc":"2.0","method":"hello","params":{}}\n'


def main() -> None:
    """Serve until the end of input."""
    decode = msgspec.json.Decoder(Request).decode
    encode = msgspec.json.Encoder().encode
    rest = b""
    while data := os.read(0, 65_536):
        *lines, rest = (rest + data).split(b"\n")
        out = []
        for line in lines:
            request = decode(line)
            if request.method == "hello":
                out.append(HELLO)
            else:
                out.append(encode(Reply(request.id, request.params.input)) + b"\n")
        send(b"".join(out))


def send(data: bytes) -> None:
    """All of it, however small the pipe's bites."""
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        os.sched_setaffinity(0, {int(sys.argv[1])})
    main()
