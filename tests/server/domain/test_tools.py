"""What models ask of tools: one result for each call, in their order, all at once."""

from __future__ import annotations

import asyncio
from typing import Any

from plugbay.model.errors import Code, Failure, Origin
from plugbay.server.domain.run_requests import Wanted
from plugbay.server.domain.workers import Job
from plugbay.store import runs as rows
from tests.support.conversing import CALLER, ScriptedWorkers, calls, conversing, result_of, says
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.requirements import requirement


def shape(blocks: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    return [(block["kind"], block.get("name") or _text(block)) for block in blocks]


def _text(block: dict[str, Any]) -> str | None:
    return block["content"][0]["text"] if block["content"] else None


@requirement("vai:control-tool-results")
def test_results_come_in_the_order_of_the_calls_whoever_is_faster(run: Run, database_url: str) -> None:
    async def story() -> None:
        workers, fast_is_done = ScriptedWorkers(), asyncio.Event()

        async def slow(job: Job) -> Any:
            await fast_is_done.wait()
            return result_of("slow is done")

        async def fast(job: Job) -> Any:
            fast_is_done.set()
            return result_of("fast is done")

        workers.bind("tool", "slow", slow)
        workers.bind("tool", "fast", fast)
        asked = calls(("slow", {}), ("fast", {}), text="let me see")
        async with conversing(database_url, asked, says("both"), workers=workers) as talk:
            done = await talk.answered("go")
            assert (done.status, done.tool_count, done.turn_count) == ("completed", 2, 2)
            blocks = await talk.blocks(done.chain_id)
            assert shape(blocks) == [
                ("input", "go"),
                ("response", "let me see"),
                ("tool_call", "slow"),
                ("tool_call", "fast"),
                ("tool_result", "slow is done"),
                ("tool_result", "fast is done"),
                ("response", "both"),
            ]
            ids = [block["tool_call_id"] for block in blocks if "tool_call_id" in block]
            assert ids[:2] == ids[2:] and len(set(ids)) == 2
            assert {job.run_id for job in workers.jobs} == {done.id}
            assert [job.execution_id for job in workers.jobs] == [
                block["tool_execution_id"] for block in blocks if block["kind"] == "tool_result"
            ]
            roles = [message["role"] for message in talk.server.seen[1].body["messages"]]
            assert roles == ["user", "assistant", "tool", "tool"]

    run(story)


@requirement("vai:control-tool-no-dangling")
def test_no_call_is_in_the_chain_before_its_result(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        workers, go_on = ScriptedWorkers(), asyncio.Event()

        async def tool(job: Job) -> Any:
            await go_on.wait()
            return result_of("done")

        workers.bind("tool", "t", tool)
        async with conversing(sqlite_url, calls(("t", {})), says("ok"), workers=workers) as talk:
            begun = await talk.begun("go")
            await until(lambda: bool(workers.jobs))
            assert [block["kind"] for block in await talk.blocks(begun.chain_id)] == ["input"]
            go_on.set()
            await talk.ended(begun)
            assert [block["kind"] for block in await talk.blocks(begun.chain_id)] == [
                "input",
                "tool_call",
                "tool_result",
                "response",
            ]

    run(story)


def test_a_cancelled_batch_leaves_no_call_behind(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        workers = ScriptedWorkers()

        async def tool(job: Job) -> Any:
            await asyncio.Event().wait()

        workers.bind("tool", "t", tool)
        async with conversing(sqlite_url, calls(("t", {})), workers=workers) as talk:
            begun = await talk.begun("go")
            await until(lambda: bool(workers.jobs))
            await talk.conversations.runs.cancel(CALLER, begun.id)
            done = await talk.ended(begun)
            assert done.status == "cancelled"
            assert [block["kind"] for block in await talk.blocks(begun.chain_id)] == ["input"]
            async with talk.database.reading() as tx:
                tools = await rows.tools(tx, begun.id)
            assert [(tool.status, tool.execution_outcome) for tool in tools] == [("cancelled", "unknown")]

    run(story)


@requirement("vai:control-tool-failures")
def test_every_failure_is_a_result_that_the_model_sees(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        workers = ScriptedWorkers()

        async def failing(job: Job) -> Any:
            said = "the password is hunter22"
            return Failure(Code.PLUGIN_ERROR, said, origin=Origin.PLUGIN, detail={"plugin_code": "jira.down"})

        async def picky(job: Job) -> Any:
            return Failure(Code.INVALID_INPUT, "the input does not fit: city is missing")

        async def erring(job: Job) -> Any:
            return result_of("no such issue", is_error=True)

        for name, does in (("failing", failing), ("picky", picky), ("erring", erring), ("gone", erring)):
            workers.bind("tool", name, does)
        asked = calls(("failing", {}), ("picky", {}), ("erring", {}), ("gone", {}), ("unheard_of", {}))
        async with conversing(sqlite_url, asked, says("I see"), workers=workers) as talk:
            chain = await talk.chain()
            begun = await talk.begun("go", chain)
            workers.inactive.add("bind_gone")  # it was there when the run began
            done = await talk.ended(begun)
            assert done.status == "completed"
            results = [block for block in await talk.blocks(chain.id) if block["kind"] == "tool_result"]
            assert [block["is_error"] for block in results] == [True] * 5
            texts = [_text(block) for block in results]
            assert texts == [
                "The tool failing failed: jira.down.",
                "the input does not fit: city is missing",
                "no such issue",
                "The tool gone is not available.",
                "There is no tool called unheard_of.",
            ]

    run(story)


@requirement("vai:control-tool-unknown-outcome")
def test_a_run_stops_when_nobody_knows_what_a_tool_did(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        workers = ScriptedWorkers()

        async def lost(job: Job) -> Any:
            return Failure(Code.CRASHED, "it is gone", detail={"execution_outcome": "unknown"})

        workers.bind("tool", "pay", lost, effect_class="non_idempotent_write")
        async with conversing(sqlite_url, calls(("pay", {})), says("never said"), workers=workers) as talk:
            done = await talk.answered("pay")
            assert (done.status, done.stop_reason) == ("failed", "error")
            assert done.error is not None and done.error["code"] == "run.tool_outcome_unknown"
            blocks = await talk.blocks(done.chain_id)
            assert [block["kind"] for block in blocks] == ["input", "tool_call", "tool_result"]
            assert blocks[-1]["is_error"] is True
            assert len(talk.server.seen) == 1

    run(story)


@requirement("vai:control-run-limits")
def test_a_run_stops_at_its_limits_with_nothing_dangling(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        workers = ScriptedWorkers()

        async def tool(job: Job) -> Any:
            return result_of("more")

        workers.bind("tool", "t", tool)
        endless = calls(("t", {}), ("t", {}), text="again")
        async with conversing(sqlite_url, endless, workers=workers) as talk:
            turns = await talk.answered("go", wanted=Wanted(limits={"max_turns": 2}))
            assert (turns.status, turns.stop_reason, turns.tool_count) == ("completed", "max_turns", 2)
            tools = await talk.answered("go", wanted=Wanted(limits={"max_tool_calls": 3}))
            assert (tools.status, tools.stop_reason, tools.tool_count) == ("completed", "max_tool_calls", 2)
            for done in (turns, tools):
                kinds = [block["kind"] for block in await talk.blocks(done.chain_id)]
                assert kinds.count("tool_call") == kinds.count("tool_result") == 2
                assert kinds[-1] == "response"

    run(story)


def test_arguments_that_are_no_object_reach_no_tool(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        from tests.support.openai_server import delta, events, streamed

        workers = ScriptedWorkers()

        async def tool(job: Job) -> Any:
            return result_of("no")

        workers.bind("tool", "t", tool)
        call = {"index": 0, "id": "c", "function": {"name": "t", "arguments": "[1, 2"}}
        broken = streamed([events(delta(tool_calls=[call]), delta("tool_calls"))])
        async with conversing(sqlite_url, broken, says("sorry"), workers=workers) as talk:
            done = await talk.answered("go")
            assert done.status == "completed"
            assert workers.jobs == []

    run(story)


def test_a_result_that_is_too_large_is_an_error(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        workers = ScriptedWorkers()

        async def tool(job: Job) -> Any:
            return result_of("x" * (5 << 20))

        workers.bind("tool", "t", tool)
        async with conversing(sqlite_url, calls(("t", {})), says("too much"), workers=workers) as talk:
            done = await talk.answered("go")
            results = [block for block in await talk.blocks(done.chain_id) if block["kind"] == "tool_result"]
            assert [_text(block) for block in results] == ["What t gave back is too large."]

    run(story)
