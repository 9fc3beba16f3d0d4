"""Stopping what is being done: asked for, or by the clock."""

from __future__ import annotations

from time import monotonic

import pytest

from plugbay.sdk import Cancelled
from plugbay.sdk.cancelling import DEADLINE, KEPT, Cancellation, Deadlines
from tests.support.requirements import requirement

FAR = 1e12
"""Seconds; more than a lock can wait for."""


def test_only_the_first_reason_counts_and_everybody_is_told_once() -> None:
    cancellation, told = Cancellation(), []
    cancellation.then(lambda: told.append("before"))
    cancellation.check()
    assert not cancellation.wait(0)
    cancellation.cancel("first")
    cancellation.cancel("second")
    cancellation.then(lambda: told.append("after"))
    assert (cancellation.why, told) == ("first", ["before", "after"])
    assert cancellation.wait(0)
    assert cancellation.wait(0)  # for whoever else waits
    with pytest.raises(Cancelled, match="first"):
        cancellation.check()


def test_what_is_over_cannot_be_cancelled() -> None:
    cancellation, told = Cancellation(), []
    cancellation.then(lambda: told.append(1))
    cancellation.end()
    cancellation.cancel("too late")
    assert (cancellation.why, told) == ("", [])
    cancellation.check()


@requirement("vai:sdk-deadline")
def test_deadlines_come_in_their_own_order_whatever_the_order_they_are_told_in() -> None:
    deadlines, order = Deadlines(), []
    now = monotonic()
    last, first, never = Cancellation(), Cancellation(), Cancellation()
    last.then(lambda: order.append("last"))
    first.then(lambda: order.append("first"))
    deadlines.add(now + FAR, never)
    deadlines.add(now + 0.2, last)
    deadlines.add(now + 0.1, first)
    assert last.wait(30)
    assert (order, first.why, never.why) == (["first", "last"], DEADLINE, "")


@requirement("vai:sdk-deadline")
def test_what_is_due_already_is_cancelled_at_once_and_twins_are_told_apart() -> None:
    deadlines, twins = Deadlines(), [Cancellation(), Cancellation()]
    at = monotonic() - 1
    for twin in twins:
        deadlines.add(at, twin)
    assert all(twin.wait(30) for twin in twins)


def test_deadlines_of_what_has_ended_are_let_go_of() -> None:
    deadlines, open_one = Deadlines(), Cancellation()
    deadlines.add(monotonic() + FAR, open_one)
    for _ in range(10 * KEPT):
        ended = Cancellation()
        deadlines.add(monotonic() + FAR, ended)
        ended.end()
        assert len(deadlines._waiting) <= KEPT + 1
    assert open_one in [entry[2] for entry in deadlines._waiting]
