"""The reference between the floors and the link: the smallest possible asyncio host.

A task for each caller, a future for each call, msgspec, one write for the calls of a tick. It has no limits, deadlines,
checks, cancellation or failures, so it measures the cost of an event loop.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import msgspec

from bench.calls import measure
from bench.floors import READ_SIZE, Answer
from bench.harness import CHILDREN, PAYLOAD, Sample, apart, started


class BareHost:
    """Calls by their numbers."""

    def __init__(self, reader: int, writer: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader, self._writer = reader, writer
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder(Answer).decode
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._number = 0
        self._out: list[bytes] = []
        self._rest = b""
        self._loop.add_reader(reader, self._read)

    async def call(self, input: Any) -> dict[str, Any]:
        self._number = number = self._number + 1
        future: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._waiting[number] = future
        head = b'{"jsonrpc":"2.0","id":%d,"method":"call","params":{"tool":"echo","input":' % number
        self._out.append(head + self._encode(input) + b"}}\n")
        if len(self._waiting) == 1:
            self._write()
        elif len(self._out) == 1:
            self._loop.call_soon(self._write)
        return await future

    def _write(self) -> None:
        data = b"".join(self._out)
        self._out.clear()
        os.write(self._writer, data)  # 64 small calls: a pipe takes them whole

    def _read(self) -> None:
        *lines, self._rest = (self._rest + os.read(self._reader, READ_SIZE)).split(b"\n")
        for line in lines:
            answer = self._decode(line)
            self._waiting.pop(answer.id).set_result(answer.result)


async def bare_loop(params: dict[str, Any]) -> Sample:
    """The same echo with the same child as the JSON floor's."""
    with started([sys.executable, str(CHILDREN / "fast_child.py"), *apart()]) as child:
        assert child.stdin is not None and child.stdout is not None
        writer, reader = child.stdin.fileno(), child.stdout.fileno()
        os.write(writer, b'{"jsonrpc":"2.0","method":"hello","params":{}}\n')
        assert b"hello" in os.read(reader, READ_SIZE)
        host = BareHost(reader, writer)

        async def echo() -> str:
            text: str = (await host.call({"text": PAYLOAD}))["text"]
            return text

        try:
            return await measure(echo, params)
        finally:
            asyncio.get_running_loop().remove_reader(reader)
