"""The last value of every topic: what is kept, who is told, and how much of it there may be."""

from __future__ import annotations

import asyncio

import pytest

from plugbay.host.events.snapshots import Quotas, Snapshot, Snapshots
from plugbay.model.errors import CallFailed, Code
from plugbay.model.topics import MAX_TOPIC, topic_problem
from tests.support.requirements import requirement

Heard = list[tuple[str, bytes, int]]


def listening(snapshots: Snapshots, *topics: str, name: str = "") -> Heard:
    heard: Heard = []
    snapshots.listen(topics, lambda topic, found: heard.append((topic, found.data, found.version)), name=name)
    return heard


def refusal(snapshots: Snapshots, topic: str, data: bytes, publisher: str = "p") -> tuple[str, str | None]:
    with pytest.raises(CallFailed) as caught:
        snapshots.publish(topic, data, publisher=publisher)
    return caught.value.code, caught.value.failure.detail.get("limit")


# Keeping.


@requirement("ainb:host-snapshot-get", "ainb:host-snapshot-version")
def test_the_last_value_of_each_topic_is_kept_under_one_counter() -> None:
    snapshots = Snapshots()
    assert snapshots.get("a") is None
    assert [snapshots.publish(topic, data) for topic, data in (("a", b"1"), ("b", b"2"), ("a", b"3"))] == [1, 2, 3]
    assert snapshots.get("a") == Snapshot(b"3", 3, "host")
    assert snapshots.get("b") == Snapshot(b"2", 2, "host")
    assert snapshots.topics() == ["a", "b"]


def test_a_snapshot_does_not_change_with_the_buffer_of_its_publisher() -> None:
    snapshots, buffer = Snapshots(), bytearray(b"one")
    snapshots.publish("a", buffer)
    buffer[:] = b"two"
    assert snapshots.get("a") == Snapshot(b"one", 1, "host")


def test_an_erased_snapshot_is_gone_and_the_counter_goes_on() -> None:
    snapshots = Snapshots()
    snapshots.publish("a", b"1")
    snapshots.erase("a")
    snapshots.erase("never")
    assert snapshots.get("a") is None
    assert snapshots.publish("a", b"2") == 2


@pytest.mark.parametrize(
    ("topic", "word"),
    [("", "empty"), ("x" * (MAX_TOPIC + 1), "at most"), ("a\nb", "printable"), ("\x1b[2J", "printable")],
)
def test_a_topic_is_a_name(topic: str, word: str) -> None:
    assert word in (topic_problem(topic) or "")
    assert refusal(Snapshots(), topic, b"") == (Code.INVALID_INPUT, None)


@pytest.mark.parametrize("topic", ["a", "usage.data", "ui.state/p", "workspace:x", "ü", "x" * MAX_TOPIC])
def test_any_printable_name_will_do(topic: str) -> None:
    assert topic_problem(topic) is None


# Telling.


@requirement("ainb:host-snapshot-no-replay", "ainb:host-snapshot-fan-out")
def test_a_listener_gets_exactly_its_topics_from_then_on() -> None:
    snapshots = Snapshots()
    snapshots.publish("a", b"0")
    heard = listening(snapshots, "a", "c")
    for topic in ("a", "ab", "b", "c"):
        snapshots.publish(topic, topic.encode())
    assert heard == [("a", b"a", 2), ("c", b"c", 5)]


@requirement("ainb:host-snapshot-not-to-itself")
def test_a_publisher_gets_no_snapshot_of_its_own_and_the_host_reaches_all() -> None:
    snapshots = Snapshots()
    p, q, host = listening(snapshots, "a", name="p"), listening(snapshots, "a", name="q"), listening(snapshots, "a")
    snapshots.publish("a", b"1", publisher="p")
    snapshots.publish("a", b"2")
    assert p == [("a", b"2", 2)]
    assert q == host == [("a", b"1", 1), ("a", b"2", 2)]


@requirement("ainb:host-snapshot-once")
def test_a_topic_that_was_added_twice_is_heard_of_once() -> None:
    snapshots = Snapshots()
    heard: Heard = []
    subscription = snapshots.listen("a", lambda topic, found: heard.append((topic, found.data, found.version)))
    subscription.add("a")
    subscription.add("b")
    snapshots.publish("a", b"1")
    snapshots.publish("b", b"2")
    assert [topic for topic, _, _ in heard] == ["a", "b"]


def test_a_cancelled_listener_gets_nothing_more_not_even_a_delivery_in_progress() -> None:
    snapshots = Snapshots()
    heard: Heard = []
    first = snapshots.listen("a", lambda topic, found: second.cancel())
    second = snapshots.listen("a", lambda topic, found: heard.append((topic, found.data, found.version)))
    snapshots.publish("a", b"1")
    second.cancel()
    second.add("a")
    snapshots.publish("a", b"2")
    assert heard == []
    first.cancel()
    assert not snapshots._listeners


def test_all_listeners_get_all_publishes_in_one_order_also_those_of_a_listener() -> None:
    snapshots = Snapshots()

    def answer(topic: str, found: Snapshot) -> None:
        if found.version == 1:
            snapshots.publish("b", b"from inside")
            assert snapshots.get("b") is not None

    snapshots.listen("a", answer)
    heard = listening(snapshots, "a", "b")
    snapshots.publish("a", b"first")
    assert heard == [("a", b"first", 1), ("b", b"from inside", 2)]


def test_a_listener_that_raises_is_reported_and_costs_the_others_nothing() -> None:
    reported: list[Exception] = []
    snapshots = Snapshots(reported.append)

    def fails(topic: str, found: Snapshot) -> None:
        raise ValueError("a bug")

    snapshots.listen("a", fails)
    heard = listening(snapshots, "a")
    assert snapshots.publish("a", b"1") == 1
    assert len(heard) == 1
    assert [str(error) for error in reported] == ["a bug"]


def test_a_listener_that_is_cancelled_in_the_middle_stops_no_other() -> None:
    snapshots = Snapshots()

    def cancelled(topic: str, found: Snapshot) -> None:
        if found.version == 1:
            raise asyncio.CancelledError

    snapshots.listen("a", cancelled)
    heard = listening(snapshots, "a")
    with pytest.raises(asyncio.CancelledError):
        snapshots.publish("a", b"1")
    snapshots.publish("a", b"2")
    assert heard == [("a", b"2", 2)]


# How much.


@requirement("ainb:host-snapshot-bounds")
def test_an_entry_that_fits_no_frame_is_refused_without_a_notification() -> None:
    snapshots = Snapshots()
    heard = listening(snapshots, "a")
    assert refusal(snapshots, "a", bytes(Quotas().entry + 1)) == (Code.FRAME_TOO_LARGE, "entry")
    assert (snapshots.get("a"), heard) == (None, [])
    assert snapshots.publish("a", bytes(Quotas().entry)) == 1


@requirement("ainb:host-snapshot-bounds")
def test_a_publisher_has_its_share_of_topics_and_bytes_and_others_keep_theirs() -> None:
    snapshots = Snapshots(quotas=Quotas(topics=2, share=10, total=15))
    for topic in ("a", "b"):
        snapshots.publish(topic, b"12345", publisher="p")
    assert refusal(snapshots, "c", b"") == (Code.OVERLOADED, "topics")
    assert refusal(snapshots, "a", b"123456") == (Code.OVERLOADED, "share")
    snapshots.publish("c", b"12345", publisher="q")
    assert refusal(snapshots, "d", b"1", "q") == (Code.OVERLOADED, "total")
    assert snapshots.publish("a", b"54321", publisher="p") == 4, "what replaces needs no more room"


def test_replaced_erased_and_taken_over_entries_free_their_room() -> None:
    snapshots = Snapshots(quotas=Quotas(topics=1, share=10, total=20))
    snapshots.publish("a", b"1234567890", publisher="p")
    assert refusal(snapshots, "b", b"") == (Code.OVERLOADED, "topics")
    snapshots.publish("a", b"1", publisher="q")
    snapshots.publish("b", b"1234567890", publisher="p")
    snapshots.erase("b")
    assert snapshots.publish("c", b"1234567890", publisher="p") == 4
    assert refusal(snapshots, "a", b"1") == (Code.OVERLOADED, "topics")
