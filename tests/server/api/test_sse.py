"""Event streams: encoding, heartbeats and their end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import anyio
import pytest

from plugbay.server.api import sse
from plugbay.server.api.sse import Event, encode_stream
from tests.support.loops import Run


async def endless(ended: list[bool]) -> AsyncIterator[Event]:
    try:
        yield Event({"n": 1}, "first", "id-1")
        await asyncio.Event().wait()
    finally:
        ended.append(True)


def test_events_have_the_form_that_browsers_know(run: Run) -> None:
    async def main() -> None:
        async def events() -> AsyncIterator[Event]:
            yield Event({"n": 1}, "first", "id-1")
            yield Event("two\nlines")

        assert [piece async for piece in encode_stream(events(), asyncio.Event())] == [
            b'id: id-1\nevent: first\ndata: {"n":1}\n\n',
            b'data: "two\\nlines"\n\n',
        ]

    run(main)


def test_a_server_that_is_about_to_stop_ends_every_stream(run: Run) -> None:
    async def main() -> None:
        closing, ended = asyncio.Event(), list[bool]()
        pieces = encode_stream(endless(ended), closing)
        await anext(pieces)
        asyncio.get_running_loop().call_soon(closing.set)
        assert [piece async for piece in pieces if b"data" in piece] == []
        assert ended == [True]

    run(main)


def test_a_disconnected_reader_closes_the_source(run: Run) -> None:
    async def main() -> None:
        ended = list[bool]()
        pieces = encode_stream(endless(ended), asyncio.Event())
        await anext(pieces)
        await pieces.aclose()
        assert ended == [True]

    run(main)


def test_a_reader_that_is_cancelled_at_every_await_closes_the_source(run: Run) -> None:
    """As Starlette does when a client disconnects."""

    async def main() -> None:
        ended = list[bool]()
        pieces = encode_stream(endless(ended), asyncio.Event())
        await anext(pieces)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await anext(pieces)
        assert ended == [True]

    run(main)


def test_silence_is_broken_by_a_sign_of_life(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT", 0.001)

    async def main() -> None:
        pieces = encode_stream(endless([]), asyncio.Event())
        await anext(pieces)
        assert await anext(pieces) == b": still here\n\n"
        await pieces.aclose()

    run(main)
