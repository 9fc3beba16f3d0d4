"""A nexo child at the speed limit of Python: msgspec, no framework, replies of one read batched.

Echoes the arguments of its tool, and publishes every received event. BENCH_CORE is the core to run on.
"""

from __future__ import annotations

import os

import msgspec


class Params(msgspec.Struct, frozen=True):
    """The parts that are sent back, unread."""

    args: msgspec.Raw = msgspec.Raw(b"null")
    event: msgspec.Raw = msgspec.Raw(b"null")


class Request(msgspec.Struct):
    """What the host sends; a notification has no id."""

    method: str
    id: int = -1
    params: Params = Params()


SCHEMA = b'{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}'
HELLO = (
    b'{"jsonrpc":"2.0","id":%d,"result":{"manifest":{"plugin":{"id":"bench_fast","version":"1.0.0"}},'
    b'"server_version":"1","tools":[{"name":"bench_fast_echo","description":"Send the text back.",'
    b'"input_schema":' + SCHEMA + b"}]}}\n"
)
RESULT = b'{"jsonrpc":"2.0","id":%d,"result":%b}\n'
PUBLISH = b'{"jsonrpc":"2.0","method":"broker.publish","params":{"topic":"plugin.inbound.bench_fast","event":%b}}\n'


def main() -> None:
    """Serve until the end of input."""
    decode = msgspec.json.Decoder(Request).decode
    rest = b""
    while data := os.read(0, 65_536):
        *lines, rest = (rest + data).split(b"\n")
        send(b"".join(map(answer, map(decode, lines))))


def answer(request: Request) -> bytes:
    """What a request or an event is answered with."""
    if request.method == "tool.invoke":
        return RESULT % (request.id, bytes(request.params.args))
    if request.method == "broker.event":
        return PUBLISH % bytes(request.params.event)
    if request.method == "initialize":
        return HELLO % request.id
    return RESULT % (request.id, b'{"ok":true}')


def send(data: bytes) -> None:
    """All of it, however small the pipe's bites."""
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    if "BENCH_CORE" in os.environ:
        os.sched_setaffinity(0, {int(os.environ["BENCH_CORE"])})
    main()
