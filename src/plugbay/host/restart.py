"""Whether and when a plugin that failed is started again. Decides with values; the supervisor acts.

Pure: the clock and the jitter come in as numbers, so every row of the decision is a row of a test table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How patient to be. Contracts bring their own numbers; these are for those that leave it open."""

    first_delay: float = 0.1
    factor: float = 2.0
    longest_delay: float = 60.0
    jitter: float = 0.1
    """The delay varies by this fraction either way, so a fleet does not restart in step."""
    failures: int = 5
    window: float = 60.0
    """More than `failures` within `window` seconds → quarantine."""
    healthy_after: float = 600.0
    """A run this long forgets earlier failures."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Start again, this many seconds from now."""

    after: float


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Stop trying; only an explicit reload brings the plugin back."""

    failures: int


def remembered(failures: Sequence[float], last_start: float, now: float, policy: RestartPolicy) -> list[float]:
    """The failures that still count at `now`, given that the run that just ended began at `last_start`."""
    if now - last_start >= policy.healthy_after:
        return []
    return [at for at in failures if now - at <= policy.window]


def next_action(failures: Sequence[float], now: float, policy: RestartPolicy, jitter: float) -> Restart | Quarantine:
    """What to do after a failure at `now`. `failures` holds the times that count, the newest included.

    `jitter` is a number from 0 to 1; 0.5 means exactly the nominal delay.
    """
    recent = [at for at in failures if now - at <= policy.window]
    if len(recent) > policy.failures:
        return Quarantine(len(recent))
    nominal = policy.first_delay * policy.factor ** max(len(recent) - 1, 0)
    spread = 1 + policy.jitter * (2 * jitter - 1)
    return Restart(min(nominal * spread, policy.longest_delay))
