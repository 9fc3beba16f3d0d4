"""Runs, timelines and tool executions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from plugbay.store import chains, runs, sessions
from plugbay.store.database import Database, Tx
from plugbay.store.pages import Page
from plugbay.store.rows import ALL_TENANTS
from plugbay.store.runs import ToolExecution
from tests.store.conversing_rows import chain, run_row, session
from tests.support.loops import Run
from tests.support.requirements import requirement


@asynccontextmanager
async def a_chain(url: str) -> AsyncIterator[Tx]:
    database = await Database.open(url, migrate=False)
    async with database.transaction() as tx:
        await sessions.insert(tx, session("sess_1"))
        await chains.insert(tx, chain("ch_1"))
        yield tx
    await database.close()


@requirement("vai:control-run-one-at-a-time")
def test_a_chain_has_one_run_without_an_end(database_url: str, run: Run) -> None:
    async def main() -> None:
        async with a_chain(database_url) as tx:
            assert await runs.insert(tx, run_row("run_1"))
            assert not await runs.insert(tx, run_row("run_2"))
            assert [each.id for each in await runs.unfinished(tx)] == ["run_1"]
            assert await runs.begin(tx, "run_1", 2.0)
            assert not await runs.begin(tx, "run_1", 3.0)
            assert not await runs.insert(tx, run_row("run_2"))
            assert await runs.end(tx, "run_1", None, status="completed", completed_at=3.0)
            assert not await runs.end(tx, "run_1", None, status="failed", completed_at=4.0)
            assert await runs.insert(tx, run_row("run_2"))
            found = await runs.find(tx, "run_1", lock=True)
            assert found is not None and (found.status, found.completed_at) == ("completed", 3.0)

    run(main)


def test_the_runs_of_other_gateways_are_found(database_url: str, run: Run) -> None:
    async def main() -> None:
        async with a_chain(database_url) as tx:
            await chains.insert(tx, chain("ch_2"))
            await chains.insert(tx, chain("ch_3"))
            for number, owner in enumerate(("gw_1", "gw_2", None), 1):
                assert await runs.insert(tx, run_row(f"run_{number}", chain_id=f"ch_{number}", owner=owner))
            ids = ("run_1", "run_2", "run_3", "run_4")
            assert [each.id for each in await runs.of_others(tx, ids, "gw_1")] == ["run_2"]
            assert await runs.of_others(tx, ["run_1"], "gw_1") == []

    run(main)


def test_a_cancelled_run_is_not_started(database_url: str, run: Run) -> None:
    async def main() -> None:
        async with a_chain(database_url) as tx:
            await runs.insert(tx, run_row("run_1"))
            await runs.change(tx, "run_1", cancel_requested=True)
            assert not await runs.begin(tx, "run_1", 2.0)

    run(main)


def test_what_turns_cost_is_added_up(database_url: str, run: Run) -> None:
    async def main() -> None:
        async with a_chain(database_url) as tx:
            await runs.insert(tx, run_row("run_1"))
            for _ in range(2):
                await runs.add_usage(tx, "run_1", 10, 5, turns=1, tools=3)
            found = await runs.find(tx, "run_1")
            assert found is not None
            assert (found.input_tokens, found.output_tokens, found.turn_count, found.tool_count) == (20, 10, 2, 6)

    run(main)


def test_a_timeline_is_numbered_and_read_in_parts(database_url: str, run: Run) -> None:
    async def main() -> None:
        async with a_chain(database_url) as tx:
            await runs.insert(tx, run_row("run_1"))
            numbers = [await runs.note(tx, "run_1", type, {"n": 1}, 1.0) for type in ("a", "b", "c")]
            assert numbers == [1, 2, 3]
            assert [each.type for each in await runs.timeline(tx, "run_1", after=1)] == ["b", "c"]

    run(main)


def test_tools_end_once_and_what_is_left_is_abandoned(database_url: str, run: Run) -> None:
    async def main() -> None:
        async with a_chain(database_url) as tx:
            await runs.insert(tx, run_row("run_1"))
            await runs.begin_tools(tx, *(tool(position) for position in (1, 0)))
            assert await runs.end_tool(tx, "toolx_0", status="succeeded", result=b"{}", ended_at=2.0)
            assert not await runs.end_tool(tx, "toolx_0", status="failed", ended_at=3.0)
            assert await runs.abandon_tools(tx, "run_1", 4.0) == 1
            found = await runs.tools(tx, "run_1")
            assert [(each.id, each.status, each.execution_outcome) for each in found] == [
                ("toolx_0", "succeeded", None),
                ("toolx_1", "cancelled", "unknown"),
            ]
            one = await runs.find_tool(tx, "toolx_0")
            assert one is not None and one.input == b'{"a":1}'

    run(main)


def test_runs_are_listed_by_what_is_asked_for(database_url: str, run: Run) -> None:
    async def main() -> None:
        async with a_chain(database_url) as tx:
            await runs.insert(tx, run_row("run_1", status="completed"))
            await runs.insert(tx, run_row("run_2", execution_id="exec_1"))
            part = await runs.page(tx, Page(), ALL_TENANTS, execution_id="exec_1")
            assert [item.id for item in part.items] == ["run_2"]
            assert (await runs.page(tx, Page(), ALL_TENANTS, only=frozenset({"sess_9"}))).items == ()

    run(main)


def tool(position: int) -> ToolExecution:
    return ToolExecution(
        id=f"toolx_{position}",
        run_id="run_1",
        turn=1,
        position=position,
        tool_call_id=f"call_{position}",
        name="t",
        binding_id="bind_1",
        status=None,
        execution_outcome=None,
        error_code=None,
        attempts=0,
        input=b'{"a":1}',
        result=None,
        started_at=1.0,
        ended_at=None,
    )


def test_two_who_write_to_a_timeline_at_once_wait_for_each_other(database_url: str, run: Run) -> None:
    async def main() -> None:
        async with a_chain(database_url) as tx:
            await runs.insert(tx, run_row("run_1"))
        database = await Database.open(database_url, migrate=False)

        async def note(type: str) -> int:
            async with database.transaction() as tx:
                return await runs.note(tx, "run_1", type, {}, 1.0)

        assert sorted(await asyncio.gather(*map(note, "abcdefgh"))) == [1, 2, 3, 4, 5, 6, 7, 8]
        await database.close()

    run(main)
