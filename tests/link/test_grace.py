"""A call is called off once, and only while somebody could hear of it."""

from __future__ import annotations

from plugbay.link.grace import Grace


def test_a_call_that_was_not_asked_yet_cannot_be_called_off() -> None:
    grace = Grace(5)
    assert not grace.asked and not grace.cancel("user_cancelled")
    assert grace.reason == ""


def test_the_peer_is_told_once_whoever_calls_off_first() -> None:
    told: list[str] = []
    grace = Grace(5)
    grace.begin(lambda: told.append(grace.reason))
    assert grace.asked and grace.cancel("user_cancelled")
    assert not grace.cancel("deadline_exceeded")
    assert told == ["user_cancelled"] and grace.reason == "user_cancelled"


def test_nobody_is_told_after_the_answer() -> None:
    told: list[str] = []
    grace = Grace(5)
    grace.begin(lambda: told.append(grace.reason))
    grace.end()
    assert not grace.cancel("user_cancelled")
    assert told == [] and not grace.over
