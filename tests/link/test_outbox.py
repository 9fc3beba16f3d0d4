"""Notifications under pressure: bounded, ordered, dropped by rule and counted."""

from __future__ import annotations

from plugbay.contracts.base import Traffic
from plugbay.link.outbox import Outbox
from plugbay.model.operations import DeliverEvent, WriteLog


def event(number: int) -> DeliverEvent:
    return DeliverEvent("t", number)


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
    outbox = Outbox(Traffic(urgent=frozenset({WriteLog})))
    for op in (event(0), WriteLog("a", "1"), event(1), WriteLog("b", "2")):
        outbox.offer(op)
    assert drained(outbox) == [WriteLog("a", "1"), WriteLog("b", "2"), event(0), event(1)]


def test_making_room_for_the_newest_sacrifices_plain_operations_before_urgent_ones() -> None:
    outbox = Outbox(Traffic(2, "oldest", frozenset({WriteLog})))
    for op in (WriteLog("a", "1"), event(0), WriteLog("b", "2")):
        outbox.offer(op)
    assert drained(outbox) == [WriteLog("a", "1"), WriteLog("b", "2")]
