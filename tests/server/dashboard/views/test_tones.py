"""Tones of badges."""

from __future__ import annotations

import pytest

from plugbay.server.dashboard.views.tones import BAD, CALM, GOOD, OFF, RANKS, WARN
from tests.server.dashboard.test_rendering import FOLDER


def test_problems_rank_first_and_what_is_off_last() -> None:
    assert sorted((OFF, GOOD, WARN, BAD), key=RANKS.__getitem__) == [BAD, WARN, GOOD, OFF]
    assert RANKS[CALM] == RANKS[GOOD]


@pytest.mark.parametrize("tone", [BAD, WARN, GOOD, OFF])
def test_the_stylesheet_has_each_tone(tone: str) -> None:
    assert f".badge.{tone} " in (FOLDER / "static/style.css").read_text()
