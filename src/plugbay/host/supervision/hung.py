"""Whether a plugin that runs is hung. Decides with values; `health` collects them and acts.

Pure. The rule is about progress: a plugin from which one byte comes is not hung, nor is one that may still be at work
on an older call within its timeout, or that waits for an answer of the host. Newer calls change nothing. Times are
seconds on one clock.
"""

from __future__ import annotations

from dataclasses import dataclass

LOOK_SECONDS = 5.0
"""Between two looks at a plugin of which nothing else is due: how long a stopped process stays unnoticed."""

UNREAD_SECONDS = 10.0
"""How long a plugin may leave so many answers to its own requests unread that the host has stopped reading it. Most
often it waits for the host to read, and so waits for ever."""

PROBES = 2
"""Unanswered probes in a row that make an idle plugin hung."""

CALLS = 2
"""Calls in a row that ran into their timeouts, which make a plugin hung whose contract has no probe."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What holds for one plugin."""

    has_probe: bool
    """Whether its contract has a question about its health."""
    patience: float = 30.0
    """Silence after a probe that follows a timeout; without a probe, the least silence that makes it hung."""
    call: float = 30.0
    """Its timeout for a call. A caller with less time gives up earlier, which is no sign of a hung plugin."""
    interval: float | None = None
    """Between two probes of an idle plugin; None: it is asked only after a timeout."""
    answer: float = 5.0
    """Within which an idle plugin answers a probe."""


@dataclass(frozen=True, slots=True)
class TimedOut:
    """A call that ran into its timeout."""

    call: str
    sent: float
    at: float
    """When its time was over."""

    def __str__(self) -> str:
        return f"{self.call} was not answered within {self.at - self.sent:.3g} s"


@dataclass(frozen=True, slots=True)
class Facts:
    """A plugin as its host sees it at one moment."""

    now: float
    heard: float
    """When its last byte came."""
    stopped: bool = False
    """Whether its process is stopped by a signal: state T."""
    unread_since: float | None = None
    """Since when it has read nothing, while the host does not read it because too many answers wait for it."""
    owed: int = 0
    """Requests of its own that the host is answering."""
    working_since: float | None = None
    """When the oldest call was sent that is still within its timeout, probes aside."""
    timed_out: tuple[TimedOut, ...] = ()
    """Calls that ran into their timeouts, the first of them first."""
    probes: tuple[float, ...] = ()
    """When probes were sent."""
    asked: float = 0.0
    """When it was last asked, or started."""

    @property
    def silence(self) -> float:
        return self.now - self.heard

    @property
    def missed(self) -> tuple[float, ...]:
        """The probes after which not one byte came."""
        return tuple(sent for sent in self.probes if sent >= self.heard)

    def may_be_busy(self, sent: float) -> bool:
        """Whether what was sent then may wait behind a call that still has time."""
        return self.working_since is not None and self.working_since <= sent


@dataclass(frozen=True, slots=True)
class Hung:
    """It is hung, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class Look:
    """It is not, or not yet: look again then, and send it a probe now if that is said."""

    at: float
    probe: bool = False


def judge(rule: Rule, facts: Facts) -> Hung | Look:
    """Whether the plugin is hung now; if not, what to do and when to ask again."""
    silent = f"not one byte came from it for {facts.silence:.3g} s"
    if facts.stopped:
        return Hung(f"its process is stopped (state T); {silent}")
    if facts.unread_since is not None and facts.now >= facts.unread_since + UNREAD_SECONDS:
        return Hung(f"it has read none of the answers to its own requests for {facts.now - facts.unread_since:.3g} s")
    if facts.owed:
        return _look(facts)
    why = _by_probes(rule, facts) if rule.has_probe else _by_calls(rule, facts)
    return Hung(f"{why}; {silent}") if isinstance(why, str) else why


def _by_calls(rule: Rule, facts: Facts) -> str | Look:
    silent = [call for call in facts.timed_out if call.sent >= facts.heard][:CALLS]
    if len(silent) < CALLS:
        return _look(facts)
    due = min(call.sent for call in silent) + min(rule.patience, rule.call)
    if facts.now < due or facts.may_be_busy(max(call.sent for call in silent)):
        return _look(facts, due)
    return ", and ".join(map(str, silent))


def _by_probes(rule: Rule, facts: Facts) -> str | Look:
    missed = [sent for sent in facts.missed if facts.now >= sent + rule.answer and not facts.may_be_busy(sent)]
    if len(missed) >= PROBES:
        return f"{len(missed)} probes in a row were not answered, the first in {facts.now - missed[0]:.3g} s"
    overdue = next((call for call in facts.timed_out if call.at >= facts.heard), None)
    if overdue is None:
        return _idle(rule, facts)
    since = next((sent for sent in facts.missed if sent >= overdue.at), None)
    if since is None:
        return Look(facts.now + min(rule.patience, LOOK_SECONDS), probe=True)
    if facts.now < since + rule.patience or facts.may_be_busy(since):
        return _look(facts, since + rule.patience)
    return f"{overdue}, and a probe after that not within {facts.now - since:.3g} s"


def _idle(rule: Rule, facts: Facts) -> Look:
    """An idle plugin is asked at its interval, and again only when the time for its last answer is over."""
    waits_until = facts.missed[-1] + rule.answer if facts.missed else facts.now
    if rule.interval is None or facts.working_since is not None:
        return _look(facts, waits_until)
    due = max(facts.asked + rule.interval, waits_until)
    if facts.now >= due:
        return Look(facts.now + min(rule.answer, rule.interval, LOOK_SECONDS), probe=True)
    return _look(facts, due, waits_until)


def _look(facts: Facts, *due: float) -> Look:
    """Again at the usual time, or when something is due before."""
    unread = facts.now if facts.unread_since is None else facts.unread_since + UNREAD_SECONDS
    return Look(min(at for at in (*due, unread, facts.now + LOOK_SECONDS) if at > facts.now))
