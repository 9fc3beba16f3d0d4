"""Server-Sent Events.

    return event_stream(request, events())

Encodes events, sends heartbeats while nothing happens, and closes the source when the reader disconnects or the server
stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import anyio
import msgspec
from fastapi import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

HEARTBEAT = 15.0
"""Seconds without events before a heartbeat: proxies drop idle streams, and a write detects a closed one."""

MEDIA_TYPE = "text/event-stream"

_EVENT = {
    "type": "object",
    "properties": {
        "data": {"type": "string", "contentMediaType": "application/json"},
        "event": {"type": "string"},
        "id": {"type": "string"},
    },
    "required": ["data"],
}

STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "Events as they happen.", "content": {MEDIA_TYPE: {"itemSchema": _EVENT}}}
}
"""`responses` of a route that may return an event stream."""


class Event(msgspec.Struct, frozen=True):
    """One event: data as JSON, its name, and the id to resume after."""

    data: Any
    event: str | None = None
    id: str | None = None

    def encode(self) -> bytes:
        head = "".join(f"{name}: {value}\n" for name, value in (("id", self.id), ("event", self.event)) if value)
        return head.encode() + b"data: " + msgspec.json.encode(self.data) + b"\n\n"


class _EventStream(StreamingResponse):
    """Closes the source when the reader disconnects, even while a chunk is being sent."""

    def __init__(self, pieces: AsyncGenerator[bytes, None]) -> None:
        super().__init__(pieces, media_type=MEDIA_TYPE, headers={"x-accel-buffering": "no"})
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._pieces):
            await super().__call__(scope, receive, send)


def event_stream(request: Request, events: AsyncIterator[Event]) -> StreamingResponse:
    """The streaming response for these events."""
    closing: asyncio.Event = request.app.state.closing
    return _EventStream(encode_stream(events, closing))


async def encode_stream(events: AsyncIterator[Event], closing: asyncio.Event) -> AsyncGenerator[bytes, None]:
    """Encode events until they end, the reader disconnects, or `closing` is set."""
    end = asyncio.ensure_future(closing.wait())
    pending: asyncio.Task[Event | None] | None = None
    try:
        while not end.done():
            pending = pending or asyncio.ensure_future(_next(events))
            await asyncio.wait({pending, end}, timeout=HEARTBEAT, return_when=asyncio.FIRST_COMPLETED)
            if not pending.done():
                yield b": still here\n\n"
                continue
            event, pending = pending.result(), None
            if event is None:
                return
            yield event.encode()
    finally:
        # Starlette cancels the stream when the reader disconnects, and anyio cancels again at every await.
        with anyio.CancelScope(shield=True):
            await _close(events, end, pending)


async def _next(events: AsyncIterator[Event]) -> Event | None:
    return await anext(events, None)


async def _close(events: AsyncIterator[Event], *waiting: asyncio.Future[Any] | None) -> None:
    for each in waiting:
        if each is not None:
            each.cancel()
            await asyncio.wait({each})
    close = getattr(events, "aclose", None)
    if close is not None:
        await close()
