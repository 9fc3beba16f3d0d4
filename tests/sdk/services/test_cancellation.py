"""Stopping what is being done: asked for, or by the clock."""

from __future__ import annotations

import asyncio
from threading import Thread
from time import monotonic

import pytest

from plugbay.sdk import Cancelled
from plugbay.sdk.services.cancellation import DEADLINE, DEADLINE_CODE, Cancellation, cancelled_error
from tests.support.requirements import requirement

FAR = 1e12
"""Seconds; more than a lock can wait for."""


def test_only_the_first_reason_counts_and_every_callback_runs_once() -> None:
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
    cancellation, told = Cancellation(monotonic() - 1), []
    cancellation.then(lambda: told.append(1))
    cancellation.end()
    cancellation.cancel("too late")
    assert (cancellation.why, told) == ("", [])
    cancellation.check()


@requirement("vai:sdk-deadline")
def test_a_deadline_that_has_passed_counts_as_cancelled() -> None:
    cancellation, told = Cancellation(monotonic() - 1), []
    cancellation.then(lambda: told.append(1))
    assert (cancellation.remaining(), cancellation.why, told) == (0.0, DEADLINE, [1])
    with pytest.raises(Cancelled) as caught:
        cancellation.check()
    assert caught.value.code == DEADLINE_CODE


@requirement("vai:sdk-deadline")
def test_waiting_ends_at_the_deadline_and_not_before_it() -> None:
    cancellation = Cancellation(monotonic() + 0.05)
    assert not cancellation.wait(0)
    assert cancellation.wait(FAR)
    assert cancellation.why == DEADLINE


def test_a_deadline_may_be_farther_than_a_lock_can_wait() -> None:
    cancellation = Cancellation(monotonic() + FAR)
    assert not cancellation.wait(0.01)
    waiting = Thread(target=cancellation.wait, args=(FAR,))
    waiting.start()
    cancellation.cancel("enough")
    waiting.join()
    assert cancellation.remaining() or FAR / 2 < 0


def test_without_a_deadline_there_is_as_much_time_as_one_likes() -> None:
    assert Cancellation().remaining() is None


def test_the_end_of_a_task_is_what_was_asked_for_or_a_bug() -> None:
    cancellation, ended, bug = Cancellation(), asyncio.CancelledError(), RuntimeError()
    assert cancellation.meant(ended) is ended
    cancellation.cancel("why")
    assert (str(cancellation.meant(ended)), cancellation.meant(bug)) == ("why", bug)
    assert isinstance(cancelled_error("why"), Cancelled)
