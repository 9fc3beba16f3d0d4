"""Live events reach the gateways that listen, in order; a gap is reported."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from plugbay.cluster.envelope import LiveEvent, pack
from plugbay.cluster.live import MAX_EVENT, MAX_UNSENT, Live
from plugbay.cluster.subjects import Subjects
from tests.support.loops import Run, run  # noqa: F401
from tests.support.nodes import Cell, cell
from tests.support.patience import PATIENCE, until
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive

CELL = Subjects("main")


class Heard:
    """What a gateway hears."""

    def __init__(self, live: Live) -> None:
        self.events: list[bytes] = []
        self.lost: list[tuple[str | None, int | None]] = []
        live.on_event = lambda kind, id, body: self.events.append(body)
        live.on_lost = lambda org, number: self.lost.append((org, number))


class FakeWire:
    """A connection that takes what it is given, or does not."""

    def __init__(self) -> None:
        self.is_up = True
        self.unsent = 0
        self.forbidden = ""
        self.sent: list[tuple[str, bytes]] = []
        self.patterns: set[str] = set()

    def post(self, subject: str, data: bytes) -> bool:
        if self.is_up:
            self.sent.append((subject, data))
        return self.is_up

    async def listen(self, pattern: str, handler: Any) -> bool:
        self.patterns.add(pattern)
        self.handler = handler
        return self.is_up

    async def ignore(self, pattern: str) -> None:
        self.patterns.discard(pattern)


def made() -> tuple[Any, Live]:
    wire = FakeWire()
    return wire, Live(wire, CELL, "0" * 16)  # type: ignore[arg-type]


@requirement("host:live-streams")
def test_a_gateway_hears_what_another_publishes_while_it_watches(shared_cell: Cell, run: Run) -> None:  # noqa: F811
    async def main() -> None:
        async with shared_cell.cluster() as one, shared_cell.cluster() as other:
            heard = Heard(other.live)
            one.live.publish("acme", "run", "run_1", b"nobody listens")
            assert await one.wire.round_trip()
            async with other.live.watching("acme") as listens, other.live.watching(None):
                assert listens
                for number in range(100):
                    one.live.publish("acme", "run", "run_1", b"%d" % number)
                    one.live.publish("a org.*", "invocation", "inv_1", b"other")
                await until(lambda: len(heard.events) == 200)
            assert [body for body in heard.events if body != b"other"] == [b"%d" % number for number in range(100)]
            assert heard.lost == []
            assert await other.wire.round_trip()
            one.live.publish("acme", "run", "run_1", b"too late")
            assert await one.wire.round_trip() and await other.wire.round_trip()
            assert len(heard.events) == 200

    run(main)


@exhaustive
@requirement("host:live-streams")
def test_watchers_hear_of_the_gap_when_nats_is_back(tmp_path: Path) -> None:
    async def main() -> None:
        with cell(tmp_path) as own:
            async with own.cluster() as one, own.cluster() as other:
                heard = Heard(other.live)
                async with other.live.watching("acme"):
                    own.nats.kill()
                    await until(lambda: not one.wire.is_up and not other.wire.is_up)
                    assert heard.lost == [("acme", None)]
                    one.live.publish("acme", "run", "run_1", b"lost")
                    own.nats.start()
                    assert await one.wire.joined(PATIENCE) and await other.wire.joined(PATIENCE)
                    assert heard.lost.count(("acme", None)) == 2
                    one.live.publish("acme", "run", "run_1", b"heard again")
                    await until(lambda: heard.events == [b"heard again"])

    asyncio.run(main())


@requirement("host:live-streams")
@pytest.mark.parametrize("why", ["no connection", "too much waits", "too large", "no permission"])
def test_what_cannot_be_sent_is_dropped_and_counted_in_the_next_event(why: str) -> None:
    wire, live = made()
    live.publish("acme", "run", "run_1", b"1")
    wire.is_up = why != "no connection"
    wire.unsent = MAX_UNSENT + 1 if why == "too much waits" else 0
    wire.forbidden = 'Permissions Violation for Publish to "pb1.main.live.acme.run"' if why == "no permission" else ""
    for _ in range(2):
        live.publish("acme", "run", "run_1", bytes(MAX_EVENT + 1) if why == "too large" else b"2")
    wire.is_up, wire.unsent, wire.forbidden = True, 0, ""
    live.publish("acme", "run", "run_1", b"4")
    listener = made()[1]
    heard = Heard(listener)
    for subject, data in wire.sent:
        listener._on_message(subject.encode(), b"", data)
    assert heard.events == [b"1", b"4"]
    assert heard.lost == [("acme", 2)]


def test_what_a_node_sent_in_vain_is_counted_in_the_next_event() -> None:
    wire, live = made()
    here = Heard(live)
    live.publish("acme", "invocation", "inv_1", b"1")
    live.lose("acme", 2)
    live.publish("acme", "invocation", "inv_1", b"4")
    listener = made()[1]
    heard = Heard(listener)
    for subject, data in wire.sent:
        listener._on_message(subject.encode(), b"", data)
    assert heard.events == [b"1", b"4"]
    assert heard.lost == here.lost == [("acme", 2)]


def test_a_gap_without_a_later_event_is_reported_when_the_connection_is_back() -> None:
    wire, live = made()
    wire.is_up = False
    live.publish("acme", "run", "run_1", b"1")
    wire.is_up = True
    live.on_up()
    live.on_up()
    listener = made()[1]
    heard = Heard(listener)
    for subject, data in wire.sent:
        listener._on_message(subject.encode(), b"", data)
    assert (heard.events, len(wire.sent)) == ([], 1)


def test_a_gateway_listens_as_long_as_the_last_watcher_of_an_org(run: Run) -> None:  # noqa: F811
    async def main() -> None:
        wire, live = made()
        async with live.watching("acme"):
            async with live.watching("acme"), live.watching(None):
                assert wire.patterns == {"pb1.main.live.acme.>", "pb1.main.live.>"}
            assert wire.patterns == {"pb1.main.live.acme.>"}
        assert wire.patterns == set()
        wire.is_up = False
        async with live.watching("acme") as listens:
            assert not listens

    run(main)


def event(**fields: Any) -> LiveEvent:
    return LiveEvent(**{"gateway": "a" * 16, "org": "acme", "kind": "run", "id": "run_1", "seq": 1, **fields})


@pytest.mark.parametrize(
    ("subject", "data"),
    [
        (CELL.live("acme", "run", "run_1"), b"no line"),
        (CELL.live("acme", "run", "run_1"), pack(event()).replace(b'"seq":1', b'"seq":-1')),
        (CELL.live("acme", "run", "run_1"), pack(event(org="other"))),
        (CELL.live("acme", "run", "run_2"), pack(event())),
    ],
    ids=["not a head", "negative", "another org", "another run"],
)
def test_a_message_that_is_no_event_of_its_subject_is_dropped(subject: str, data: bytes) -> None:
    live = made()[1]
    heard = Heard(live)
    live._on_message(subject.encode(), b"", data)
    assert heard.events == []
    live._on_message(CELL.live("acme", "run", "run_1").encode(), b"", pack(event(), b"x"))
    assert heard.events == [b"x"]
