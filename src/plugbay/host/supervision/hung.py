"""Decides whether a running plugin hangs. Pure; `health` collects the facts and acts.

The rule is progress: a plugin that sends a byte does not hang, nor does one that may still work on an older call within
its timeout, or that waits for an answer of the host. Newer calls change nothing. All times are seconds of one clock.
"""

from __future__ import annotations

import msgspec

CHECK_SECONDS = 5.0
"""Interval of checks if nothing is due earlier: how long a stopped process may stay unnoticed."""

UNREAD_SECONDS = 10.0
"""How long a plugin may leave so many answers unread that the host has stopped reading from it. Usually both sides then
wait for each other to read, for ever."""

PROBES = 2
"""Consecutive unanswered probes after which an idle plugin counts as hung."""

CALLS = 2
"""Consecutive timed-out calls after which a plugin without probes counts as hung."""


class Rule(msgspec.Struct, frozen=True):
    """The limits of one plugin."""

    has_probe: bool
    """Whether its contract has a health request."""
    patience: float = 30.0
    """Allowed silence after the probe that follows a timeout; without probes, the minimum silence of a hung plugin."""
    call: float = 30.0
    """Its call timeout. A caller with a shorter deadline gives up earlier, which is no sign of a hung plugin."""
    interval: float | None = None
    """Interval of probes; None: probes are sent only after a timeout."""
    answer: float = 5.0
    """Time for an idle plugin to answer a probe."""


class TimedOut(msgspec.Struct, frozen=True):
    """A call that ran into its timeout."""

    call: str
    sent: float
    at: float
    """When it timed out."""

    def __str__(self) -> str:
        return f"{self.call} was not answered within {self.at - self.sent:.3g} s"


class Facts(msgspec.Struct, frozen=True):
    """The state of a plugin at one moment."""

    now: float
    heard: float
    """When its last byte came."""
    stopped: bool = False
    """Whether its process is stopped by a signal: state T."""
    unread_since: float | None = None
    """Since when it has read nothing, while too many unread answers keep the host from reading its output."""
    owed: int = 0
    """Its own requests that the host has not answered yet."""
    working_since: float | None = None
    """When the oldest call within its timeout was sent, probes aside."""
    timed_out: tuple[TimedOut, ...] = ()
    """Timed-out calls, oldest first."""
    probes: tuple[float, ...] = ()
    """When probes were sent."""
    asked: float = 0.0
    """When it was last probed, or started."""

    @property
    def silence(self) -> float:
        return self.now - self.heard

    @property
    def missed(self) -> tuple[float, ...]:
        """The probes since its last byte."""
        return tuple(sent for sent in self.probes if sent >= self.heard)

    def may_be_busy(self, sent: float) -> bool:
        """Whether a message sent at that time may wait behind a call that is still within its timeout."""
        return self.working_since is not None and self.working_since <= sent


class Hung(msgspec.Struct, frozen=True):
    """It hangs, and why."""

    why: str


class CheckAgain(msgspec.Struct, frozen=True):
    """It does not hang, or not yet: check again at this time, and send a probe now if `probe` is set."""

    at: float
    probe: bool = False


def assess(rule: Rule, facts: Facts) -> Hung | CheckAgain:
    """Whether the plugin hangs now; if not, when to check again and whether to probe."""
    silent = f"it sent nothing for {facts.silence:.3g} s"
    if facts.stopped:
        return Hung(f"its process is stopped (state T); {silent}")
    if facts.unread_since is not None and facts.now >= facts.unread_since + UNREAD_SECONDS:
        return Hung(f"it has not read the answers to its own requests for {facts.now - facts.unread_since:.3g} s")
    if facts.owed:
        return _check_again(facts)
    why = _by_probes(rule, facts) if rule.has_probe else _by_calls(rule, facts)
    return Hung(f"{why}; {silent}") if isinstance(why, str) else why


def _by_calls(rule: Rule, facts: Facts) -> str | CheckAgain:
    silent = [call for call in facts.timed_out if call.sent >= facts.heard][:CALLS]
    if len(silent) < CALLS:
        return _check_again(facts)
    due = min(call.sent for call in silent) + min(rule.patience, rule.call)
    if facts.now < due or facts.may_be_busy(max(call.sent for call in silent)):
        return _check_again(facts, due)
    return ", and ".join(map(str, silent))


def _by_probes(rule: Rule, facts: Facts) -> str | CheckAgain:
    missed = [sent for sent in facts.missed if facts.now >= sent + rule.answer and not facts.may_be_busy(sent)]
    if len(missed) >= PROBES:
        return f"{len(missed)} probes in a row were not answered, the first for {facts.now - missed[0]:.3g} s"
    overdue = next((call for call in facts.timed_out if call.at >= facts.heard), None)
    if overdue is None:
        return _at_interval(rule, facts)
    since = next((sent for sent in facts.missed if sent >= overdue.at), None)
    if since is None:
        return CheckAgain(facts.now + min(rule.patience, CHECK_SECONDS), probe=True)
    if facts.now < since + rule.patience or facts.may_be_busy(since):
        return _check_again(facts, since + rule.patience)
    return f"{overdue}, and neither was a later probe within {facts.now - since:.3g} s"


def _at_interval(rule: Rule, facts: Facts) -> CheckAgain:
    """Probe at the interval, also a busy plugin, but never before the time for the last answer is over."""
    waits_until = facts.missed[-1] + rule.answer if facts.missed else facts.now
    if rule.interval is None:
        return _check_again(facts, waits_until)
    due = max(facts.asked + rule.interval, waits_until)
    if facts.now >= due:
        return CheckAgain(facts.now + min(rule.answer, rule.interval, CHECK_SECONDS), probe=True)
    return _check_again(facts, due, waits_until)


def _check_again(facts: Facts, *due: float) -> CheckAgain:
    """Check at the usual interval, or earlier if something is due."""
    unread = facts.now if facts.unread_since is None else facts.unread_since + UNREAD_SECONDS
    return CheckAgain(min(at for at in (*due, unread, facts.now + CHECK_SECONDS) if at > facts.now))
