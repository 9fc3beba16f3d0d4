"""The snapshots as one process sees them: behind its gate, and no longer than it lives."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from plugbay.host.events.snapshots import Snapshot, Snapshots
from plugbay.host.inbound.snapshots import MAX_SUBSCRIPTIONS, SnapshotDesk
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.spec import Access, PluginSpec
from tests.support.requirements import requirement


@dataclass
class Process:
    """A desk and what it delivered."""

    snapshots: Snapshots
    desk: SnapshotDesk
    heard: list[tuple[str, bytes]] = field(default_factory=list)


def process(
    *topics: str, snapshots: Snapshots | None = None, id: str = "p", spec: dict[str, Any] | None = None
) -> Process:
    """A process that may use these topics, greeted already."""
    store = Snapshots() if snapshots is None else snapshots
    plugin = PluginSpec(id, "1.0.0", "ainb", Path("/nowhere"), ("x",), **(spec or {}))
    made = Process(store, SnapshotDesk(plugin, tuple(Access("topic", topic) for topic in topics), store))
    made.desk.open(lambda topic, data: made.heard.append((topic, data)))
    made.desk.arm()
    return made


def code_of(answer: object) -> object:
    return (answer.code, answer.detail.get("capability")) if isinstance(answer, Failure) else answer


def published(desk: SnapshotDesk, topic: str, data: bytes = b"x") -> object:
    try:
        desk.publish(topic, data)
    except CallFailed as error:
        return error.code
    return "published"


DENIED = (Code.CAPABILITY_NOT_ALLOWED, "event_bus")


@requirement("ainb:host-topics-gated")
def test_without_the_grant_nothing_is_read_subscribed_to_or_published() -> None:
    p = process()
    p.snapshots.publish("a", b"1")
    assert code_of(p.desk.get("a")) == DENIED
    assert code_of(p.desk.subscribe("a")) == DENIED
    assert published(p.desk, "a", b"2") == Code.CAPABILITY_NOT_ALLOWED
    assert p.snapshots.get("a") == Snapshot(b"1", 1, "host")


@requirement("ainb:host-topics-gated", "ainb:host-snapshot-get")
def test_with_the_grant_it_is_and_the_publisher_is_who_it_is() -> None:
    p = process("a*")
    assert p.desk.get("a") == {"data": None, "version": 0}
    assert p.desk.subscribe("a") is None
    assert published(p.desk, "ab", b"2") == "published"
    assert p.desk.get("ab") == {"data": b"2", "version": 1}
    assert p.snapshots.get("ab") == Snapshot(b"2", 1, "p")
    assert code_of(p.desk.get("b")) == DENIED


@requirement("ainb:host-fleet-reserved")
def test_nobody_but_the_host_publishes_for_the_fleet_and_only_a_full_name_reads_it() -> None:
    everything, named = process(""), process("fleet.x")
    for p in (everything, named):
        assert published(p.desk, "fleet.x") == Code.CAPABILITY_NOT_ALLOWED
        p.snapshots.publish("fleet.x", b"1")
    assert code_of(everything.desk.get("fleet.x")) == code_of(everything.desk.subscribe("fleet.x")) == DENIED
    assert named.desk.get("fleet.x") == {"data": b"1", "version": 1}
    assert named.desk.subscribe("fleet.x") is None


@requirement("ainb:host-declared-subscriptions")
def test_declared_topics_are_heard_of_from_the_greeting_on_where_they_are_granted() -> None:
    snapshots = Snapshots()
    spec = PluginSpec("p", "1.0.0", "ainb", Path("/nowhere"), ("x",), snapshots=("a", "b"))
    desk = SnapshotDesk(spec, (Access("topic", "a"),), snapshots)
    heard: list[str] = []
    desk.open(lambda topic, data: heard.append(topic))
    snapshots.publish("a", b"before the greeting")
    assert heard == []
    assert desk.arm() == ["b"]
    for topic in ("a", "b"):
        snapshots.publish(topic, b"after it")
    assert heard == ["a"]


@requirement("ainb:host-snapshot-once", "ainb:host-snapshot-not-to-itself")
def test_a_topic_that_is_declared_and_asked_for_is_delivered_once_and_never_to_its_publisher() -> None:
    p = process("", spec={"snapshots": ("a",)})
    assert p.desk.subscribe("a") is None
    p.snapshots.publish("a", b"1")
    p.desk.publish("a", b"2")
    assert p.heard == [("a", b"1")]


def test_what_it_asks_for_in_its_greeting_counts_at_once() -> None:
    snapshots = Snapshots()
    spec = PluginSpec("p", "1.0.0", "ainb", Path("/nowhere"), ("x",))
    desk = SnapshotDesk(spec, (Access("topic"),), snapshots)
    heard: list[str] = []
    desk.open(lambda topic, data: heard.append(topic))
    assert desk.subscribe("a") is None
    snapshots.publish("a", b"1")
    assert heard == ["a"]


@requirement("ainb:host-subscriptions-end", "ainb:host-snapshot-survives")
def test_subscriptions_end_with_the_process_and_what_it_published_stays() -> None:
    p = process("", spec={"snapshots": ("declared",)})
    p.desk.subscribe("a")
    p.desk.publish("b", b"kept")
    p.desk.close()
    p.desk.close()
    for topic in ("a", "declared"):
        p.snapshots.publish(topic, b"1")
    assert p.heard == []
    assert p.snapshots.get("b") == Snapshot(b"kept", 1, "p")
    assert code_of(p.desk.subscribe("a")) == (Code.CANCELLED, None)
    assert p.desk.arm() == []
    assert not p.snapshots._listeners


@requirement("ainb:host-ui-state")
def test_each_plugin_says_of_its_screens_in_a_place_of_its_own_and_it_goes_with_the_process() -> None:
    snapshots = Snapshots()
    p, q = (process("", snapshots=snapshots, id=name) for name in "pq")
    p.desk.publish("ui.state", b"p1")
    q.desk.publish("ui.state", b"q1")
    assert snapshots.topics() == ["ui.state/p", "ui.state/q"]
    assert p.desk.get("ui.state") == p.desk.get("ui.state/p") == {"data": b"p1", "version": 1}
    assert published(p.desk, "ui.state/q", b"forged") == Code.CAPABILITY_NOT_ALLOWED
    assert published(p.desk, "ui.state/p", b"p2") == "published"
    p.desk.close()
    assert snapshots.topics() == ["ui.state/q"]
    assert published(p.desk, "ui.state", b"too late") == Code.CAPABILITY_NOT_ALLOWED
    assert published(p.desk, "last.words") == "published"


@requirement("ainb:host-idle-subscribers")
def test_whoever_waits_for_publishes_is_kept_alive_except_for_the_latest_state_only() -> None:
    assert not process("").desk.keeps_alive
    assert process("", spec={"snapshots": ("a",)}).desk.keeps_alive
    assert not process(spec={"snapshots": ("a",)}).desk.keeps_alive, "what was not granted is not waited for"
    p = process("", spec={"snapshots": ("a",), "latest_state": ("a",)})
    assert not p.desk.keeps_alive
    p.desk.subscribe("b")
    assert p.desk.keeps_alive
    p.desk.close()
    assert not p.desk.keeps_alive


@pytest.mark.parametrize("topic", ["", "a\0", "x" * 1000])
def test_what_can_be_no_topic_is_not_subscribed_to(topic: str) -> None:
    assert code_of(process("").desk.subscribe(topic)) == (Code.INVALID_INPUT, None)


def test_one_process_subscribes_to_so_many_topics_and_no_more() -> None:
    p = process("")
    for number in range(MAX_SUBSCRIPTIONS):
        assert p.desk.subscribe(f"t{number}") is None
    assert code_of(p.desk.subscribe("more")) == (Code.OVERLOADED, None)
    assert p.desk.subscribe("t0") is None, "the same again is no more"


def test_what_the_store_refuses_is_refused() -> None:
    assert published(process("").desk, "a", bytes(12_500_001)) == Code.FRAME_TOO_LARGE
