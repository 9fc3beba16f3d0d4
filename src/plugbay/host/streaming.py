"""`CallStream`: one call whose answer comes in pieces, as an async iterator.

    stream = host.stream("cohere", {"model": "command-r", "messages": [...]})
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

from plugbay.host.calls import CallResult
from plugbay.model.errors import CallFailed, Code, Failure

MAX_WAITING = 10_000
"""Pieces that may wait for a consumer; a model sends about a hundred per second."""

Begin = Callable[[Callable[[Any], None]], Awaitable[CallResult]]
"""Starts the call; told where each piece goes."""


class CallStream:
    """The pieces of one call. Iterate it once; leaving early cancels the call."""

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        self._loop = asyncio.get_running_loop()
        self._pieces: deque[Any] = deque()
        self._changed = asyncio.Event()
        self._call: asyncio.Future[CallResult] | None = None
        self._overflow = False

    @property
    def result(self) -> Any:
        """The call's own answer, after the last piece."""
        if self._call is None or not self._call.done():
            raise RuntimeError("the stream has not ended yet; iterate it first")
        return self._call.result().value_or_raise()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
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
            return self._pieces.popleft()
        if self._overflow:
            text = f"more than {MAX_WAITING:,} pieces waited to be read"
            raise CallFailed(Failure(Code.OVERLOADED, text))
        self._call.result().value_or_raise()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Give the call up if it still runs."""
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
        """In the host's loop, which may not be ours."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._take(piece)
        else:
            self._loop.call_soon_threadsafe(self._take, piece)

    def _take(self, piece: Any) -> None:
        if len(self._pieces) >= MAX_WAITING:
            self._overflow = True
            if self._call is not None:
                self._call.cancel()
            return
        self._pieces.append(piece)
        self._changed.set()
