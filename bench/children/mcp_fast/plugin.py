"""An MCP server at the speed limit of Python: msgspec, no framework, replies of one read batched.

Echoes the text of its one tool. BENCH_CORE is the core to run on.
"""

from __future__ import annotations

import os

import msgspec


class Arguments(msgspec.Struct, frozen=True):
    """The part that is sent back, unread."""

    text: msgspec.Raw = msgspec.Raw(b'""')


class Params(msgspec.Struct, frozen=True):
    """What matters of a request's parameters."""

    arguments: Arguments = Arguments()


class Request(msgspec.Struct):
    """What the client sends; a notification has no id."""

    method: str
    id: int = -1
    params: Params = Params()


SCHEMA = b'{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}'
HELLO = (
    b'{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bench_fast","version":"1.0.0"}}'
)
TOOLS = b'{"tools":[{"name":"echo","description":"Send the text back.","inputSchema":' + SCHEMA + b"}]}"
ANSWERS = {"initialize": HELLO, "tools/list": TOOLS}
RESULT = b'{"jsonrpc":"2.0","id":%d,"result":%b}\n'
ECHO = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":%b}]}}\n'


def main() -> None:
    """Serve until the end of input."""
    decode = msgspec.json.Decoder(Request).decode
    rest = b""
    while data := os.read(0, 65_536):
        *lines, rest = (rest + data).split(b"\n")
        send(b"".join(map(answer, map(decode, lines))))


def answer(request: Request) -> bytes:
    """What a request is answered with; a notification, with nothing."""
    if request.method == "tools/call":
        return ECHO % (request.id, bytes(request.params.arguments.text))
    return RESULT % (request.id, ANSWERS.get(request.method, b"{}")) if request.id >= 0 else b""


def send(data: bytes) -> None:
    """All of it, however small the pipe's bites."""
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    if "BENCH_CORE" in os.environ:
        os.sched_setaffinity(0, {int(os.environ["BENCH_CORE"])})
    main()
