"""Watches over a resident instance: `HealthWatch` notices when it hangs, `IdleWatch` when it has been idle for long.

Both only report; the supervisor acts. `hung` decides whether an instance hangs, from the facts that `HealthWatch`
collects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from plugbay.host.supervision.hung import Facts, Hung, Rule, TimedOut, assess
from plugbay.link.deadlines import Deadlines
from plugbay.link.link import Link
from plugbay.model.operations import CheckHealth
from plugbay.model.spec import PluginSpec

if TYPE_CHECKING:
    from plugbay.model.operations import Operation

ANSWER_SECONDS = 5.0
"""Time for an idle plugin to answer a probe if its contract gives none."""

LEAST_SECONDS = 0.001
"""Minimum between two checks, because timers of the loop may fire slightly early."""

_NAMES = tuple("tool hook method compactor harness screen namespace action kind provider uri prompt".split())
"""The fields that name the target of an operation."""


def rule_of(spec: PluginSpec, has_probe: bool) -> Rule:
    """The rule by which a plugin with these timeouts counts as hung."""
    answer = spec.patience.get(CheckHealth.__name__, ANSWER_SECONDS)
    return Rule(has_probe, spec.timeouts.hung, spec.timeouts.call, spec.health_interval, answer)


class HealthWatch:
    """Detects that one instance hangs, and sends its health probes."""

    def __init__(
        self, link: Link, rule: Rule, stopped: Callable[[], bool], hung: Callable[[Hung, Facts], object]
    ) -> None:
        """`stopped`: whether its process is stopped by a signal; `hung`: called once, which ends the watch."""
        self._link = link
        self._rule = rule
        self._stopped = stopped
        self._hung = hung
        self._loop = asyncio.get_running_loop()
        self._now = link.silence.now
        self._checked = self._asked = self._now()
        self._probes: list[float] = []
        self._probing: asyncio.Task[object] | None = None
        self._read_bytes, self._read_at = 0, 0.0
        """Bytes read by the plugin at the last check of a full queue, and when it last read some."""
        link.silence.on_timeout = self._check
        self._timer = self._loop.call_soon(self._check)

    def stop(self) -> None:
        self._link.silence.on_timeout = None
        self._timer.cancel()
        if self._probing is not None:
            self._probing.cancel()

    def _check(self) -> None:
        self._timer.cancel()
        if self._link.fault is not None:
            return
        facts = self._facts()
        verdict = assess(self._rule, facts)
        if isinstance(verdict, Hung):
            self.stop()
            self._hung(verdict, facts)
            return
        if verdict.probe:
            self._asked = facts.now
            self._probes = [*facts.missed, facts.now]
            self._probing = self._loop.create_task(self._link.call(CheckHealth(), self._rule.patience))
        self._timer = self._loop.call_later(max(verdict.at - facts.now, LEAST_SECONDS), self._check)

    def _facts(self) -> Facts:
        silence, now = self._link.silence, self._now()
        heard, checked, timed_out = silence.heard, self._checked, silence.timed_out
        self._checked = now
        return Facts(
            now=now,
            heard=heard,
            stopped=(heard <= checked or bool(timed_out)) and self._stopped(),
            unread_since=self._unread_since(now),
            owed=self._link.answering,
            working_since=silence.working_since,
            timed_out=tuple(TimedOut(describe(call.op), call.sent, call.at) for call in timed_out),
            probes=tuple(self._probes),
            asked=self._asked,
        )

    def _unread_since(self, now: float) -> float | None:
        unread = self._link.unread
        if unread is None:
            return None
        since, taken = unread
        if taken != self._read_bytes:
            self._read_bytes, self._read_at = taken, now if taken else since
        return max(since, self._read_at)


def describe(op: Operation | None) -> str:
    """The kind and the target of an operation, for messages."""
    name = next((getattr(op, field) for field in _NAMES if hasattr(op, field)), "")
    return f"{type(op).__name__} {name}".rstrip()


SHOWN_SECONDS = 30.0
"""How long a screen counts as shown after its last rendering, so that it does not vanish while a user looks at it."""


class IdleWatch:
    """Calls `reap` when an instance has not been used for `seconds` and is not `needed`.

    One deadline, which use moves; it is checked only when it is due, so `touch` costs next to nothing per call.
    """

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
        self._check_in(seconds)

    def touch(self) -> None:
        """Restart the idle time: the instance was used."""
        until = self._now() + self._seconds
        if until > self._until:
            self._until = until

    def mark_shown(self) -> None:
        """Count a shown screen as use, for at least `SHOWN_SECONDS`."""
        self._until = max(self._until, self._now() + max(self._seconds, SHOWN_SECONDS))

    def stop(self) -> None:
        self._deadlines.discard(self)

    def _check_in(self, seconds: float) -> None:
        self._deadlines.add(seconds, self, IdleWatch._check)

    def _check(self) -> None:
        left = self._until - self._now()
        if left > 0:
            self._check_in(left)
        elif self._needed():
            self._check_in(self._seconds)
        else:
            self._reap()
