"""`InFlight`: the calls of one link that wait for their answers, each with the moment until which it waits.

One entry among the loop's `Deadlines` stands for all of them, and is looked at when the earliest is due: a call that is
answered in time costs a place in a dictionary and no timer. Refuses to know what an answer is, and what the peer is
told of a call that took too long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from plugbay.link.deadlines import Deadlines
from plugbay.link.silence import Silence
from plugbay.model.events import CallFinished

if TYPE_CHECKING:
    from plugbay.link.silence import Call
    from plugbay.model.events import CallId
    from plugbay.model.operations import Operation

NEVER = float("inf")


class InFlight:
    """Futures by the numbers of their calls."""

    __slots__ = ("_deadlines", "_expired", "_look_at", "_now", "calls", "silence")

    def __init__(self, deadlines: Deadlines, expired: Callable[[CallId], None]) -> None:
        """`expired`: told of a call that is due; it has to `take` or to `extend` it."""
        self._deadlines = deadlines
        self._now = deadlines.now
        self._expired = expired
        self._look_at = NEVER
        """When the deadlines are looked at next; never later than the earliest of them."""
        self.calls: dict[CallId, Call] = {}
        self.silence = Silence(self.calls, deadlines.now)

    def __len__(self) -> int:
        return len(self.calls)

    def __contains__(self, id: CallId) -> bool:
        return id in self.calls

    def add(
        self, id: CallId, future: asyncio.Future[CallFinished], seconds: float, op: Operation | None = None
    ) -> None:
        """From now on the call waits, for so long."""
        at = self._now() + seconds
        self.calls[id] = (future, at, op, monotonic())
        if at < self._look_at:
            self._look_by(at)

    def extend(self, id: CallId, seconds: float) -> None:
        """A call that waits has so long from now on."""
        future, _, op, sent = self.calls[id]
        at = self._now() + seconds
        self.calls[id] = (future, at, op, sent)
        if at < self._look_at:
            self._look_by(at)

    def take(self, id: CallId) -> asyncio.Future[CallFinished] | None:
        """The call waits no more, without an answer; None when it did not wait."""
        call = self.calls.pop(id, None)
        if call is None:
            return None
        self.silence.gave_up(call)
        return call[0]

    def end(self) -> list[tuple[CallId, asyncio.Future[CallFinished]]]:
        """Nobody waits any more, and nothing expires; who waited."""
        left = [(id, future) for id, (future, *_) in self.calls.items()]
        self.calls.clear()
        self._look_at = NEVER
        self._deadlines.discard(self)
        return left

    def _look_by(self, at: float) -> None:
        self._look_at = at
        self._deadlines.add(at - self._now(), self, InFlight._look)

    def _look(self) -> None:
        self._look_at = NEVER
        now = self._now()
        due = sorted((at, number, id) for number, (id, (_, at, *_)) in enumerate(self.calls.items()) if at <= now)
        for _, _, id in due:
            if id in self.calls:
                self._expired(id)
        earliest = min((at for _, at, *_ in self.calls.values()), default=NEVER)
        if earliest < self._look_at:
            self._look_by(earliest)
        if self.silence.on_timeout is not None:
            self.silence.on_timeout()
