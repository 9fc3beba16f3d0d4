"""What led to a request, and what is charged to whom."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.server.domain.credentials import LIMITS
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.harnesses import HarnessRequest
from plugbay.server.domain.provenance import Provenance, find_provenance
from plugbay.server.domain.runs import NewRun
from plugbay.server.domain.workers import Job
from plugbay.store import deliveries as delivery_rows
from plugbay.store import runs as run_rows
from plugbay.store.harnesses import HarnessExecution
from plugbay.store.pages import Page
from plugbay.store.rows import ALL_TENANTS
from plugbay.store.runs import Run as RunRow
from tests.support.conversing import (
    CALLER,
    ScriptedWorkers,
    Talk,
    calls,
    conversing,
    delegated,
    result_of,
    says,
    settled,
)
from tests.support.loops import Run
from tests.support.requirements import requirement

HELLO = [{"kind": "input", "content": [{"type": "text", "text": "hello"}]}]


def plugins() -> ScriptedWorkers:
    async def tool(job: Job) -> Any:
        return result_of("42")

    async def hook(job: Job) -> Any:
        return {"status": "ack"}

    async def harness(job: Job) -> Any:
        return {"summary": {"text": "done"}, "artifacts": []}

    workers = ScriptedWorkers()
    workers.bind("tool", "t", tool)
    workers.bind("hook", "h", hook, subscribes_to=("run.completed",))
    workers.bind("harness", "x", harness)
    return workers


async def executed(talk: Talk, **policy: Any) -> HarnessExecution:
    chain = await talk.chain()
    return await talk.conversations.harnesses.create(CALLER, HarnessRequest("bind_x", {}, policy, chain_id=chain.id))


async def child(talk: Talk, chain_id: str, parent: str | None = None, **claims: Any) -> RunRow:
    """A run that a plugin starts which was called for the session of this chain."""
    chain = await talk.conversations.chains.get(CALLER, chain_id)
    plugin = delegated(["runs:write", "runs:read"], **{"session_id": chain.session_id, **claims})
    asked = NewRun(blocks=HELLO, parent_run_id=parent)
    return await talk.ended(await talk.conversations.runs.create(plugin, chain_id, asked))


def test_people_are_led_by_nothing(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url) as talk, talk.database.reading() as tx:
            assert await find_provenance(tx, CALLER) == Provenance()
            unheard_of = delegated([], export_kind="harness", execution_id="exec_9", trace_id="tr_9")
            assert await find_provenance(tx, unheard_of) == Provenance(depth=1, trace_id="tr_9")

    run(story)


@requirement("vai:control-causation-depth")
def test_what_a_hook_starts_hangs_on_the_event_it_was_told_of(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url, workers=plugins()) as talk:
            chain = await talk.chain()
            last = await talk.answered("go", chain)
            depths = []
            for number in range(1, 6):
                async with talk.database.reading() as tx:
                    told = (await delivery_rows.page(tx, Page(), ALL_TENANTS)).items
                assert len(told) == number
                depths.append(last.cause_depth)
                last = await child(talk, chain.id, export_kind="hook", execution_id=told[0].id, trace_id="tr_1")
            assert depths == [0, 1, 2, 3, 4]

            async def latest() -> str:
                async with talk.database.reading() as tx:
                    return (await delivery_rows.page(tx, Page(1), ALL_TENANTS)).items[0].status

            assert await settled(latest, lambda status: status != "pending") == "dropped"

    run(story)


@requirement("vai:control-harness-limits")
def test_a_harness_starts_as_many_runs_as_its_policy_allows(run: Run, database_url: str) -> None:
    async def story() -> None:
        async with conversing(database_url, workers=plugins()) as talk:
            execution = await executed(talk, max_child_runs=2)
            claims: dict[str, Any] = {
                "export_kind": "harness",
                "execution_id": execution.id,
                "session_id": execution.session_id,
                "policy": execution.policy,
            }
            for _ in range(2):
                made = await child(talk, execution.chain_id, **claims)
                assert (made.execution_id, made.depth) == (execution.id, 1)
            before = await talk.conversations.chains.get(CALLER, execution.chain_id)
            with pytest.raises(GatewayError) as refused:
                await child(talk, execution.chain_id, **claims)
            assert (refused.value.status, refused.value.code) == (403, "policy.limit_exceeded")
            assert refused.value.details == {"limit": "max_child_runs", "max": 2}
            assert await talk.conversations.chains.get(CALLER, execution.chain_id) == before

    run(story)


@requirement("vai:control-harness-limits")
@pytest.mark.parametrize("kind", ["harness", "tool", "hook", "compactor"])
def test_work_without_a_policy_has_the_usual_limits(run: Run, sqlite_url: str, kind: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url, workers=plugins()) as talk:
            chain = await talk.chain()
            claims: dict[str, Any] = {"export_kind": kind, "execution_id": "work_1", "policy": {}}
            for _ in range(LIMITS["max_child_runs"]):
                last = await child(talk, chain.id, **claims)
            with pytest.raises(GatewayError) as refused:
                await child(talk, chain.id, **claims)
            assert refused.value.details == {"limit": "max_child_runs", "max": 12}
            deep: dict[str, Any] = {**claims, "execution_id": "work_2"}
            for depth in range(2, LIMITS["max_depth"] + 1):
                last = await child(talk, chain.id, last.id, **deep)
                assert last.depth == depth
            with pytest.raises(GatewayError) as refused:
                await child(talk, chain.id, last.id, **deep)
            assert refused.value.details == {"limit": "max_depth", "max": 4}

    run(story)


@requirement("vai:control-harness-limits")
def test_nesting_ends_at_the_depth_of_the_policy(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url, workers=plugins()) as talk:
            execution = await executed(talk, max_depth=2, max_child_runs=100)
            claims: dict[str, Any] = {
                "export_kind": "harness",
                "execution_id": execution.id,
                "policy": execution.policy,
            }
            first = await child(talk, execution.chain_id, **claims)
            second = await child(talk, execution.chain_id, first.id, **claims)
            assert (first.depth, second.depth, second.parent_run_id) == (1, 2, first.id)
            with pytest.raises(GatewayError) as refused:
                await child(talk, execution.chain_id, second.id, **claims)
            assert refused.value.details == {"limit": "max_depth", "max": 2}

    run(story)


@requirement("vai:control-harness-limits")
def test_what_the_tools_of_its_runs_start_is_charged_to_the_harness(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        replies = (calls(("t", {})), says("ok"))
        async with conversing(sqlite_url, *replies, workers=plugins()) as talk:
            execution = await executed(talk, max_child_runs=2, max_depth=9)
            chain = await talk.chain()
            harness: dict[str, Any] = {
                "export_kind": "harness",
                "execution_id": execution.id,
                "policy": execution.policy,
            }
            outer = await child(talk, chain.id, **harness)
            async with talk.database.reading() as tx:
                [tool] = await run_rows.tools(tx, outer.id)
            claims: dict[str, Any] = {"export_kind": "tool", "execution_id": tool.id, "invocation_id": "inv_tool"}
            inner = await child(talk, chain.id, **claims)
            assert (inner.parent_run_id, inner.depth, inner.execution_id) == (outer.id, 2, execution.id)
            with pytest.raises(GatewayError) as refused:
                await child(talk, chain.id, **claims)
            assert refused.value.details == {"limit": "max_child_runs", "max": 2}

    run(story)
