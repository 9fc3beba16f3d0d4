"""`Tries`: calls from the dashboard. A call runs in the background, and its page follows it and can cancel it.

In memory and bounded: a restart forgets them. An input is kept only if the operator wants to use it again.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import OrderedDict, deque
from typing import Any

import msgspec

from plugbay.host.host import Host
from plugbay.host.request import CallResult
from plugbay.server.dashboard.text import as_json
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.errors import not_found, too_many

MAX_RUNNING = 32
"""Calls at once, of all sessions."""

MAX_KEPT = 200
"""Calls that are remembered, of all sessions; the oldest finished one is forgotten first."""

MAX_INPUT = 64 << 10
"""Characters of an input that is kept."""

MAX_PIECES = 500
"""Pieces of progress that are kept of a call."""

MAX_PIECE = 2_000
"""Characters of a piece that are kept."""


class Try(msgspec.Struct):
    """One call."""

    id: str
    owner: object
    """The session that made it."""
    export: str
    at: float
    kept: str = ""
    """The input as JSON, if it is kept."""
    pieces: deque[str] = msgspec.field(default_factory=lambda: deque(maxlen=MAX_PIECES))
    received: int = 0
    """Pieces received, with those that are no longer kept."""
    result: CallResult | None = None
    cancelled: bool = False
    ended_at: float | None = None
    task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self.ended_at is None

    def take(self, piece: Any) -> None:
        """Keep a piece of progress or of a streamed output."""
        text = piece if isinstance(piece, str) else as_json(piece, spread=False, most=MAX_PIECE)
        self.pieces.append(text[:MAX_PIECE])
        self.received += 1


class Tries:
    """The calls from the dashboard of one server."""

    def __init__(self, host: Host, clock: Clock) -> None:
        self._host = host
        self._clock = clock
        self._all: OrderedDict[str, Try] = OrderedDict()

    def begin(self, owner: object, export: str, wanted: Any, timeout: float | None, *, keep: bool) -> Try:
        """Start a call; raises `too_many` when too many run."""
        if sum(each.is_running for each in self._all.values()) >= MAX_RUNNING:
            raise too_many(f"{MAX_RUNNING} calls of the dashboard are running already", retry_after=1.0)
        text = json.dumps(wanted, ensure_ascii=False, indent=2) if keep else ""
        made = Try(secrets.token_urlsafe(9), owner, export, self._clock.now(), text if len(text) <= MAX_INPUT else "")
        self._all[made.id] = made
        made.task = asyncio.get_running_loop().create_task(self._run(made, wanted, timeout))
        self._forget_oldest()
        return made

    async def _run(self, made: Try, wanted: Any, timeout: float | None) -> None:
        try:
            made.result = await self._host.attempt(made.export, wanted, timeout=timeout, on_progress=made.take)
        except asyncio.CancelledError:
            made.cancelled = True
        finally:
            made.ended_at = self._clock.now()

    async def wait(self, made: Try, seconds: float) -> None:
        """Wait for the end of a call, for so many seconds at most. The call continues."""
        if made.task is not None:
            await asyncio.wait({made.task}, timeout=seconds)

    def get(self, owner: object, id: str) -> Try:
        """A call of this session; raises `not_found`."""
        found = self._all.get(id)
        if found is None or found.owner is not owner:
            raise not_found("call", id)
        return found

    def of(self, owner: object, export: str) -> list[Try]:
        """The calls of this export by this session, newest first."""
        return [each for each in reversed(self._all.values()) if each.owner is owner and each.export == export]

    def cancel(self, made: Try) -> None:
        """Cancel a running call; idempotent."""
        if made.task is not None:
            made.task.cancel()

    def _forget_oldest(self) -> None:
        done = [each.id for each in self._all.values() if not each.is_running]
        for id in done[: max(0, len(self._all) - MAX_KEPT)]:
            del self._all[id]
