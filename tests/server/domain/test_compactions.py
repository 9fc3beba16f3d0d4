"""Compactions: a new chain, and an unchanged source."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plugbay.host.request import CallRequest
from plugbay.model.errors import Code, Failure, Origin
from plugbay.server.domain.compactions import CompactionRequest
from plugbay.server.domain.errors import GatewayError, conflict
from plugbay.server.domain.sessions import text_block
from plugbay.store import chains as chain_rows
from plugbay.store import compactions as rows
from plugbay.store import events as event_rows
from plugbay.store import invocations as invocation_rows
from plugbay.store.compactions import Compaction
from plugbay.store.pages import Page
from plugbay.store.rows import ALL_TENANTS
from tests.store.test_invocations import record
from tests.support.conversing import CALLER, STRANGER, ScriptedWorkers, Talk, conversing, delegated, settled
from tests.support.databases import run_write
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.requirements import requirement

TARGET = {"max_input_tokens": 1000}
POLICY = {"retain_system": True, "retain_open_tasks": True}
SEED = [{"kind": "input", "content": [{"type": "text", "text": "in short"}], "lineage": ["blk_1"]}]


async def shorten(work: CallRequest) -> Any:
    return {"seed_blocks": SEED, "summary": {"text": "short"}, "diagnostics": {"input_tokens_estimate": 9}}


def compactor(does: Any = shorten) -> ScriptedWorkers:
    workers = ScriptedWorkers()
    workers.bind("compactor", "c", does)
    return workers


def squeeze(chain_id: str, **more: Any) -> CompactionRequest:
    return CompactionRequest(chain_id, TARGET, POLICY, **more)


async def ended(talk: Talk, compaction: Compaction) -> Compaction:
    look = talk.conversations.compactions.get
    return await settled(lambda: look(CALLER, compaction.id), lambda now: now.completed_at is not None)


@requirement("vai:control-compaction")
def test_a_compaction_makes_a_new_chain_and_leaves_the_old_one_alone(run: Run, database_url: str) -> None:
    async def story() -> None:
        async with conversing(database_url, workers=compactor()) as talk:
            chain = await talk.chain("a", "b")
            async with talk.database.reading() as tx:
                before = await chain_rows.blocks(tx, chain.id)
            asked = await talk.conversations.compactions.create(CALLER, squeeze(chain.id))
            assert (asked.status, asked.new_chain_id) == ("queued", None)
            done = await ended(talk, asked)
            assert (done.status, done.error, done.summary) == ("succeeded", None, {"text": "short"})
            assert done.new_chain_id is not None
            made = await talk.conversations.chains.get(CALLER, done.new_chain_id)
            assert (made.parent_chain_id, made.created_by_compaction_id) == (chain.id, done.id)
            assert (made.session_id, made.defaults) == (chain.session_id, chain.defaults)
            [block] = await talk.blocks(made.id)
            assert (block["content"], block["lineage"]) == (SEED[0]["content"], ["blk_1"])
            async with talk.database.reading() as tx:
                assert await chain_rows.blocks(tx, chain.id) == before
                events = (await event_rows.page(tx, Page(), ALL_TENANTS)).items
            assert (await talk.conversations.chains.get(CALLER, chain.id)).digest == chain.digest == done.source_digest
            assert [(event.type, event.subject_id, event.summary) for event in events] == [
                (
                    "chain.compacted",
                    chain.id,
                    {
                        "compaction_id": done.id,
                        "source_chain_id": chain.id,
                        "new_chain_id": made.id,
                        "text": "short",
                    },
                )
            ]
            session = await talk.conversations.sessions.get(CALLER, chain.session_id)
            assert session.latest_chain_id == made.id
            [work] = talk.workers.received
            assert work.input["compaction_id"] == work.execution_id == done.id
            assert [each["kind"] for each in work.input["source"]["projection"]["blocks"]] == ["input", "input"]

    run(story)


@requirement("vai:control-compaction-idempotent")
def test_one_id_makes_one_chain(run: Run, database_url: str) -> None:
    async def story() -> None:
        async with conversing(database_url, workers=compactor()) as talk:
            chain, other = await talk.chain("a"), await talk.chain("b")
            create = talk.conversations.compactions.create
            asked = [
                await create(CALLER, squeeze(chain.id, compaction_id="cmp_mine")),
                await create(CALLER, squeeze(chain.id, compaction_id="cmp_mine")),
            ]
            assert {each.id for each in asked} == {"cmp_mine"}
            done = await ended(talk, asked[0])
            again = await create(CALLER, squeeze(chain.id, compaction_id="cmp_mine"))
            assert again == done
            assert len(talk.workers.received) == 1
            with pytest.raises(GatewayError) as refused:
                await create(CALLER, squeeze(other.id, compaction_id="cmp_mine"))
            assert refused.value.code == "compaction.id_conflict"

    run(story)


@requirement("vai:control-compaction-failure")
def test_a_failed_compaction_makes_no_chain_and_no_event(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        answers: list[Any] = [
            Failure(
                Code.PLUGIN_ERROR,
                "unusable",
                origin=Origin.PLUGIN,
                detail={"plugin_code": "compactor.invalid_seed", "breaches": ["no block"]},
            ),
            conflict("binding.not_active", "it is off"),
            KeyError("a bug"),
        ]

        async def fails(work: CallRequest) -> Any:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        async with conversing(sqlite_url, workers=compactor(fails)) as talk:
            chain = await talk.chain("a")
            wrong = []
            for _ in range(3):
                done = await ended(talk, await talk.conversations.compactions.create(CALLER, squeeze(chain.id)))
                assert (done.status, done.new_chain_id) == ("failed", None)
                wrong.append(done.error)
            assert wrong == [
                {"code": "compactor.invalid_seed", "message": "unusable", "breaches": ["no block"]},
                {"code": "binding.not_active", "message": "it is off"},
                {"code": "compaction.internal", "message": "a bug in plugbay; the server's log has the details"},
            ]
            assert len((await talk.conversations.chains.page(CALLER, Page())).items) == 1
            assert (await talk.conversations.events.page(CALLER, Page())).items == ()

    run(story)


@requirement("vai:control-compaction-restart", "vai:host-retry-count")
def test_compactions_of_a_killed_gateway_are_restarted_a_limited_number_of_times(run: Run, database_url: str) -> None:
    async def story() -> None:
        async def hangs(work: CallRequest) -> Any:
            await asyncio.Event().wait()

        async with conversing(database_url, workers=compactor(hangs)) as talk:
            chain = await talk.chain("a")
            asked = await talk.conversations.compactions.create(CALLER, squeeze(chain.id))
            await until(lambda: bool(talk.workers.received))
            assert talk.workers.received[0].attempt == 1
            async with talk.database.transaction() as tx:
                for number in (1, 2):  # it was tried twice before its gateway died
                    tried = invocation_rows.opening(record(number, execution_id=asked.id))
                    await run_write(tx, tried)
            async with conversing(database_url, workers=compactor()) as after:
                done = await ended(after, asked)
                assert (done.status, done.attempts) == ("succeeded", 2)
                assert [work.attempt for work in after.workers.received] == [3], "retry_count goes on"
            doomed = await talk.conversations.compactions.create(CALLER, squeeze(chain.id))
            await until(lambda: len(talk.workers.received) == 2)
            async with talk.database.transaction() as tx:
                for _ in range(2):
                    await rows.begin(tx, doomed.id, None, 1.0)
            async with conversing(database_url, workers=compactor()) as after:
                done = await ended(after, doomed)
                assert (done.status, done.error and done.error["code"]) == ("failed", "compaction.host_restarted")
        async with conversing(database_url) as later:
            assert (await later.conversations.compactions.get(CALLER, asked.id)).status == "succeeded"

    run(story)


def test_a_chain_may_grow_while_it_is_compacted(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        go_on = asyncio.Event()

        async def slowly(work: CallRequest) -> Any:
            await go_on.wait()
            return await shorten(work)

        async with conversing(sqlite_url, workers=compactor(slowly)) as talk:
            chain = await talk.chain("a")
            asked = await talk.conversations.compactions.create(CALLER, squeeze(chain.id))
            await until(lambda: bool(talk.workers.received))
            await talk.answered("more", chain)
            go_on.set()
            assert (await ended(talk, asked)).status == "succeeded"
            assert len(await talk.blocks(chain.id)) == 3

    run(story)


def test_the_compactor_is_named_or_the_only_one(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url) as talk:
            chain = await talk.chain("a")
            create = talk.conversations.compactions.create
            for wanted in (None, "bind_9"):
                with pytest.raises(GatewayError) as refused:
                    await create(CALLER, squeeze(chain.id, binding_id=wanted))
                assert (refused.value.code, refused.value.status) == ("compaction.no_compactor", 422)
            talk.workers.bind("compactor", "c", shorten)
            talk.workers.bind("compactor", "d", shorten)
            with pytest.raises(GatewayError) as refused:
                await create(CALLER, squeeze(chain.id))
            assert refused.value.details == {"candidates": ["bind_c", "bind_d"]}
            assert (await create(CALLER, squeeze(chain.id, binding_id="bind_d"))).binding_id == "bind_d"

    run(story)


@requirement("vai:host-compactor-context")
def test_the_context_of_a_conversation_chooses_the_compactor_and_must_fit_it(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url) as talk:
            chain = await talk.chain("a")
            create = talk.conversations.compactions.create
            talk.workers.bind("compactor", "c", shorten, target_context="coding")
            talk.workers.bind("compactor", "t", shorten, target_context="tea")

            def about(context: str, **more: Any) -> CompactionRequest:
                return CompactionRequest(chain.id, {**TARGET, "target_context": context}, POLICY, **more)

            chosen = await create(CALLER, about("tea"))
            assert chosen.binding_id == "bind_t"
            await ended(talk, chosen)
            assert talk.workers.received[-1].input["target"]["target_context"] == "tea"
            for wanted, code in ((about("law"), "no_compactor"), (about("tea", binding_id="bind_c"), "other_context")):
                with pytest.raises(GatewayError) as refused:
                    await create(CALLER, wanted)
                assert (refused.value.code, refused.value.status) == (f"compaction.{code}", 422)
                assert wanted.target["target_context"] in refused.value.message

    run(story)


def test_there_must_be_something_to_compact_and_to_pin(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url, workers=compactor()) as talk:
            empty, chain = await talk.chain(), await talk.chain("a")
            create = talk.conversations.compactions.create
            with pytest.raises(GatewayError) as refused:
                await create(CALLER, squeeze(empty.id))
            assert refused.value.code == "compaction.empty_chain"
            with pytest.raises(GatewayError) as refused:
                await create(CALLER, squeeze(chain.id, pinned=["blk_9"]))
            assert refused.value.code == "compaction.no_such_block"
            [block] = await talk.blocks(chain.id)
            await ended(talk, await create(CALLER, squeeze(chain.id, pinned=[block["id"]])))
            assert talk.workers.received[-1].input["source"]["projection"]["pinned_items"] == [text_block("input", "a")]

    run(story)


@requirement("vai:control-cross-tenant")
def test_compactions_are_visible_to_their_tenant(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url, workers=compactor()) as talk:
            chain = await talk.chain("a")
            compactions = talk.conversations.compactions
            done = await ended(talk, await compactions.create(CALLER, squeeze(chain.id)))
            outside = delegated(["compactions:read"], session_id="sess_other")
            for nosy in (STRANGER, outside):
                with pytest.raises(GatewayError) as refused:
                    await compactions.get(nosy, done.id)
                assert refused.value.status == 404
                assert (await compactions.page(nosy, Page())).items == ()
            writer = delegated(["compactions:write"], session_id=chain.session_id)
            with pytest.raises(GatewayError) as refused:
                await compactions.get(writer, done.id)
            assert (refused.value.status, refused.value.details) == (403, {"required": ["compactions:read"]})
            assert (await compactions.page(writer, Page())).items == ()
            assert [item.id for item in (await compactions.page(CALLER, Page(), status="succeeded")).items] == [done.id]

    run(story)


@requirement("vai:control-harness-limits")
def test_a_harness_that_may_not_compact_is_refused(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url, workers=compactor()) as talk:
            chain = await talk.chain("a")
            for allowed in (False, True):
                plugin = delegated(
                    ["compactions:write"],
                    session_id=chain.session_id,
                    export_kind="harness",
                    policy={"allow_compaction": allowed},
                )
                if allowed:
                    mine = await talk.conversations.compactions.create(plugin, squeeze(chain.id))
                    assert (await talk.conversations.compactions.get(plugin, mine.id)).invocation_id == "inv_1"
                    continue
                with pytest.raises(GatewayError) as refused:
                    await talk.conversations.compactions.create(plugin, squeeze(chain.id))
                assert (refused.value.code, refused.value.details) == (
                    "policy.limit_exceeded",
                    {"limit": "allow_compaction", "max": False},
                )

    run(story)
