"""A holder stops before another process may begin."""

from __future__ import annotations

import pytest

from plugbay.model.tenure import Standing, Tenure


@pytest.mark.parametrize(
    ("gone", "standing"),
    [
        (0.0, Standing.HELD),
        (19.9, Standing.HELD),
        (20.0, Standing.UNCERTAIN),
        (24.9, Standing.UNCERTAIN),
        (25.0, Standing.OVER),
        (3600.0, Standing.OVER),
    ],
)
def test_a_holder_stops_before_another_process_may_begin(gone: float, standing: Standing) -> None:
    assert Tenure(1_000.0, 30.0).standing(1_000.0 + gone) is standing


def test_nothing_is_done_for_a_lease_after_five_sixths_of_it() -> None:
    tenure = Tenure(1_000.0, 30.0)
    assert tenure.over_at == 1_025.0
    assert tenure.standing(tenure.over_at) is Standing.OVER
