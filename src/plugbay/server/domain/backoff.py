"""When a delivery that did not work out is tried again. Pure: chance is passed in."""

from __future__ import annotations

FIRST = 1.0
LONGEST = 300.0
"""Seconds before the second attempt, doubled before each further one, and never more than five minutes."""

ATTEMPTS = 8
"""In all: the last comes about two minutes after the first, longer where a hook says so itself."""

INTERRUPTIONS = 20
"""Attempts that end with their server, because it was killed or stopped before the hook answered. They do not count as
failures; but an event whose telling ends the server each time must not be told for ever."""

JITTER = 0.5
"""The share of the pause that is left to chance, so that what failed together is not tried again together."""


def pause(attempts: int, chance: float, wished: float | None = None) -> float:
    """Seconds until the next attempt after `attempts` of them. `chance` is from 0 to 1; `wished` is the hook's word."""
    doubled = min(FIRST * 2.0 ** min(attempts - 1, 32), LONGEST)
    waited = doubled * (1.0 - JITTER + JITTER * chance)
    return waited if wished is None else min(max(waited, wished), LONGEST)
