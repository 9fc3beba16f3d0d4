"""`Silence`: when a peer was last heard, and which calls it has left unanswered since.

Holds facts; whether they mean that a peer is hung is decided elsewhere. Costs a reading of the clock for each read and
each call. That is not the loop's clock: uvloop's has milliseconds, in which a call may be sent and answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from plugbay.model.operations import CheckHealth

if TYPE_CHECKING:
    from plugbay.model.events import CallFinished, CallId
    from plugbay.model.operations import Operation

    Call = tuple[asyncio.Future[CallFinished], float, Operation | None, float]
    """Who waits, until when on the loop's clock, for the answer to what, and when on ours that was sent."""

MOST_SILENT = 2
"""Timed-out calls without one byte from their beginning that are remembered: the first ones tell everything."""

MOST_ABANDONED = 64
"""Abandoned calls that are remembered. The oldest count, so newer ones are left out."""


class Unanswered(NamedTuple):
    """A call that ran into its timeout."""

    op: Operation | None
    sent: float
    at: float
    """When its time was over."""


class Abandoned(NamedTuple):
    """A call whose caller went away before its time was over."""

    sent: float
    at: float
    left: float
    """When the caller went away."""


class Silence:
    """What one link knows about a peer that says nothing. Probes are not calls here."""

    __slots__ = ("_abandoned", "_calls", "_loop_time", "_timed_out", "heard", "now", "on_timeout")

    def __init__(
        self, calls: Mapping[CallId, Call], loop_time: Callable[[], float], now: Callable[[], float] = monotonic
    ) -> None:
        """`calls`: those in flight, in the order in which they were sent."""
        self._calls = calls
        self._loop_time = loop_time
        self._timed_out: list[Unanswered] = []
        self._abandoned: list[Abandoned] = []
        self.now = now
        self.heard = now()
        """When its last byte came."""
        self.on_timeout: Callable[[], None] | None = None
        """Called after calls have run into their timeouts."""

    @property
    def timed_out(self) -> list[Unanswered]:
        """Calls that ran into their timeouts, after which not one byte came: the first of them first.

        The first one is always there, and so are the first two without one byte from their beginning.
        """
        return [call for call in self._timed_out if call.at >= self.heard]

    @property
    def working_since(self) -> float | None:
        """When the oldest call was sent that still has time; None when there is none.

        An abandoned call counts as long as nothing came since: the peer may be at work on it all the same.
        """
        waiting = [call.sent for call in self._still_abandoned()]
        waiting += [sent for _, _, op, sent in self._calls.values() if type(op) is not CheckHealth][:1]
        return min(waiting, default=None)

    def gave_up(self, call: Call) -> None:
        """Nobody waits for this call any more, and it has no answer: its time is over, or its caller went away."""
        _, at, op, sent = call
        if type(op) is CheckHealth:
            return
        now, left = self.now(), at - self._loop_time()
        if left > 0:
            self._abandoned = [*self._still_abandoned(), Abandoned(sent, now + left, now)][:MOST_ABANDONED]
            return
        calls = self.timed_out
        silent = [call for call in calls if call.sent >= self.heard]
        if not calls or (sent >= self.heard and len(silent) < MOST_SILENT):
            self._timed_out = [*calls, Unanswered(op, sent, now)]

    def _still_abandoned(self) -> list[Abandoned]:
        now = self.now()
        return [call for call in self._abandoned if call.at > now and call.left >= self.heard]
