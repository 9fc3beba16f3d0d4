"""`Exchange`: the way back of one HTTP request: a single answer, or a stream of events that ends with it.

Owns which of the two it is: an answer that is all there is to say goes as JSON; as soon as something is said before it,
or it takes long, a stream is opened. Refuses to know the protocol beyond what is an answer and what is not.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any

import msgspec

from plugbay.mcp_server.http_rules import Refused

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

STREAM_AFTER = 5.0
"""Seconds without an answer after which a stream is opened: proxies close what says nothing, after some thirty."""

KEEP_ALIVE = 15.0
"""Seconds of silence on a stream, after which it carries a comment."""

MAX_UNREAD = 8 << 20
"""Bytes that wait for a client to read; past this it is told only what it must know."""

MAX_WAITING = 256
"""Messages that wait for a client which has no stream open for them; here and past those bytes the oldest give way."""

_STREAM_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


class _Error(msgspec.Struct):
    code: int = 0


class _Head(msgspec.Struct):
    """As much of a message as says what it is."""

    method: str | msgspec.UnsetType = msgspec.UNSET
    error: _Error | msgspec.UnsetType | None = msgspec.UNSET


_head = msgspec.json.Decoder(_Head).decode


def frames(data: bytes) -> list[bytes]:
    """The messages in what a machine writes, one a line."""
    return data.split(b"\n")[:-1]


def is_answer(frame: bytes) -> bool:
    """Whether a message answers a request, as opposed to a request or a notification of ours."""
    return _head(frame).method is msgspec.UNSET


def error_code(frame: bytes) -> int | None:
    """The code of an answer that is an error."""
    error = _head(frame).error
    return error.code if isinstance(error, _Error) else None


class Exchange:
    """One request of a client, and what goes back."""

    def __init__(self, expected: int, statuses: Mapping[int, int] | None = None, *, lossy: bool = False) -> None:
        """`expected`: answers after which it is over, 0 for a stream that somebody else ends. `statuses`: by error.

        A stream that is `lossy` carries what may get lost: the oldest gives way when nobody reads.
        """
        self._left = expected
        self._endless = expected == 0
        self._statuses = statuses or {}
        self._lossy = lossy
        self._queue: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._bytes = 0
        self.over = False
        """Nothing more will be said."""
        self.gone = False
        """The client has left before the end."""

    @property
    def has_room(self) -> bool:
        return self._bytes <= MAX_UNREAD and not self.gone

    def push(self, frame: bytes) -> None:
        """One message for the client."""
        if self.over or self.gone:
            return
        while self._lossy and (len(self._queue) >= MAX_WAITING or self._bytes > MAX_UNREAD):
            self._taken()
        self._queue.append(frame)
        self._bytes += len(frame)
        if not self._endless and is_answer(frame):
            self._answered()
        self._changed.set()

    def drop(self) -> None:
        """One of the answers will not come: its request was called off."""
        self._answered()
        self._changed.set()

    def _answered(self) -> None:
        self._left -= 1
        self.over = self._left <= 0

    def end(self) -> None:
        """Nothing more will be said; what is there still goes."""
        self.over = True
        self._changed.set()

    def continued(self) -> Exchange:
        """The same for another connection: what nobody has read yet is on it."""
        after = Exchange(0, lossy=self._lossy)
        after._queue, after._bytes = self._queue, self._bytes
        return after

    def left(self) -> None:
        """The client has closed its end."""
        self.gone = True
        self._changed.set()

    # Writing.

    async def respond(self, send: Send, headers: Iterable[tuple[str, str]] = ()) -> None:
        """Write everything, until it is over or the client has left."""
        await self._wait(STREAM_AFTER)
        if self.gone:
            return
        if self.over and len(self._queue) == 1 and not self._endless:
            frame = self._taken()
            status = self._statuses.get(error_code(frame) or 0, 200)
            await _respond(send, status, frame, (*headers, ("content-type", "application/json")))
        elif self.over and not self._queue:
            await _respond(send, 202, b"", headers)
        else:
            await self._stream(send, headers)

    async def stream(self, send: Send) -> None:
        """The same, where it is a stream in any case."""
        await self._stream(send, ())

    async def _stream(self, send: Send, headers: Iterable[tuple[str, str]]) -> None:
        written = [(name.encode(), value.encode()) for name, value in headers]
        await send({"type": "http.response.start", "status": 200, "headers": [*written, *_STREAM_HEADERS]})
        while not self.gone:
            while self._queue and not self.gone:
                await _chunk(send, b"event: message\ndata: %b\n\n" % self._taken())
            if self.over and not self._queue:
                break
            if not await self._wait(KEEP_ALIVE):
                await _chunk(send, b":\n\n")
        if not self.gone:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _taken(self) -> bytes:
        frame = self._queue.popleft()
        self._bytes -= len(frame)
        return frame

    async def _wait(self, seconds: float) -> bool:
        """Until there is something to do; False when that takes too long."""
        if self._queue or self.over or self.gone:
            return True
        self._changed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True


async def _chunk(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def _respond(send: Send, status: int, body: bytes, headers: Iterable[tuple[str, str]] = ()) -> None:
    written = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers]
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*written, length]})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def refuse(send: Send, refused: Refused, id: Any = None) -> None:
    """Answer with an error of the protocol, and the status that goes with it."""
    error = {"code": refused.code, "message": refused.message}
    if refused.data is not None:
        error["data"] = refused.data
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": id if isinstance(id, int | str) else None, "error": error})
    await _respond(send, refused.status, body, (*refused.headers, ("content-type", "application/json")))


async def accept(send: Send, status: int = 202) -> None:
    """Answer that there is nothing to answer."""
    await _respond(send, status, b"")
