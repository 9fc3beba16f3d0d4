"""`HealthWatch`: looks after a child that stays: asks it whether it is well, and notices when it is hung.

Collects the facts, sends the probes and keeps the time. Whether a child is hung is decided in `hung`; what happens to
it then is its owner's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from plugbay.host.supervision.hung import Facts, Hung, Rule, TimedOut, judge
from plugbay.link.deadlines import Deadlines
from plugbay.link.link import Link
from plugbay.model.operations import CheckHealth
from plugbay.model.spec import PluginSpec

if TYPE_CHECKING:
    from plugbay.model.operations import Operation

ANSWER_SECONDS = 5.0
"""Within which an idle plugin answers a probe where its contract does not say."""

LEAST_SECONDS = 0.001
"""Between two looks, however exactly the clock of the loop keeps the time that it is told."""

_NAMES = tuple("tool hook method compactor harness screen namespace action kind provider uri prompt".split())
"""Fields by which an operation says which of its kind it is."""


def rule_of(spec: PluginSpec, has_probe: bool) -> Rule:
    """When a plugin with these timeouts is hung."""
    answer = spec.patience.get(CheckHealth.__name__, ANSWER_SECONDS)
    return Rule(has_probe, spec.timeouts.hung, spec.timeouts.call, spec.health_interval, answer)


class HealthWatch:
    """Looks after one child."""

    def __init__(
        self, link: Link, rule: Rule, stopped: Callable[[], bool], hung: Callable[[Hung, Facts], object]
    ) -> None:
        """`stopped`: whether its process is stopped by a signal; `hung`: told once, and then the watch is over."""
        self._link = link
        self._rule = rule
        self._stopped = stopped
        self._hung = hung
        self._loop = asyncio.get_running_loop()
        self._now = link.silence.now
        self._looked = self._asked = self._now()
        self._probes: list[float] = []
        self._probing: asyncio.Task[object] | None = None
        self._taken, self._took = 0, 0.0
        """How much the child had taken at the last look while too much waited for it, and when it last took some."""
        link.silence.on_timeout = self._look
        self._timer = self._loop.call_soon(self._look)

    def stop(self) -> None:
        self._link.silence.on_timeout = None
        self._timer.cancel()
        if self._probing is not None:
            self._probing.cancel()

    def _look(self) -> None:
        self._timer.cancel()
        if self._link.fault is not None:
            return
        facts = self._facts()
        verdict = judge(self._rule, facts)
        if isinstance(verdict, Hung):
            self.stop()
            self._hung(verdict, facts)
            return
        if verdict.probe:
            self._asked = facts.now
            self._probes = [*facts.missed, facts.now]
            self._probing = self._loop.create_task(self._link.call(CheckHealth(), self._rule.patience))
        self._timer = self._loop.call_later(max(verdict.at - facts.now, LEAST_SECONDS), self._look)

    def _facts(self) -> Facts:
        silence, now = self._link.silence, self._now()
        heard, looked, timed_out = silence.heard, self._looked, silence.timed_out
        self._looked = now
        return Facts(
            now=now,
            heard=heard,
            stopped=(heard <= looked or bool(timed_out)) and self._stopped(),
            unread_since=self._unread_since(now),
            owed=self._link.answering,
            working_since=silence.working_since,
            timed_out=tuple(TimedOut(described(call.op), call.sent, call.at) for call in timed_out),
            probes=tuple(self._probes),
            asked=self._asked,
        )

    def _unread_since(self, now: float) -> float | None:
        unread = self._link.unread
        if unread is None:
            return None
        since, taken = unread
        if taken != self._taken:
            self._taken, self._took = taken, now if taken else since
        return max(since, self._took)


def described(op: Operation | None) -> str:
    """A call in words: its kind, and which of them it is."""
    name = next((getattr(op, field) for field in _NAMES if hasattr(op, field)), "")
    return f"{type(op).__name__} {name}".rstrip()


SHOWN_SECONDS = 30.0
"""How long a screen counts as shown after it was last asked for: nobody's picture goes away under their eyes."""


class IdleWatch:
    """Calls `reap` when a child has not been used for `seconds` and is not `needed` either."""

    __slots__ = ("_deadlines", "_needed", "_now", "_reap", "_seconds", "_until")

    def __init__(
        self,
        deadlines: Deadlines,
        now: Callable[[], float],
        seconds: float,
        needed: Callable[[], bool],
        reap: Callable[[], None],
    ) -> None:
        self._deadlines = deadlines
        self._seconds = seconds
        self._needed = needed
        self._reap = reap
        self._now = now
        self._until = now() + seconds
        self._look_in(seconds)

    def used(self) -> None:
        """Somebody used it: its time begins again."""
        until = self._now() + self._seconds
        if until > self._until:
            self._until = until

    def shown(self) -> None:
        """Somebody looks at it: that is a use, and lasts a while however short its time is."""
        self._until = max(self._until, self._now() + max(self._seconds, SHOWN_SECONDS))

    def stop(self) -> None:
        self._deadlines.discard(self)

    def _look_in(self, seconds: float) -> None:
        self._deadlines.add(seconds, self, IdleWatch._look)

    def _look(self) -> None:
        left = self._until - self._now()
        if left > 0:
            self._look_in(left)
        elif self._needed():
            self._look_in(self._seconds)
        else:
            self._reap()
