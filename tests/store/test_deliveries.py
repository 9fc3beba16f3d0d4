"""Rows of deliveries: who holds one, and what may be written about it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from plugbay.store import deliveries, events
from plugbay.store.database import Database, Tx
from plugbay.store.pages import Page
from plugbay.store.rows import EVERYBODY
from tests.store.conversing_rows import delivery, event
from tests.support.loops import Run
from tests.support.requirements import requirement

FAR = 10_000.0


@asynccontextmanager
async def an_event(url: str) -> AsyncIterator[Tx]:
    database = await Database.open(url, migrate=False)
    async with database.transaction() as tx:
        await events.insert(tx, event("evt_1"))
        yield tx
    await database.close()


@requirement("vai:control-outbox")
def test_a_binding_is_told_of_an_event_under_one_delivery(database_url: str, run: Run) -> None:
    async def main() -> None:
        async with an_event(database_url) as tx:
            assert await deliveries.insert(tx, delivery("del_1", binding_id="bind_1"))
            assert not await deliveries.insert(tx, delivery("del_2", binding_id="bind_1"))
            assert await deliveries.counts(tx) == {"pending": 1}

    run(main)


def test_what_is_due_is_claimed_the_longest_due_first(database_url: str, run: Run) -> None:
    async def main() -> None:
        async with an_event(database_url) as tx:
            assert await deliveries.next_due(tx) is None
            for id, due_at in (("del_1", 3.0), ("del_2", 2.0), ("del_3", 9.0), ("del_4", FAR + 1)):
                await deliveries.insert(tx, delivery(id, due_at=due_at))
            assert await deliveries.next_due(tx) == 2.0
            first = await deliveries.claim(tx, "gw_1", 5.0, 35.0, FAR, 1)
            assert [(each.id, each.attempts, each.lease_owner) for each in first] == [("del_2", 1, "gw_1")]
            rest = await deliveries.claim(tx, "gw_2", 5.0, 35.0, FAR, 9)
            assert [each.id for each in rest] == ["del_1", "del_4"], "what is due beyond reason is due"
            assert await deliveries.claim(tx, "gw_2", 5.0, 35.0, FAR, 9) == []
            lost = await deliveries.claim(tx, "gw_3", 35.0, 65.0, FAR, 9)
            assert sorted((each.id, each.attempts) for each in lost) == [
                ("del_1", 2),
                ("del_2", 2),
                ("del_3", 1),
                ("del_4", 2),
            ]

    run(main)


@requirement("vai:control-delivery-one-success")
def test_only_whoever_holds_it_writes_what_came_of_it(database_url: str, run: Run) -> None:
    async def main() -> None:
        async with an_event(database_url) as tx:
            await deliveries.insert(tx, delivery("del_1"))
            [late] = await deliveries.claim(tx, "gw_1", 5.0, 35.0, FAR, 9)
            await deliveries.renew(tx, "gw_2", frozenset({"del_1"}), 99.0)
            [held] = await deliveries.claim(tx, "gw_2", 36.0, 66.0, FAR, 9)
            await deliveries.renew(tx, "gw_2", frozenset({"del_1"}), 96.0)
            done = {"outcome": "succeeded", "ended_at": 40.0}
            assert not await deliveries.conclude(tx, late, done, status="delivered", completed_at=40.0)
            assert await deliveries.conclude(tx, held, done, status="delivered", completed_at=40.0)
            assert not await deliveries.conclude(tx, held, done, status="pending")
            found = await deliveries.find(tx, "del_1")
            assert found is not None and (found.status, found.lease_owner) == ("delivered", None)
            attempts = await deliveries.attempts(tx, "del_1")
            assert [(each.attempt, each.outcome) for each in attempts] == [(1, None), (2, "succeeded")]

    run(main)


def test_what_was_delivered_is_not_due_again(database_url: str, run: Run) -> None:
    async def main() -> None:
        async with an_event(database_url) as tx:
            for id, status in (("del_1", "delivered"), ("del_2", "dead_letter"), ("del_3", "pending")):
                await deliveries.insert(tx, delivery(id, status=status, attempts=8))
            assert not await deliveries.replay(tx, "del_1", 5.0, 8)
            assert await deliveries.replay(tx, "del_2", 5.0, 8)
            assert not await deliveries.replay(tx, "del_3", 5.0, 8)
            again = await deliveries.find(tx, "del_2")
            assert again is not None and (again.status, again.attempt_limit, again.due_at) == ("pending", 16, 5.0)

    run(main)


def test_what_waits_for_a_binding_is_dropped(database_url: str, run: Run) -> None:
    async def main() -> None:
        async with an_event(database_url) as tx:
            await deliveries.insert(tx, delivery("del_1", binding_id="bind_1"))
            await deliveries.insert(tx, delivery("del_2", binding_id="bind_2"))
            await events.insert(tx, event("evt_2", cause_id="run_2"))
            await deliveries.insert(tx, delivery("del_3", event_id="evt_2", binding_id="bind_1", created_at=9.0))
            assert await deliveries.drop(tx, "bind_1", "binding_disabled", 4.0, 5.0) == 1, "not what came later"
            part = await deliveries.page(tx, Page(), EVERYBODY, status="dropped")
            assert [(item.id, item.reason) for item in part.items] == [("del_1", "binding_disabled")]

    run(main)


def test_what_is_let_go_of_is_lost_at_once_and_given_up_after_its_last_attempt(database_url: str, run: Run) -> None:
    async def main() -> None:
        async with an_event(database_url) as tx:
            await deliveries.insert(tx, delivery("del_1", attempt_limit=2))
            await deliveries.claim(tx, "gw_1", 5.0, 35.0, FAR, 9)
            await deliveries.release(tx, "gw_1", 6.0)
            assert await deliveries.give_up_lost(tx, 6.0, FAR) == 0
            assert await deliveries.claim(tx, "gw_2", 6.0, 36.0, FAR, 9, frozenset({"del_1"})) == []
            [again] = await deliveries.claim(tx, "gw_2", 6.0, 36.0, FAR, 9)
            assert again.attempts == 2
            await deliveries.release(tx, "gw_2", 7.0)
            assert await deliveries.claim(tx, "gw_3", 7.0, 37.0, FAR, 9) == []
            assert await deliveries.give_up_lost(tx, 7.0, FAR, frozenset({"del_1"})) == 0, "somebody is still at it"
            assert await deliveries.give_up_lost(tx, 7.0, FAR) == 1
            assert await deliveries.counts(tx) == {"dead_letter": 1}

    run(main)
