"""What happened, and who is to be told: written with what makes it true, or not at all."""

from __future__ import annotations

import pytest

from plugbay.server.domain.events import Happening
from plugbay.store import deliveries as delivery_rows
from plugbay.store import events as rows
from plugbay.store.pages import Page
from plugbay.store.rows import ALL_TENANTS
from tests.support.conversing import CALLER, STRANGER, ScriptedWorkers, Talk, conversing, says
from tests.support.loops import Run
from tests.support.requirements import requirement


def happening(cause: str = "run_1") -> Happening:
    return Happening(
        type="run.completed",
        subject_kind="run",
        subject_id=cause,
        cause_id=cause,
        org_id="org_1",
        project_id="proj_1",
        session_id="sess_1",
        chain_id="ch_1",
        run_id=cause,
        summary={"task": "t", "output": "o"},
        trace_id="tr_1",
        cause_depth=1,
    )


def two_hooks() -> ScriptedWorkers:
    async def never(job: object) -> None:
        raise AssertionError("nobody delivers here")

    workers = ScriptedWorkers()
    for name in ("a", "b"):
        workers.bind("hook", name, never, subscribes_to=("run.completed",))
    workers.bind("hook", "deaf", never, subscribes_to=("chain.compacted",))
    return workers


async def kept(talk: Talk) -> tuple[list[str], list[tuple[str, str]]]:
    async with talk.database.reading() as tx:
        events = (await rows.page(tx, Page(), ALL_TENANTS)).items
        deliveries = (await delivery_rows.page(tx, Page(), ALL_TENANTS)).items
    return [event.id for event in events], sorted((each.event_id, each.binding_id) for each in deliveries)


@requirement("vai:control-outbox")
def test_an_event_comes_with_a_delivery_for_each_hook_that_wants_it(run: Run, database_url: str) -> None:
    async def story() -> None:
        async with conversing(database_url, workers=two_hooks(), started=False) as talk:
            told: list[int] = []
            talk.conversations.events.told = lambda: told.append(1)
            async with talk.database.transaction() as tx:
                await talk.conversations.events.record(tx, happening())
                assert told == [], "nobody is told before it is true"
            assert told == [1]
            [event], deliveries = await kept(talk)
            assert deliveries == [(event, "bind_a"), (event, "bind_b")]

    run(story)


@requirement("vai:control-outbox")
def test_what_is_taken_back_takes_its_event_along(run: Run, database_url: str) -> None:
    async def story() -> None:
        async with conversing(database_url, workers=two_hooks(), started=False) as talk:
            with pytest.raises(KeyError):
                async with talk.database.transaction() as tx:
                    await talk.conversations.events.record(tx, happening())
                    raise KeyError("something else went wrong")
            assert await kept(talk) == ([], [])

    run(story)


def test_a_cause_makes_an_event_of_one_type_once(run: Run, database_url: str) -> None:
    async def story() -> None:
        async with conversing(database_url, workers=two_hooks(), started=False) as talk:
            for _ in range(2):
                async with talk.database.transaction() as tx:
                    await talk.conversations.events.record(tx, happening())
            events, deliveries = await kept(talk)
            assert (len(events), len(deliveries)) == (1, 2)

    run(story)


def test_events_are_listed_for_those_who_see_them(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url, says("done")) as talk:
            done = await talk.answered("do it")
            events = talk.conversations.events
            [event] = (await events.page(CALLER, Page(), run_id=done.id)).items
            assert (event.type, event.subject_id, event.summary) == (
                "run.completed",
                done.id,
                {"task": "do it", "output": "done"},
            )
            assert (await events.page(CALLER, Page(), type="chain.compacted")).items == ()
            assert (await events.page(STRANGER, Page())).items == ()

    run(story)
