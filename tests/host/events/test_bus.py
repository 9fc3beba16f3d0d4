"""Every subscriber hears an event once; a slow or broken one does not slow others."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.host.events.bus import CACHED_TOPICS, DEPTH, Bus, BusEvent, SubjectIndex, Subscription
from plugbay.model.topics import matches
from plugbay.wire.strict_json import Unencodable
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.requirements import requirement

ID = "01940000-0000-0000-0000-000000000001"
OTHER_ID = "01940000-0000-0000-0000-000000000099"
TEXTS = st.lists(st.sampled_from(["a", "b", "c", "*", ">", "a*", ""]), max_size=5).map(".".join)
NOW = "2026-05-01T00:00:00Z"


def event(topic: str = "a.b", payload: Any = None) -> BusEvent:
    return BusEvent(ID, NOW, topic, "test", payload)


def complete(written: object, topic: str = "plugin.inbound.slack") -> BusEvent:
    made = BusEvent.complete(topic, "slack", written, new_id=lambda: ID, now=lambda: NOW)
    assert isinstance(made, BusEvent), made
    return made


def heard(bus: Bus, *patterns: str) -> list[BusEvent]:
    events: list[BusEvent] = []
    bus.listen(patterns, events.append)
    return events


@requirement("nexo:host-event-sparse")
def test_a_sparse_event_is_completed() -> None:
    made = complete({"topic": "x", "source": "y", "payload": {"text": "hi"}})
    assert made == BusEvent(ID, NOW, "plugin.inbound.slack", "slack", {"text": "hi"})
    assert complete({}).payload is None


@requirement("nexo:host-event-full")
def test_well_formed_fields_are_kept() -> None:
    written = {
        "id": OTHER_ID,
        "timestamp": "2026-05-01T00:01:00.123456789Z",
        "session_id": ID,
        "correlation_id": "c1",
        "metadata": {"k": [1]},
        "payload": 1,
    }
    assert complete(written).to_json() == {**written, "topic": "plugin.inbound.slack", "source": "slack"}


@requirement("nexo:host-event-sparse")
def test_malformed_fields_are_replaced_or_dropped() -> None:
    made = complete({"id": "7", "timestamp": "now", "session_id": 5, "correlation_id": {}, "metadata": "x"})
    assert made == BusEvent(ID, NOW, "plugin.inbound.slack", "slack", None)


@requirement("nexo:host-event-stamped")
def test_topic_and_source_are_the_hosts_word() -> None:
    made = complete({"topic": "plugin.inbound.bank", "source": "bank", "payload": 1})
    assert (made.topic, made.source) == ("plugin.inbound.slack", "slack")


@requirement("nexo:host-topic-plain")
@pytest.mark.parametrize(("topic", "written"), [("a.*", {}), ("", {}), ("a", []), ("a", None), ("a", "text")])
def test_an_event_that_cannot_be_completed_has_a_reason(topic: str, written: object) -> None:
    assert isinstance(BusEvent.complete(topic, "s", written, new_id=lambda: ID, now=lambda: NOW), str)


def test_an_event_that_nests_too_deeply_to_be_sent_on_is_refused() -> None:
    payload: Any = None
    for _ in range(1_000):
        payload = [payload]
    assert isinstance(BusEvent.complete("a", "s", {"payload": payload}, new_id=lambda: ID, now=lambda: NOW), str)


@requirement("nexo:host-event-full")
def test_the_full_shape_has_six_fields_always() -> None:
    assert event(payload={"n": 1}).to_json() == {
        "id": ID,
        "timestamp": NOW,
        "topic": "a.b",
        "source": "test",
        "session_id": None,
        "payload": {"n": 1},
    }


def test_the_json_is_written_once_for_all_subscribers() -> None:
    made = event(payload={"n": 1})
    assert json.loads(bytes(made.raw())) == made.to_json()
    assert made.raw() is made.raw()
    assert made == event(payload={"n": 1})


def test_a_payload_without_a_json_form_is_refused_when_it_is_written() -> None:
    with pytest.raises(Unencodable):
        event(payload=float("nan")).raw()


def test_an_event_reaches_the_listeners_whose_pattern_covers_its_topic() -> None:
    bus = Bus()
    one, other = heard(bus, "a.*"), heard(bus, "b.>")
    assert bus.publish(event("a.b")) == 1
    assert bus.publish(event("c")) == 0
    assert [made.topic for made in one] == ["a.b"]
    assert other == []


def test_a_single_pattern_may_stand_alone() -> None:
    bus, events = Bus(), list[BusEvent]()
    bus.listen("a.b", events.append)
    assert bus.publish(event("a.b")) == 1


@requirement("nexo:host-event-once")
def test_a_listener_hears_an_event_once_though_several_patterns_cover_it() -> None:
    bus = Bus()
    events = heard(bus, "a.b", "a.b", "a.>", ">")
    assert bus.publish(event("a.b")) == 1
    assert len(events) == 1


def test_listeners_hear_in_the_order_in_which_they_subscribed() -> None:
    bus, order = Bus(), list[int]()
    for number in range(20):
        bus.listen([">" if number % 2 else "a.b"], lambda _, number=number: order.append(number))  # type: ignore[misc]
    bus.publish(event("a.b"))
    assert order == list(range(20))


def test_a_new_and_a_cancelled_listener_change_the_listeners_of_a_cached_topic() -> None:
    bus = Bus()
    assert bus.publish(event()) == 0
    subscription = bus.listen(["a.b"], lambda _: None)
    assert bus.publish(event()) == 1
    subscription.cancel()
    subscription.cancel()
    assert bus.publish(event()) == 0


def test_a_listener_cancelled_by_another_does_not_hear_the_event_that_is_being_delivered() -> None:
    bus, late = Bus(), list[BusEvent]()
    victims: list[Subscription] = []
    bus.listen([">"], lambda _: victims[0].cancel())
    victims.append(bus.listen([">"], late.append))
    assert bus.publish(event()) == 1
    assert late == []


def test_a_subscription_made_during_a_delivery_gets_the_next_event() -> None:
    bus, late = Bus(), list[BusEvent]()

    def invite(_: BusEvent) -> None:
        bus.listen([">"], late.append)

    first = bus.listen([">"], invite)
    bus.publish(event("a"))
    first.cancel()
    bus.publish(event("b"))
    assert [made.topic for made in late] == ["b"]


def test_a_listener_that_raises_is_counted_and_reported_and_the_others_hear() -> None:
    reports: list[tuple[Subscription, BusEvent, Exception]] = []
    bus = Bus(report=lambda *what: reports.append(what))
    error = RuntimeError("broken")

    def broken(_: BusEvent) -> None:
        raise error

    subscription = bus.listen([">"], broken)
    events = heard(bus, ">")
    assert bus.publish(event()) == 1
    assert len(events) == 1
    assert subscription.failures == 1
    assert reports == [(subscription, event(), error)]


def test_a_listener_may_raise_without_a_report() -> None:
    bus = Bus()
    bus.listen([">"], lambda _: bool(1 // 0))
    assert bus.publish(event()) == 0


def test_a_listener_that_declines_is_not_counted() -> None:
    bus = Bus()
    bus.listen([">"], lambda _: False)
    bus.listen([">"], lambda _: True)
    assert bus.publish(event()) == 1


def test_new_topics_do_not_grow_the_cache_of_the_bus() -> None:
    bus = Bus()
    events = heard(bus, "a.>")
    for number in range(CACHED_TOPICS + 10):
        bus.publish(event(f"a.{number}"))
    assert len(events) == CACHED_TOPICS + 10
    assert len(bus._cache) <= CACHED_TOPICS


def test_a_thousand_subscriptions_get_their_own_events() -> None:
    bus = Bus()
    inboxes = [heard(bus, f"plugin.outbound.k{n}", f"plugin.outbound.k{n}.>") for n in range(1000)]
    for n in range(1000):
        assert bus.publish(event(f"plugin.outbound.k{n}.room")) == 1
    assert all(len(inbox) == 1 for inbox in inboxes)


def test_a_stream_yields_events_in_order_and_ends_when_closed(run: Run) -> None:
    async def main() -> None:
        bus = Bus()
        async with bus.subscribe("a.>", "b") as stream:
            bus.publish(event("a.1"))
            bus.publish(event("b"))
            bus.publish(event("c"))
        bus.publish(event("a.2"))
        assert [made.topic async for made in stream] == ["a.1", "b"]

    run(main)


def test_a_waiting_reader_wakes_for_an_event_and_for_the_end(run: Run) -> None:
    async def main() -> None:
        bus, topics = Bus(), list[str]()
        stream = bus.subscribe(">")

        async def read() -> None:
            async for made in stream:
                topics.append(made.topic)

        reader = asyncio.create_task(read())
        await asyncio.sleep(0)
        bus.publish(event("a"))
        await until(lambda: topics == ["a"])
        stream.close()
        await reader

    run(main)


def test_two_readers_share_a_stream_and_both_end(run: Run) -> None:
    async def main() -> None:
        bus, topics = Bus(), list[str]()
        stream = bus.subscribe(">")

        async def read() -> None:
            topics.extend([made.topic async for made in stream])

        readers = [asyncio.create_task(read()) for _ in range(2)]
        await asyncio.sleep(0)
        bus.publish(event("a"))
        bus.publish(event("b"))
        await asyncio.sleep(0)
        stream.close()
        await asyncio.gather(*readers)
        assert sorted(topics) == ["a", "b"]

    run(main)


@requirement("nexo:host-event-drop")
def test_ten_thousand_events_at_a_stalled_subscriber_do_not_slow_others(run: Run) -> None:
    async def main() -> None:
        bus = Bus()
        stalled, events = bus.subscribe(">"), heard(bus, ">")
        taken = [bus.publish(event(payload=number)) for number in range(10_000)]
        assert len(events) == 10_000
        assert taken == [2] * DEPTH + [1] * (10_000 - DEPTH)
        assert stalled.dropped == 10_000 - DEPTH
        stalled.close()
        assert [made.payload async for made in stalled] == list(range(DEPTH)), "the newest are dropped"

    run(main)


def test_a_stream_that_holds_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Bus().subscribe(">", depth=0)


# The index of patterns.


@given(st.lists(TEXTS, max_size=8), TEXTS)
def test_the_index_finds_exactly_the_matching_patterns(patterns: list[str], subject: str) -> None:
    index: SubjectIndex[str] = SubjectIndex()
    for pattern in patterns:
        index.add(pattern, pattern)
    assert index.find(subject) == {pattern for pattern in patterns if matches(pattern, subject)}


@given(st.lists(TEXTS, max_size=8), st.lists(TEXTS, max_size=8), TEXTS)
def test_a_removed_pattern_is_not_found_and_leaves_no_node(kept: list[str], removed: list[str], subject: str) -> None:
    index: SubjectIndex[str] = SubjectIndex()
    for pattern in [*kept, *removed]:
        index.add(pattern, pattern)
    for pattern in removed:
        index.remove(pattern, pattern)
    gone = set(removed)
    assert index.find(subject) == {pattern for pattern in kept if matches(pattern, subject) and pattern not in gone}
    for pattern in kept:
        index.remove(pattern, pattern)
    assert index.is_empty()


def test_removing_an_unknown_pattern_changes_nothing() -> None:
    index: SubjectIndex[int] = SubjectIndex()
    index.add("a.b", 1)
    for pattern in ("a.b.c", "x", "a.>", "a", ""):
        index.remove(pattern, 1)
    assert index.find("a.b") == {1}
