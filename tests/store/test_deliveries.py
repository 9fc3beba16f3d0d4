"""Deliveries: leases, and guarded updates."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from plugbay.store import deliveries, events
from plugbay.store.database import Database, Tx
from plugbay.store.pages import Page
from plugbay.store.rows import ALL_TENANTS
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
def test_a_binding_has_one_delivery_per_event(database_url: str, run: Run) -> None:
    async def main() -> None:
        async with an_event(database_url) as tx:
            assert await deliveries.insert(tx, delivery("del_1", binding_id="bind_1"))
            assert not await deliveries.insert(tx, delivery("del_2", binding_id="bind_1"))
            assert await deliveries.counts(tx) == {"pending": 1}

    run(main)


def test_what_is_due_is_claimed_the_longest_due_first(database_url: str, run: Run) -> None:
    async def main() -> None:
        async with an_event(database_url) as tx:
            for id, due_at in (("del_1", 3.0), ("del_2", 2.0), ("del_3", 9.0), ("del_4", FAR + 1)):
                await deliveries.insert(tx, delivery(id, due_at=due_at))
            first = await deliveries.claim(tx, "gw_1", 5.0, 35.0, FAR, 1)
            assert [(each.id, each.attempts, each.lease_owner) for each in first] == [("del_2", 1, "gw_1")]
            rest = await deliveries.claim(tx, "gw_2", 5.0, 35.0, FAR, 9)
            assert [each.id for each in rest] == ["del_1", "del_4"], "what is due beyond reason is due"
            assert await deliveries.claim(tx, "gw_2", 5.0, 35.0, FAR, 9) == []
            assert await deliveries.interrupt_lost(tx, 35.0, FAR, 20) == 3
            lost = await deliveries.claim(tx, "gw_3", 35.0, 65.0, FAR, 9)
            assert sorted((each.id, each.attempts) for each in lost) == [
                ("del_1", 2),
                ("del_2", 2),
                ("del_3", 1),
                ("del_4", 2),
            ]

    run(main)


@requirement("vai:control-delivery-one-success")
def test_only_the_lease_holder_records_the_outcome(database_url: str, run: Run) -> None:
    async def main() -> None:
        async with an_event(database_url) as tx:
            await deliveries.insert(tx, delivery("del_1"))
            [late] = await deliveries.claim(tx, "gw_1", 5.0, 35.0, FAR, 9)
            await deliveries.renew(tx, "gw_2", frozenset({"del_1"}), 99.0)
            assert await deliveries.interrupt_lost(tx, 36.0, FAR, 20) == 1
            [held] = await deliveries.claim(tx, "gw_2", 36.0, 66.0, FAR, 9)
            await deliveries.renew(tx, "gw_2", frozenset({"del_1"}), 96.0)
            done = {"outcome": "succeeded", "ended_at": 40.0}
            assert not await deliveries.conclude(tx, late, done, status="delivered", completed_at=40.0)
            assert await deliveries.conclude(tx, held, done, status="delivered", completed_at=40.0)
            assert not await deliveries.conclude(tx, held, done, status="pending")
            found = await deliveries.find(tx, "del_1")
            assert found is not None and (found.status, found.lease_owner) == ("delivered", None)
            attempts = await deliveries.attempts(tx, "del_1")
            assert [(each.attempt, each.outcome) for each in attempts] == [(1, "interrupted"), (2, "succeeded")]

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
            part = await deliveries.page(tx, Page(), ALL_TENANTS, status="dropped")
            assert [(item.id, item.reason) for item in part.items] == [("del_1", "binding_disabled")]

    run(main)


@requirement("vai:control-delivery-interrupted")
def test_what_is_let_go_of_is_interrupted_and_no_attempt_of_the_hooks(database_url: str, run: Run) -> None:
    async def main() -> None:
        async with an_event(database_url) as tx:
            await deliveries.insert(tx, delivery("del_1", attempt_limit=1))
            for number in range(1, 4):
                [held] = await deliveries.claim(tx, f"gw_{number}", 6.0, 36.0, FAR, 9)
                assert (held.attempts, held.attempt_limit, held.interruptions) == (number, number, number - 1)
                await deliveries.release(tx, f"gw_{number}", 6.0)
                assert await deliveries.claim(tx, "gw_9", 6.0, 36.0, FAR, 9) == [], "not before it is known to be lost"
                assert await deliveries.interrupt_lost(tx, 6.0, FAR, 2, frozenset({"del_1"})) == 0, "it is held"
                assert await deliveries.interrupt_lost(tx, 6.0, FAR, 2) == 1
            dead = await deliveries.find(tx, "del_1")
            assert dead is not None and (dead.status, dead.reason) == ("dead_letter", "interrupted_too_often")
            history = await deliveries.attempts(tx, "del_1")
            assert [(each.outcome, each.ended_at) for each in history] == [("interrupted", 6.0)] * 3
            assert await deliveries.replay(tx, "del_1", 7.0, 8)
            again = await deliveries.find(tx, "del_1")
            assert again is not None and (again.interruptions, again.attempt_limit) == (0, 11)

    run(main)


@requirement("vai:control-delivery-clock")
def test_what_waits_is_set_back_with_the_clock(database_url: str, run: Run) -> None:
    async def main() -> None:
        async with an_event(database_url) as tx:
            for id, due in (("del_1", 50.0), ("del_2", 700.5), ("del_3", 60.0)):
                await deliveries.insert(tx, delivery(id, due_at=due))
            await deliveries.claim(tx, "gw_1", 60.0, 690.0, FAR, 1)
            await deliveries.set_back(tx, 600.0, 90.0)
            found = {item.id: item for item in (await deliveries.page(tx, Page(), ALL_TENANTS)).items}
            assert (found["del_1"].lease_until, found["del_2"].due_at, found["del_3"].due_at) == (90.0, 100.5, 60.0)

    run(main)


def test_the_next_thing_to_do_is_what_is_due_or_lost_first_and_what_no_clock_could_have_written(
    database_url: str, run: Run
) -> None:
    async def main() -> None:
        async with an_event(database_url) as tx:
            assert await deliveries.next_due(tx, 5.0, 305.0, 35.0) is None
            await deliveries.insert(tx, delivery("del_1", due_at=5.0))
            await deliveries.claim(tx, "gw_1", 5.0, 30.0, FAR, 1)
            assert await deliveries.next_due(tx, 5.0, 305.0, 35.0) == 30.0
            assert await deliveries.next_due(tx, 5.0, 305.0, 35.0, frozenset({"del_1"})) is None
            assert await deliveries.next_due(tx, 5.0, 305.0, 29.0) == 5.0, "no lease is that long"
            await deliveries.insert(tx, delivery("del_2", binding_id="bind_2", due_at=20.0))
            await deliveries.insert(tx, delivery("del_3", binding_id="bind_3", due_at=600.0))
            assert await deliveries.next_due(tx, 5.0, 900.0, 35.0) == 20.0
            assert await deliveries.next_due(tx, 5.0, 305.0, 35.0) == 5.0, "no pause is that long"

    run(main)
