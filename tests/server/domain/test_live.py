"""Events of other gateways are shown to the watchers of their org, each start and end once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.invocations import ENDED, EVENT, LOST, STARTED, InvocationEvent, Subscription
from plugbay.server.domain.live import MAX_KEPT
from plugbay.server.domain.runs import Runs
from plugbay.store import chains, runs, sessions
from plugbay.store import invocations as invocation_rows
from plugbay.store.invocations import Outcome
from plugbay.store.tables import INVOCATIONS
from tests.store.conversing_rows import chain, run_row, session
from tests.store.test_invocations import ended, record
from tests.support.gateways import gateway_at
from tests.support.loops import Run
from tests.support.requirements import requirement


class Loop:
    """What one gateway publishes comes back to it as if another had published it."""

    on_event: Callable[[Any, str, bytes], object]
    on_lost: Callable[[str | None, int | None], object]

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, str, bytes]] = []
        self.listens = True

    def publish(self, org: str, kind: str, id: str, body: bytes) -> None:
        self.sent.append((org, kind, id, body))

    @asynccontextmanager
    async def watching(self, org: str | None) -> AsyncIterator[bool]:
        yield self.listens


@asynccontextmanager
async def joined(url: str, folder: Path) -> AsyncIterator[tuple[Gateway, Loop, Subscription]]:
    async with gateway_at(url, folder) as gateway:
        live = Loop()
        gateway.live.join(live)  # type: ignore[arg-type]
        seen = gateway.invocation_events.subscribe(lambda event: True)
        assert seen is not None
        seen.org_id = "org_1"
        yield gateway, live, seen


def rest(subscription: Subscription) -> list[InvocationEvent]:
    found = list(subscription._waiting)
    subscription._waiting.clear()
    return found


@requirement("host:live-streams")
def test_an_invocation_of_another_gateway_is_shown_as_it_happens(run: Run, sqlite_url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with joined(sqlite_url, tmp_path) as (gateway, live, seen):
            opened = record(1)
            outcome = Outcome(b'{"n":1}', 7)
            story = [
                InvocationEvent(STARTED, opened),
                InvocationEvent(EVENT, opened, {"n": 1}),
                InvocationEvent(ENDED, opened, outcome=outcome),
            ]
            for event in story:
                gateway.invocation_events.publish(event)
            assert rest(seen) == story
            for _ in range(2):
                for _, kind, id, body in live.sent:
                    live.on_event(kind, id, body)
            shown = rest(seen)
            assert [event.type for event in shown] == [STARTED, EVENT, ENDED, EVENT]
            assert msgspec.json.decode(shown[1].data) == {"n": 1}
            assert (shown[2].record, shown[2].outcome) == (opened, outcome)

    run(story)


def test_a_large_result_is_left_to_the_database(run: Run, sqlite_url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with joined(sqlite_url, tmp_path) as (gateway, live, _):
            for size in (MAX_KEPT, MAX_KEPT + 1):
                outcome = Outcome(b"x" * size, size)
                gateway.invocation_events.publish(InvocationEvent(ENDED, record(1), outcome=outcome))
            assert len(live.sent) == 1

    run(story)


def test_lost_events_are_reported_to_the_watchers_of_the_org(run: Run, sqlite_url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with joined(sqlite_url, tmp_path) as (gateway, live, seen):
            feed = gateway.runs.feeds.subscribe("run_1")
            feed.org_id = "org_1"
            own = gateway.runs.feeds.subscribe("run_2")
            live.on_lost("org_2", 1)
            live.on_lost("org_1", 2)
            live.on_lost(None, None)
            assert [(event.type, event.data) for event in rest(seen)] == [(LOST, 2), (LOST, None)]
            gateway.runs.feeds.end("run_1")
            gateway.runs.feeds.end("run_2")
            assert [each["events"] async for each in feed] == [2, None]
            assert [each async for each in own] == [], "a run that is driven here loses nothing"

    run(story)


def test_the_end_of_a_run_elsewhere_ends_its_feeds(run: Run, sqlite_url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with joined(sqlite_url, tmp_path) as (gateway, live, _):
            assert isinstance(gateway.runs, Runs)
            feed = gateway.runs.feeds.subscribe("run_1")
            for type in ("run.started", "run.started", "response.delta", "run.completed", "response.delta"):
                live.on_event("run", "run_1", msgspec.json.encode({"type": type}))
            for body in (b"[]", b"{}", b'{"type": 1}'):
                live.on_event("run", "run_2", body)
            live.on_event("invocation", "inv_1", b"{}")
            assert [each["type"] async for each in feed] == ["run.started", "response.delta", "run.completed"]
            assert gateway.runs.feeds.watched == frozenset()

    run(story)


@requirement("host:live-streams")
def test_an_end_that_only_the_database_has_comes_after_a_gap(run: Run, sqlite_url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with joined(sqlite_url, tmp_path) as (gateway, _, seen):
            database, opened = gateway.database, record(1)
            feed = gateway.runs.feeds.subscribe("run_1")
            await database.write(invocation_rows.opening(opened))
            async with database.transaction() as tx:
                await tx.execute(INVOCATIONS.update().values(owner="gw_2"))
                await sessions.insert(tx, session("sess_1"))
                await chains.insert(tx, chain("ch_1"))
                await runs.insert(tx, run_row("run_1", owner="gw_2"))
            await look(gateway)
            await database.write(invocation_rows.closing(ended(opened)))
            async with database.transaction() as tx:
                await runs.end(tx, "run_1", "gw_2", status="completed", completed_at=3.0)
            for _ in range(3):
                await look(gateway)
            shown = [(event.type, event.data) for event in rest(seen)]
            assert shown == [(STARTED, None), (LOST, None), (ENDED, None)]
            assert [each["type"] async for each in feed] == ["lost", "run.completed"]

    run(story)


async def look(gateway: Gateway) -> None:
    """At the rows of other gateways."""
    async with gateway.database.reading() as tx:
        await gateway.invocations.others.look(tx)
        await gateway.runs.look_at_others(tx)


@requirement("host:live-streams")
def test_a_watcher_is_told_of_events_that_it_may_have_missed_at_first(
    run: Run, sqlite_url: str, tmp_path: Path
) -> None:
    """Its org was perhaps not listened to since the events came that it has already, for another watcher."""

    async def story() -> None:
        async with joined(sqlite_url, tmp_path) as (gateway, live, seen):
            gateway.invocation_events.share(InvocationEvent(EVENT, record(1), 1))
            _, kind, id, body = live.sent.pop()
            live.on_event(kind, id, body)
            relayed, here = gateway.runs.feeds.subscribe("run_1"), gateway.runs.feeds.subscribe("run_2")
            live.on_event("run", "run_1", msgspec.json.encode({"type": "response.delta"}))
            gateway.runs.feeds.show("run_2", {"type": "response.delta"})
            async with gateway.live.watching(seen), gateway.live.watching(relayed), gateway.live.watching(here):
                live.on_event(kind, id, body)
                live.listens, late = False, gateway.runs.feeds.subscribe("run_2")
                async with gateway.live.watching(late):
                    gateway.runs.feeds.show("run_2", {"type": "response.delta"})
                    gateway.runs.feeds.end("run_1")
                    gateway.runs.feeds.end("run_2")
            assert [each.type for each in rest(seen)] == [EVENT, LOST, EVENT]
            assert [each["type"] async for each in relayed] == ["response.delta", "lost"]
            assert [each["type"] async for each in here] == ["response.delta", "response.delta"]
            assert [each["type"] async for each in late] == ["lost", "response.delta"]

    run(story)


def test_without_nats_there_is_nothing_to_miss(run: Run, sqlite_url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            feed = gateway.runs.feeds.subscribe("run_1")
            async with gateway.live.watching(feed):
                gateway.runs.feeds.end("run_1")
            assert [each async for each in feed] == []

    run(story)
