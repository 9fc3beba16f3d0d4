"""Whether a call may queue, row by row."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.host.admission import MIN_RETRY_SECONDS, expected_wait, retry_after


@pytest.mark.parametrize(
    ("waiting", "turns", "now", "seconds"),
    [
        (100, [], 5.0, None),  # no turn yet: the pace is unknown
        (0, [10.0], 10.5, 0.5),  # one turn in half a second
        (9, [10.0], 10.5, 5.0),
        (0, [10.0, 10.1, 10.2, 10.3], 10.4, 0.1),
        (9, [10.0, 10.1, 10.2, 10.3], 10.4, 1.0),
        (9, [10.0, 10.1, 10.2, 10.3], 14.0, 10.0),  # the same turns, and none since: the running calls hang
        (9, [10.0], 10.0, 0.0),
        (9, [10.0], 9.0, 0.0),  # a clock that went back
    ],
)
def test_a_call_waits_as_long_as_the_queue_by_its_pace(
    waiting: int, turns: list[float], now: float, seconds: float | None
) -> None:
    assert expected_wait(waiting, turns, now) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("waiting", "patience", "again"),
    [(0, 1.0, None), (8, 1.0, None), (10, 1.0, 1.1), (19, 1.0, 2.0), (10, 2.0, None), (0, 0.0, MIN_RETRY_SECONDS)],
)
def test_a_call_that_would_wait_too_long_returns_when_the_queue_was_served(
    waiting: int, patience: float, again: float | None
) -> None:
    found = retry_after(waiting, [10.0, 10.1, 10.2, 10.3], 10.4, patience)
    assert found == (None if again is None else pytest.approx(again))


@given(
    st.integers(0, 10_000), st.lists(st.floats(0, 1e6), max_size=16).map(sorted), st.floats(0, 1e6), st.floats(0, 1e4)
)
def test_a_refused_call_is_never_told_to_return_before_it_could_have_waited(
    waiting: int, turns: list[float], now: float, patience: float
) -> None:
    again = retry_after(waiting, turns, now, patience)
    assert again is None or (again > patience and again >= MIN_RETRY_SECONDS)
