"""Whether a call may wait for its turn. Decisions on values: the queue and the clock belong to `limits`.

A queue without a bound answers everybody late: beyond its capacity, each further call waits longer than the one before.
So a call with a bound (`patience`) is refused as soon as its wait would be longer, and its caller learns when to retry.
"""

from __future__ import annotations

from collections.abc import Sequence

RECENT_TURNS = 16
"""Turns from which the pace of a queue is taken: several rounds of a few slots, and still the last seconds."""

MIN_RETRY_SECONDS = 0.1
"""A refused call that comes back at once would only be refused again."""


def expected_wait(waiting: int, turns: Sequence[float], now: float) -> float | None:
    """Seconds that a further call would wait behind `waiting` others; None while the pace is unknown.

    `turns` are the moments of the last turns since the queue was empty. By Little's law the wait is the length of the
    queue divided by its pace. The time since the last turn counts too, so calls that hang are noticed.
    """
    if not turns:
        return None
    return (waiting + 1) * max(0.0, now - turns[0]) / len(turns)


def retry_after(waiting: int, turns: Sequence[float], now: float, patience: float) -> float | None:
    """Seconds after which to call again if a further call would wait longer than `patience`; None: it may wait.

    By then the queue as it is now has had its turns.
    """
    wait = expected_wait(waiting, turns, now)
    return None if wait is None or wait <= patience else max(wait, MIN_RETRY_SECONDS)
