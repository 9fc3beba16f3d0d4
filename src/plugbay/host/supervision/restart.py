"""Decides whether and when a failed plugin is started again; the supervisor acts.

Pure: the clock and the jitter come in as numbers, so every row of the decision is a row of a test table.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from plugbay.model.errors import PASSING, Failure, Origin
from plugbay.model.spec import RestartPolicy

SHORTAGE_SECONDS = 1.0
"""Until a plugin that restarts by itself is started again after a shortage of the host; a call starts it at once."""

MAX_DOUBLINGS = 64
"""More than any `longest_delay` needs; prevents a float overflow with large failure counts."""


class Restart(msgspec.Struct, frozen=True):
    """Start again, this many seconds from now."""

    after: float


class Quarantine(msgspec.Struct, frozen=True):
    """Do not start it again; only an explicit reload does."""

    failures: int


def is_shortage(failure: Failure) -> bool:
    """Whether a start failed because host or machine lack descriptors, processes or memory: the plugin did nothing
    wrong, so the failure does not count.
    """
    return failure.origin == Origin.SYSTEM and failure.detail.get("errno") in PASSING


def recent_failures(failures: Sequence[float], last_start: float, now: float, policy: RestartPolicy) -> list[float]:
    """The failures that still count at `now`, given that the run that just ended began at `last_start`."""
    if now - last_start >= policy.healthy_after:
        return []
    return [at for at in failures if now - at <= policy.window]


def next_action(failures: Sequence[float], now: float, policy: RestartPolicy, jitter: float) -> Restart | Quarantine:
    """The action after a failure at `now`. `failures` holds the times that count, the newest included.

    `jitter` is a number from 0 to 1; 0.5 means exactly the nominal delay.
    """
    recent = [at for at in failures if now - at <= policy.window]
    if len(recent) > policy.failures:
        return Quarantine(len(recent))
    nominal = policy.first_delay * policy.factor ** min(max(len(recent) - 1, 0), MAX_DOUBLINGS)
    spread = 1 + policy.jitter * (2 * jitter - 1)
    return Restart(min(nominal * spread, policy.longest_delay))
