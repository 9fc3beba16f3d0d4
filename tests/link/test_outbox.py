"""Notifications under pressure: in lanes, each bounded, ordered, dropped by rule and counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.base import Traffic
from plugbay.link.outbox import BURST, LIGHT, Lane, Outbox, weight
from plugbay.model.operations import DeliverEvent, DeliverSnapshot, PressKey, UseMouse, WriteLog
from tests.support.requirements import requirement

if TYPE_CHECKING:
    from plugbay.model.operations import Operation

MIB = 1 << 20
SCREENS = Traffic(4_096, "newest", (PressKey, UseMouse), max_bytes=64 * MIB)


def event(number: int) -> DeliverEvent:
    return DeliverEvent("t", number)


def snapshot(size: int) -> DeliverSnapshot:
    return DeliverSnapshot("t", b"x" * size)


def key(number: int) -> PressKey:
    return PressKey("s", {"code": {"type": "char", "ch": "k"}}, number)


def mouse(number: int) -> UseMouse:
    return UseMouse("s", {"kind": {"type": "scroll_up"}}, number)


def drained(outbox: Outbox) -> list[object]:
    return [outbox.take() for _ in range(len(outbox))]


def test_operations_come_out_in_the_order_they_went_in() -> None:
    outbox = Outbox(Traffic())
    for number in range(3):
        outbox.offer(event(number))
    assert drained(outbox) == [event(0), event(1), event(2)]
    assert outbox.take() is None


def test_a_full_outbox_drops_the_newest_or_the_oldest_as_the_contract_says() -> None:
    newest, oldest = Outbox(Traffic(2, "newest")), Outbox(Traffic(2, "oldest"))
    for number in range(4):
        newest.offer(event(number))
        oldest.offer(event(number))
    assert (drained(newest), newest.dropped) == ([event(0), event(1)], 2)
    assert (drained(oldest), oldest.dropped) == ([event(2), event(3)], 2)


def test_urgent_operations_overtake_the_others_and_keep_their_own_order() -> None:
    outbox = Outbox(Traffic(urgent=[WriteLog]))
    for op in (event(0), WriteLog("a", "1"), event(1), WriteLog("b", "2")):
        outbox.offer(op)
    assert drained(outbox) == [WriteLog("a", "1"), WriteLog("b", "2"), event(0), event(1)]


@requirement("ainb:host-keys-overtake-events")
def test_keys_go_before_the_mouse_and_the_mouse_before_everything_else() -> None:
    outbox = Outbox(SCREENS)
    for op in (snapshot(1), mouse(0), key(0), snapshot(2), key(1), mouse(1)):
        outbox.offer(op)
    assert drained(outbox) == [key(0), key(1), mouse(0), mouse(1), snapshot(1), snapshot(2)]


@requirement("ainb:host-key-queue")
def test_of_too_many_keys_the_oldest_are_dropped_and_counted_apart() -> None:
    outbox = Outbox(SCREENS)
    for number in range(100):
        outbox.offer(key(number))
    assert (outbox.urgent_dropped, outbox.dropped) == (36, 0)
    assert drained(outbox) == [key(number) for number in range(36, 100)]


def test_no_lane_takes_room_from_another() -> None:
    outbox = Outbox(Traffic(2, "newest", (PressKey, UseMouse), urgent_capacity=2))
    for number in range(5):
        for op in (event(number), mouse(number), key(number)):
            outbox.offer(op)
    assert (outbox.dropped, outbox.urgent_dropped) == (3, 6)
    assert drained(outbox) == [key(3), key(4), mouse(3), mouse(4), event(0), event(1)]


def test_what_could_not_be_sent_is_counted_in_its_own_lane() -> None:
    outbox = Outbox(SCREENS)
    outbox.lost(key(1))
    assert (outbox.dropped, outbox.urgent_dropped) == (0, 1)
    outbox.lost(snapshot(1))
    assert (outbox.dropped, outbox.urgent_dropped) == (1, 1)


def test_the_urgent_ones_can_be_taken_alone() -> None:
    outbox = Outbox(SCREENS)
    for op in (snapshot(1), mouse(0), key(0)):
        outbox.offer(op)
    assert outbox.take_urgent() == [key(0), mouse(0)]
    assert outbox.take_urgent() == []
    assert drained(outbox) == [snapshot(1)]


# Bytes.


def test_a_lane_is_full_when_its_bytes_are_however_few_operations_wait() -> None:
    outbox = Outbox(SCREENS)
    for _ in range(100):
        outbox.offer(snapshot(2 * MIB))
    assert (len(outbox), outbox.dropped) == (31, 69)
    outbox.take()
    outbox.offer(snapshot(2 * MIB))
    assert (len(outbox), outbox.dropped) == (31, 69)


def test_a_lane_without_a_limit_of_bytes_counts_operations_only() -> None:
    outbox = Outbox(Traffic())
    for _ in range(65):
        outbox.offer(snapshot(2 * MIB))
    assert (len(outbox), outbox.dropped) == (64, 1)


def test_small_operations_have_a_weight_too() -> None:
    assert weight(event(1)) == weight(key(1)) == LIGHT
    assert weight(snapshot(10)) == LIGHT + 10
    assert BURST // LIGHT == 32


@pytest.mark.parametrize("drops", ["newest", "oldest"])
def test_an_operation_that_could_never_fit_costs_nobody_else_a_place(drops: str) -> None:
    lane = Lane(10, drops, 10 * LIGHT)
    lane.offer(event(1))
    lane.offer(snapshot(10 * LIGHT))
    assert (len(lane), lane.dropped, lane.take()) == (1, 1, event(1))


def test_as_many_of_the_oldest_give_way_as_a_large_one_needs() -> None:
    lane = Lane(10, "oldest", 10 * LIGHT)
    for number in range(10):
        lane.offer(event(number))
    lane.offer(snapshot(2 * LIGHT))
    assert (len(lane), lane.dropped) == (8, 3)
    assert [lane.take() for _ in range(8)] == [*(event(number) for number in range(3, 10)), snapshot(2 * LIGHT)]


OPERATIONS = st.one_of(
    st.builds(event, st.integers(0, 9)),
    st.builds(key, st.integers(0, 9)),
    st.builds(mouse, st.integers(0, 9)),
    st.builds(snapshot, st.integers(0, 3 * LIGHT)),
    st.none(),
)


@given(st.lists(OPERATIONS, max_size=60), st.sampled_from(["newest", "oldest"]))
def test_whatever_is_offered_and_taken_everything_is_sent_or_counted_and_each_lane_keeps_its_order(
    steps: list[Operation | None], drops: str
) -> None:
    """None takes one; an operation is offered."""
    outbox = Outbox(Traffic(6, drops, (PressKey, UseMouse), urgent_capacity=3, max_bytes=8 * LIGHT))
    offered: list[Operation] = []
    taken: list[object] = []
    for step in steps:
        if step is not None:
            outbox.offer(step)
            offered.append(step)
        elif outbox:
            taken.append(outbox.take())
        assert len(outbox) <= 12
        assert sum(weight(op) for op in outbox._plain._ops) == outbox._plain._bytes <= 8 * LIGHT
    taken += drained(outbox)
    assert len(taken) + outbox.dropped + outbox.urgent_dropped == len(offered)
    for kinds in ((PressKey,), (UseMouse,), (DeliverEvent, DeliverSnapshot)):
        went_in = iter([op for op in offered if isinstance(op, kinds)])
        assert all(any(op is before for before in went_in) for op in taken if isinstance(op, kinds))
