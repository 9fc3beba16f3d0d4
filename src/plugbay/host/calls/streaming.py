"""`CallStream`: one call with its progress or partial results as an async iterator.

    async with host.stream("cohere", {"model": "command-r", "messages": [...]}) as stream:
        async for chunk in stream:
            ...
        whole = stream.result

Passes pieces from the link's callback to the consumer, which may be on another loop. The queue is bounded: a consumer
that is too slow ends its own call and delays no other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

import msgspec

from plugbay.host.request import CallResult
from plugbay.model.errors import CallFailed, Code, Failure

MAX_WAITING = 10_000
"""Pieces that may wait for the consumer; a model sends about a hundred per second."""

MAX_WAITING_BYTES = 8 << 20
"""Bytes of JSON that may wait, besides a single piece of any size: plugins choose the size of a piece."""

StartCall = Callable[[Callable[[Any], None]], Awaitable[CallResult]]
"""Starts the call, with the callback for its pieces."""


class CallStream:
    """The pieces of one call. Iterate it once; `aclose`, and leaving its `async with`, cancels the call."""

    def __init__(self, start: StartCall) -> None:
        self._start = start
        self._loop = asyncio.get_running_loop()
        self._pieces: deque[tuple[Any, int]] = deque()
        self._changed = asyncio.Event()
        self._call: asyncio.Future[CallResult] | None = None
        self._arrived_bytes = 0
        """Written only by the host's loop, as `_read_bytes` only by the consumer's: the difference is waiting."""
        self._read_bytes = 0
        self._overflow = False
        self._closed = False

    @property
    def result(self) -> Any:
        """The result of the call, after the last piece; raises `CallFailed`."""
        if self._call is None or not self._call.done():
            raise RuntimeError("the stream has not ended yet; iterate it first")
        return self._outcome(self._call).value_or_raise()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if self._closed:
            raise StopAsyncIteration
        if self._call is None:
            self._call = asyncio.ensure_future(self._start(self._on_piece))
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
        """The outcome of the call. A cancelled call is a failure, never a cancellation of the consumer."""
        if self._overflow:
            text = (
                f"the reader is too slow: more than {MAX_WAITING:,} pieces or {MAX_WAITING_BYTES:,} bytes are waiting"
            )
            raise CallFailed(Failure(Code.OVERLOADED, text))
        if call.cancelled():
            raise CallFailed(Failure(Code.CANCELLED, "the stream was cancelled before its end"))
        return call.result()

    async def aclose(self) -> None:
        """Cancel the call if it still runs; the stream has ended."""
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

    def _on_piece(self, piece: Any) -> None:
        """On the host's loop, which may be another one: counting here bounds the queue of a busy consumer loop too."""
        if self._overflow or self._closed:
            return
        size = len(msgspec.json.encode(piece))
        waiting = self._arrived_bytes - self._read_bytes
        if len(self._pieces) >= MAX_WAITING or (self._pieces and waiting + size > MAX_WAITING_BYTES):
            self._overflow = True
            self._on_consumer_loop(self._cancel)
            return
        self._arrived_bytes += size
        self._pieces.append((piece, size))
        self._on_consumer_loop(self._changed.set)

    def _cancel(self) -> None:
        if self._call is not None:
            self._call.cancel()

    def _on_consumer_loop(self, act: Callable[[], object]) -> None:
        """Run `act` on the consumer's loop."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            act()
        else:
            self._loop.call_soon_threadsafe(act)
