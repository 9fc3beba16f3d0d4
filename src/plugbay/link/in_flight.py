"""`InFlight`: the calls of one link that wait for an answer. `Silence`: facts about a mute peer. `Grace`: late answers.

One entry in the loop's `Deadlines` stands for all calls and fires at the earliest deadline, so a call that is answered
in time costs a dictionary entry and no timer. `Silence` holds facts only; `host/supervision/hung.py` decides. It reads
`monotonic`, not the loop's clock: uvloop's counts milliseconds, in which a call may be sent and answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from plugbay.link.deadlines import Deadlines
from plugbay.model.errors import Code, Failure
from plugbay.model.events import CallFinished
from plugbay.model.operations import CheckHealth

if TYPE_CHECKING:
    from plugbay.model.events import CallId
    from plugbay.model.operations import Operation

    Call = tuple[asyncio.Future[CallFinished], float, Operation | None, float]
    """The future, its deadline on the loop's clock, the operation, and when it was sent on `monotonic`."""


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
    """A call whose caller left before its time was over."""

    sent: float
    at: float
    left: float
    """When the caller left."""


class Silence:
    """Facts about a peer that sends nothing. Probes do not count as calls."""

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
        """A call ended without an answer: its time is over, or its caller left."""
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


NEVER = float("inf")


class InFlight:
    """Futures by the numbers of their calls."""

    __slots__ = ("_deadlines", "_expired", "_look_at", "_now", "calls", "silence")

    def __init__(self, deadlines: Deadlines, expired: Callable[[CallId], None]) -> None:
        """`expired` is called with each due call; it has to `take` or to `extend` it."""
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

    def latest(self) -> float | None:
        """The latest deadline, without those of probes; None: nothing waits."""
        return max((at for _, at, op, _ in self.calls.values() if type(op) is not CheckHealth), default=None)

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

    def end(self) -> list[tuple[CallId, asyncio.Future[CallFinished], float]]:
        """End all calls, without expiry; returns the waiting futures, and when each call was sent."""
        left = [(id, future, sent) for id, (future, _, _, sent) in self.calls.items()]
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


DEADLINE = "deadline_exceeded"
"""The reason that the link itself gives."""


class Grace:
    """The cancellation of one call. For one call only."""

    __slots__ = ("_tell", "over", "reason", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._tell: Callable[[], None] | None = None
        self.reason = ""
        """The reason sent to the peer; empty while the call is not cancelled."""
        self.over = False
        """Whether the time went by without an answer."""

    @property
    def asked(self) -> bool:
        """Whether the peer has been asked and has not answered yet."""
        return self._tell is not None

    def cancel(self, reason: str) -> bool:
        """Send the cancellation; False if there is none to send: not asked yet, answered, or sent already."""
        if self._tell is None or self.reason:
            return False
        self.reason = reason
        self._tell()
        return True

    # For the link.

    def begin(self, tell: Callable[[], None]) -> None:
        self._tell = tell

    def end(self) -> None:
        self._tell = None

    def ignored(self) -> Failure:
        """The time went by without an answer."""
        self.over = True
        text = f"it was asked to stop ({self.reason}) and did not answer within {self.seconds:g} s"
        return Failure(Code.TIMEOUT if self.reason == DEADLINE else Code.CANCELLED, text)
