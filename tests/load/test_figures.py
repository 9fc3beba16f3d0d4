"""Figures: nearest-rank percentiles, and a table of them."""

from __future__ import annotations

import pytest

from tests.load.figures import Figures, percentile


@pytest.mark.parametrize(("share", "value"), [(0.0, 1.0), (0.5, 2.0), (0.75, 3.0), (0.99, 4.0), (1.0, 4.0)])
def test_a_percentile_is_one_of_the_values(share: float, value: float) -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], share) == value
    assert percentile([], share) == 0.0


def test_a_table_has_a_line_for_each_figure() -> None:
    figures = Figures("a load", {"one": {"seconds": 1234.5}, "two": {"count": 1}}, ["bad"])
    title, *lines = figures.table().splitlines()
    assert title == "a load" and [line.split() for line in lines] == [
        ["one", "seconds", "1,234.500"],
        ["two", "count", "1.000"],
    ]
    assert figures.to_json()["problems"] == ["bad"]
