"""The token bucket, row by row."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.host.rate import TokenBucket
from tests.support.requirements import requirement


@pytest.mark.parametrize(
    ("rate", "burst", "times", "passed"),
    [
        (1, 3, [0, 0, 0, 0], [True, True, True, False]),
        (2, 1, [0, 0.25, 0.5, 0.75, 1.0], [True, False, True, False, True]),
        (1, 2, [0, 0, 0, 100, 100, 100], [True, True, False, True, True, False]),
        (1, 2, [10, 5, 5, 10.5, 11], [True, True, False, False, True]),
        (1, 1, [-5, -4.5, -4], [True, False, True]),
        (0.5, 1, [0, 1, 2], [True, False, True]),
    ],
    ids=["a burst", "a steady rate", "it fills to the burst", "a clock that goes back", "any clock", "a slow rate"],
)
def test_what_passes(rate: float, burst: float, times: list[float], passed: list[bool]) -> None:
    bucket = TokenBucket(rate, burst)
    assert [bucket.take(at) for at in times] == passed


@requirement("kaged:host-notification-rate")
def test_a_hundred_a_second_pass_and_the_next_does_not() -> None:
    bucket = TokenBucket(100, 100)
    assert [bucket.take(7.0) for _ in range(101)] == [True] * 100 + [False]
    assert [bucket.take(8.0) for _ in range(101)] == [True] * 100 + [False]


@given(
    st.floats(0.01, 1000),
    st.floats(1, 200),
    st.lists(st.floats(0, 10, allow_subnormal=False), max_size=300).map(sorted),
)
def test_never_more_pass_than_the_burst_and_the_rate_since(rate: float, burst: float, times: list[float]) -> None:
    bucket = TokenBucket(rate, burst)
    passed = [at for at in times if bucket.take(at)]
    for first in range(len(passed)):
        for last in range(first, len(passed)):
            assert last - first + 1 <= burst + rate * (passed[last] - passed[first]) + 1e-6


@given(st.integers(1, 100), st.integers(1, 50))
def test_whoever_keeps_to_the_rate_is_never_stopped(rate: int, count: int) -> None:
    bucket = TokenBucket(rate, 2)
    assert all(bucket.take(number / rate) for number in range(count))


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (-1, 1), (1, 0.5)])
def test_a_bucket_that_lets_nothing_through_is_refused(rate: float, burst: float) -> None:
    with pytest.raises(ValueError, match="nothing ever passes"):
        TokenBucket(rate, burst)
