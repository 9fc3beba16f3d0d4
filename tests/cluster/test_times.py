"""The times of a cell fit each other."""

from __future__ import annotations

import pytest

from plugbay.cluster.times import USUAL, Times

ANY = pytest.mark.parametrize("times", [USUAL, Times.of(0.2, 2.0), Times.of(10.0, 40.0), Times.of(1.0, 600.0)])


def test_the_usual_times_are_those_of_the_default_settings() -> None:
    assert Times.of(1.0, 15.0) == USUAL


@ANY
def test_a_node_refuses_late_calls_before_gateways_give_them_to_others(times: Times) -> None:
    assert times.stalled < times.silent < times.lost


@ANY
def test_some_lost_beats_make_no_node_silent(times: Times) -> None:
    assert times.silent > 3 * times.beat * 1.1


@ANY
def test_answers_are_kept_until_their_calls_are_lost(times: Times) -> None:
    assert times.kept > times.lost > 2 * times.roll
