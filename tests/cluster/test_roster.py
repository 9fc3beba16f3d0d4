"""The roster knows from beats alone which nodes take calls, and which calls are lost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.cluster.envelope import Beat
from plugbay.cluster.roster import AVOIDED, FORGET_AFTER, INCOMPATIBLE, RETURNING, SILENT, Roster
from plugbay.cluster.times import USUAL
from tests.cluster.test_envelope import ID, beat
from tests.support.requirements import requirement

OTHER = "f" * 16


def heard(*beats: tuple[float, Beat]) -> Roster:
    roster = Roster()
    for at, each in beats:
        roster.hear(each, at)
    return roster


def state(roster: Roster, now: float, name: str = "n1") -> str:
    return roster.state(roster.nodes[name], now)


@requirement("host:nodes-placement")
@pytest.mark.parametrize(
    ("beats", "now", "expected"),
    [
        ([(0.0, {})], 0.0, "up"),
        ([(0.0, {})], USUAL.silent, "up"),
        ([(0.0, {})], USUAL.silent + 0.1, SILENT),
        ([(0.0, {}), (1.0, {"state": "draining"})], 1.0, "draining"),
        ([(0.0, {}), (1.0, {"state": "draining"}), (2.0, {})], 2.0, "up"),
        ([(0.0, {"takes": (1, 2)})], 0.0, "up"),
        ([(0.0, {"takes": (2, 3)})], 0.0, INCOMPATIBLE),
        ([(0.0, {}), (10.0, {})], 10.0, RETURNING),
        ([(0.0, {}), (10.0, {}), (11.0, {})], 11.0, "up"),
        ([(0.0, {}), (10.0, {"boot": OTHER})], 10.0, "up"),
    ],
)
def test_the_state_of_a_node(beats: list[tuple[float, dict[str, Any]]], now: float, expected: str) -> None:
    roster = heard(*((at, beat(**fields)) for at, fields in beats))
    assert state(roster, now) == expected
    assert [node.name for node in roster.up(now)] == (["n1"] if expected == "up" else [])


def test_beats_that_do_not_come_are_counted_until_the_node_is_silent() -> None:
    roster = heard((0.0, beat()))
    for now in (1.0, 1.6, 1.7, 2.6):
        roster.count_missed(now)
    assert roster.missed == 2
    roster.hear(beat(), 3.0)
    roster.count_missed(4.0)
    assert roster.missed == 2
    for now in (10.0, 100.0, 500.0):
        roster.count_missed(now)
    assert roster.missed == 2 + int(USUAL.silent / USUAL.beat - 0.5)


def test_beats_of_a_draining_node_and_those_that_the_gateway_could_not_hear_are_not_missed() -> None:
    roster = heard((0.0, beat(state="draining")))
    roster.count_missed(3.0)
    assert roster.missed == 0
    roster = heard((0.0, beat()))
    roster.forgive(60.0)
    roster.count_missed(61.0)
    assert roster.missed == 0


def test_a_node_with_malformed_answers_is_avoided_for_a_while() -> None:
    roster = heard((0.0, beat()))
    roster.avoid("n1", 0.0)
    roster.avoid("n9", 0.0)
    for at in range(1, 11):
        roster.hear(beat(), float(at))
    assert state(roster, 9.9) == AVOIDED
    assert state(roster, 10.1) == "up"


@pytest.mark.parametrize(
    ("now", "repeatable", "gone"),
    [
        (USUAL.silent, True, False),
        (USUAL.silent + 0.1, True, True),
        (USUAL.silent + 0.1, False, False),
        (USUAL.lost, False, False),
        (USUAL.lost + 0.1, False, True),
    ],
)
def test_repeatable_calls_leave_a_silent_node_early(now: float, repeatable: bool, gone: bool) -> None:
    assert heard((0.0, beat())).is_gone("n1", ID, now, repeatable=repeatable) is gone


def test_a_node_that_was_started_again_has_lost_its_calls() -> None:
    roster = heard((0.0, beat()), (0.5, beat(boot=OTHER)))
    assert roster.is_gone("n1", ID, 0.5, repeatable=False)
    assert not roster.is_gone("n1", OTHER, 0.5, repeatable=False)
    assert roster.is_gone("n2", ID, 0.5, repeatable=False)


def test_silence_while_the_gateway_heard_nothing_does_not_count() -> None:
    roster = heard((0.0, beat()))
    roster.forgive(100.0)
    assert state(roster, 100.0) == "up"
    assert not roster.is_gone("n1", ID, 100.0, repeatable=True)


def test_the_load_counts_own_calls_once() -> None:
    roster = heard((0.0, beat()))
    node = roster.nodes["n1"]
    node.calls = 3
    roster.hear(beat(busy=5), 1.0)  # of which 3 are ours
    assert node.load == 5
    node.calls = 1
    assert node.load == 3


def test_nodes_that_are_gone_for_long_are_forgotten() -> None:
    roster = heard((0.0, beat()), (0.0, beat(node="n2")))
    roster.nodes["n2"].calls = 1
    roster.forget_old(FORGET_AFTER)
    assert len(roster.nodes) == 2
    roster.forget_old(FORGET_AFTER + 1)
    assert list(roster.nodes) == ["n2"]


@given(st.lists(st.tuples(st.floats(0, 20), st.sampled_from([ID, OTHER]), st.sampled_from(["up", "draining"]))))
def test_a_node_that_takes_calls_was_heard_and_drains_not(steps: list[tuple[float, str, str]]) -> None:
    roster, now = Roster(), 0.0
    for wait, boot, word in steps:
        now += wait
        roster.hear(beat(boot=boot, state=word), now)
        for node in roster.up(now):
            assert node.beat.state == "up" and not roster.is_gone(node.name, node.beat.boot, now, repeatable=True)


def test_a_refusal_says_which_node_holds_a_lease_until_the_next_beat() -> None:
    roster = heard((0.0, beat(held={"a": 1})))
    assert roster.note_holder("b", "n1", 2) and roster.nodes["n1"].beat.held == {"a": 1, "b": 2}
    assert roster.note_holder("a", "n1", None) and roster.nodes["n1"].beat.held == {"b": 2}
    assert not roster.note_holder("a", "n9", 1) and not roster.note_holder("a", "n1", "1")
    assert not roster.note_holder("a", None, 1)
    roster.hear(beat(held={"a": 3}), 1.0)
    assert roster.nodes["n1"].beat.held == {"a": 3}
