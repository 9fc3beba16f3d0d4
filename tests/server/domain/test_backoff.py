"""When a delivery is tried again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.server.domain import backoff
from tests.support.requirements import requirement


@requirement("vai:control-delivery-backoff")
def test_pauses_double_from_one_second_to_five_minutes() -> None:
    assert [backoff.pause(attempts, 1.0) for attempts in range(1, 12)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


@given(attempts=st.integers(1, 10_000), chance=st.floats(0, 1))
def test_chance_takes_at_most_half_of_a_pause(attempts: int, chance: float) -> None:
    whole = backoff.pause(attempts, 1.0)
    assert whole / 2 <= backoff.pause(attempts, chance) <= whole <= backoff.LONGEST


@pytest.mark.parametrize(("wished", "pause"), [(0.1, 1.0), (30.0, 30.0), (9_999.0, 300.0)])
def test_a_hook_may_wish_for_a_longer_pause_but_not_for_ever(wished: float, pause: float) -> None:
    assert backoff.pause(1, 1.0, wished) == pause
