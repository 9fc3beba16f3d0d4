"""Outgoing and incoming events without a broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from plugbay.brokers.relay import EVENT_BURST, MAX_QUEUED, MAX_QUEUED_BYTES, Relay
from plugbay.host.config.sections import BrokerConfig
from plugbay.host.events.bus import Bus, BusEvent
from plugbay.host.journal import Journal
from plugbay.model.gate import MAX_EVENT

ID = "11111111-2222-4333-8444-555555555555"
STAMP = "2026-01-02T03:04:05Z"


class World:
    """A bus, its relay, and all events on the bus."""

    def __init__(self, *topics: str, clock: Callable[[], float] = lambda: 5.0) -> None:
        self.bus, self.journal = Bus(), Journal()
        self.relay = Relay(BrokerConfig(url="nats://h", topics=list(topics)), self.bus, self.journal, clock)
        self.relay.open()
        self.heard: list[BusEvent] = []
        self.bus.listen(">", self.heard.append)

    def publish(self, topic: str, payload: Any = None) -> None:
        self.bus.publish(BusEvent(ID, STAMP, topic, "p", payload))

    def sent(self) -> list[str]:
        return [leaving.topic for leaving in iter(self.relay.take, None)]


def written(**fields: Any) -> bytes:
    return json.dumps({"id": ID, "timestamp": STAMP, "source": "q", "payload": 1, **fields}).encode()


def test_a_shared_event_leaves_once_and_no_other_does() -> None:
    world = World("a.>", "a.b", "c")
    for topic in ("a.b", "b", "c", "c.d"):
        world.publish(topic, {"n": 1})
    leaving = world.relay.take()
    assert leaving is not None and leaving.topic == "a.b"
    assert json.loads(leaving.data) == {
        "id": ID,
        "timestamp": STAMP,
        "topic": "a.b",
        "source": "p",
        "session_id": None,
        "payload": {"n": 1},
    }
    assert world.sent() == ["c"]


def test_without_topics_nothing_leaves_and_nothing_comes_in() -> None:
    world = World()
    world.publish("a")
    world.relay.receive("a", written())
    assert (world.sent(), [event.id for event in world.heard], world.relay.refused) == ([], [ID], 1)


def test_lifecycle_events_stay_even_if_all_topics_are_shared() -> None:
    world = World(">")
    for topic in ("plugin.lifecycle.p.up", "plugin.resource.changed", "a b"):
        world.publish(topic)
        world.relay.receive(topic, written())
    assert world.sent() == []
    assert len(world.heard) == 3  # each as published here; only the last could have been shared
    assert world.journal.counts("host") == {"event_not_shared": 1, "broker_event_refused": 3}


def test_an_incoming_event_is_published_unchanged_and_not_sent_back() -> None:
    world = World("a.>")
    world.relay.receive("a.b", written(topic="x", correlation_id="c", metadata={"k": 1}, session_id=ID))
    assert world.heard == [BusEvent(ID, STAMP, "a.b", "q", 1, ID, "c", {"k": 1})]
    assert (world.sent(), world.relay.received, world.relay.refused) == ([], 1, 0)


def test_the_event_of_a_listener_to_an_arriving_event_leaves() -> None:
    world = World("a.>")
    world.bus.listen("a.question", lambda event: world.publish("a.answer"))
    world.relay.receive("a.question", written())
    assert world.sent() == ["a.answer"]


def test_a_missing_id_time_or_source_is_filled_in() -> None:
    world = World("a")
    world.relay.receive("a", b'{"payload": 5, "id": "no uuid", "timestamp": 7}')
    (event,) = world.heard
    assert (len(event.id), event.timestamp[-1], event.source, event.payload) == (36, "Z", "broker", 5)


@pytest.mark.parametrize(
    ("topic", "data", "words"),
    [
        ("a", b"", "not JSON"),
        ("a", b"\xff\xfe", "UTF-8"),
        ("a", b"[1]", "an event is an object"),
        ("a", b'{"payload": NaN}', "not JSON"),
        ("a", b'{"payload": 123456789012345678901234567890}', "out of range"),
        ("a", b'{"payload":' + b"[" * 200 + b"]" * 200 + b"}", "deep"),
        ("a", b'{"payload":' + b"[" * 62 + b"]" * 62 + b"}", "deep"),
        ("a", b'"' + b"x" * MAX_EVENT + b'"', "at most 1,040,000"),
        ("a", b'{"payload":"' + b"x" * (MAX_EVENT - 30) + b'"}', "as JSON"),
        ("a", b'{"source": 5}', "source"),
        ("a", b'{"source": "a\\nb"}', "source"),
        ("a", json.dumps({"source": "x" * 300}).encode(), "source"),
        ("b", written(), "not a topic that is shared here"),
        ("a..b", written(), "empty segment"),
        ("a.>", written(), "wildcard"),
    ],
)
def test_an_invalid_event_is_counted_and_noted(topic: str, data: bytes, words: str) -> None:
    world = World("a")
    world.relay.receive(topic, data)
    assert (world.heard, world.relay.received, world.relay.refused) == ([], 0, 1)
    (note,) = world.journal.recent("host")
    assert note.kind == "broker_event_refused" and words in note.text
    world.relay.receive("a", written())
    assert len(world.heard) == 1


def test_a_flood_is_refused_before_it_is_parsed_and_later_events_are_not() -> None:
    now = [5.0]
    world = World("a", clock=lambda: now[0])
    for _ in range(int(EVENT_BURST) + 10):
        world.relay.receive("a", written())
    assert (world.relay.received, world.relay.refused) == (EVENT_BURST, 10)
    assert "events a second" in world.journal.recent("host")[-1].text
    now[0] += 1
    world.relay.receive("a", written())
    assert (world.relay.received, world.relay.refused) == (EVENT_BURST + 1, 10)


def test_when_the_queue_is_full_the_oldest_events_are_dropped() -> None:
    world = World("a.>")
    for number in range(MAX_QUEUED + 3):
        world.publish(f"a.{number}")
    assert world.relay.dropped == 3 == world.journal.counts("host")["broker_event_dropped"]
    sent = world.sent()
    assert (len(sent), sent[0], sent[-1]) == (MAX_QUEUED, "a.3", f"a.{MAX_QUEUED + 2}")


def test_the_queue_is_bounded_in_bytes_too() -> None:
    world = World("a")
    for _ in range(40):
        world.publish("a", "x" * 1_000_000)
    data = [leaving.data for leaving in iter(world.relay.take, None)]
    assert len(data) + world.relay.dropped == 40
    assert MAX_QUEUED_BYTES - 1_100_000 < sum(map(len, data)) <= MAX_QUEUED_BYTES
    world.publish("a", "y")
    assert world.sent() == ["a"]


@pytest.mark.parametrize(
    ("payload", "words"),
    [(object(), "no JSON form"), ("x" * MAX_EVENT, "at most 1,040,000"), (float("nan"), "no JSON")],
)
def test_an_event_that_cannot_be_shared_stays_local(payload: Any, words: str) -> None:
    world = World("a")
    world.publish("a", payload)
    assert (world.sent(), len(world.heard), world.relay.dropped) == ([], 1, 0)
    (note,) = world.journal.recent("host")
    assert note.kind == "event_not_shared" and words in note.text


def test_the_sender_is_woken_and_nothing_leaves_after_close() -> None:
    world, woken = World("a"), []
    world.relay.wake = lambda: woken.append(1)
    world.publish("a")
    world.relay.close()
    world.relay.close()
    world.publish("a")
    assert (woken, world.sent()) == ([1], ["a"])
