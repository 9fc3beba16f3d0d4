"""`CallStream`: one call whose answer comes in pieces, as an async iterator.

    async with host.stream("cohere", {"model": "command-r", "messages": [...]}) as stream:
        async for chunk in stream:
            ...
        whole = stream.result

Owns the bounded way from the link's callback to whoever iterates, on whichever loop that is. A consumer that does not
keep up ends its own call; nobody else waits for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

import msgspec

from plugbay.host.calls.calls import CallResult
from plugbay.model.errors import CallFailed, Code, Failure

MAX_WAITING = 10_000
"""Pieces that may wait for a consumer; a model sends about a hundred per second."""

MAX_WAITING_BYTES = 8 << 20
"""Bytes of JSON that may wait, besides a single piece of any size: a plugin chooses how large each is."""

Begin = Callable[[Callable[[Any], None]], Awaitable[CallResult]]
"""Starts the call; told where each piece goes."""


class CallStream:
    """The pieces of one call. Iterate it once; `aclose`, and leaving its `async with`, gives the call up."""

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        self._loop = asyncio.get_running_loop()
        self._pieces: deque[tuple[Any, int]] = deque()
        self._changed = asyncio.Event()
        self._call: asyncio.Future[CallResult] | None = None
        self._arrived_bytes = 0
        """Written by the host's loop alone, as `_read_bytes` is by ours: what waits is the difference."""
        self._read_bytes = 0
        self._overflow = False
        self._closed = False

    @property
    def result(self) -> Any:
        """The call's own answer, after the last piece; raises `CallFailed`."""
        if self._call is None or not self._call.done():
            raise RuntimeError("the stream has not ended yet; iterate it first")
        return self._outcome(self._call).value_or_raise()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if self._closed:
            raise StopAsyncIteration
        if self._call is None:
            self._call = asyncio.ensure_future(self._begin(self._arrived))
            self._call.add_done_callback(lambda _: self._changed.set())
        while not self._pieces and not self._call.done():
            self._changed.clear()
            try:
                await self._changed.wait()
            except asyncio.CancelledError:
                self._call.cancel()
                raise
        if self._pieces:
            piece, size = self._pieces.popleft()
            self._read_bytes += size
            return piece
        self._outcome(self._call).value_or_raise()
        raise StopAsyncIteration

    def _outcome(self, call: asyncio.Future[CallResult]) -> CallResult:
        """How the call ended; what was given up is a failure and never a cancellation of whoever looks."""
        if self._overflow:
            text = f"more than {MAX_WAITING:,} pieces or {MAX_WAITING_BYTES:,} bytes waited to be read"
            raise CallFailed(Failure(Code.OVERLOADED, text))
        if call.cancelled():
            raise CallFailed(Failure(Code.CANCELLED, "the stream was given up before its end"))
        return call.result()

    async def aclose(self) -> None:
        """Give the call up if it still runs; the stream has ended."""
        self._closed = True
        self._pieces.clear()
        if self._call is not None and not self._call.done():
            self._call.cancel()
            await asyncio.wait({self._call})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def _arrived(self, piece: Any) -> None:
        """In the host's loop, which may not be ours: it counts, so a loop that is busy cannot pile them up either."""
        if self._overflow or self._closed:
            return
        size = len(msgspec.json.encode(piece))
        waiting = self._arrived_bytes - self._read_bytes
        if len(self._pieces) >= MAX_WAITING or (self._pieces and waiting + size > MAX_WAITING_BYTES):
            self._overflow = True
            self._tell(self._give_up)
            return
        self._arrived_bytes += size
        self._pieces.append((piece, size))
        self._tell(self._changed.set)

    def _give_up(self) -> None:
        if self._call is not None:
            self._call.cancel()

    def _tell(self, act: Callable[[], object]) -> None:
        """Do something on the consumer's own loop."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            act()
        else:
            self._loop.call_soon_threadsafe(act)
