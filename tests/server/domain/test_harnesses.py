"""Executions of harnesses: started, ended once, resumed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from plugbay.host.ports import ResumeState
from plugbay.host.request import CallRequest
from plugbay.model.errors import Code, Failure
from plugbay.server.domain.errors import GatewayError, conflict
from plugbay.server.domain.harnesses import HarnessRequest
from plugbay.server.domain.principal import OPERATOR
from plugbay.store import checkpoints
from plugbay.store.harnesses import HarnessExecution
from plugbay.store.pages import Page
from tests.support.conversing import CALLER, STRANGER, ScriptedWorkers, Talk, conversing, settled
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.requirements import requirement

TRIGGER = {"type": "user_request", "input": [{"type": "text", "text": "triage"}]}
POLICY = {"max_depth": 4, "max_child_runs": 2, "allow_compaction": True}
DONE = {"summary": {"text": "all is well"}, "artifacts": [{"path": "a"}], "checkpoint": {"kind": "c", "data": {}}}


async def succeeds(work: CallRequest) -> Any:
    return DONE


def harness(does: Any = succeeds, **facts: Any) -> ScriptedWorkers:
    workers = ScriptedWorkers()
    workers.bind("harness", "h", does, **facts)
    return workers


def errand(**more: Any) -> HarnessRequest:
    return HarnessRequest("bind_h", TRIGGER, POLICY, **more)


async def ended(talk: Talk, execution: HarnessExecution) -> HarnessExecution:
    async def look() -> HarnessExecution:
        return (await talk.conversations.harnesses.get(CALLER, execution.id))[0]

    return await settled(look, lambda now: now.completed_at is not None)


async def reached(talk: Talk, execution: HarnessExecution, **more: Any) -> None:
    """The host has kept a checkpoint."""
    journey = ResumeState(**{"trigger": TRIGGER, "checkpoint": {"kind": "checkpoint", "data": {"cursor": 3}}, **more})
    async with talk.database.transaction() as tx:
        await checkpoints.save(tx, f"org_1:{execution.id}", journey, 1.0)


@requirement("vai:control-harness")
def test_a_harness_works_on_a_chain_and_ends(run: Run, database_url: str) -> None:
    async def story() -> None:
        async with conversing(database_url, workers=harness()) as talk:
            chain = await talk.chain("bug")
            begun = await talk.conversations.harnesses.create(CALLER, errand(chain_id=chain.id))
            assert (begun.status, begun.mode) == ("queued", "start")
            done = await ended(talk, begun)
            assert (done.status, done.summary, done.artifacts) == ("succeeded", DONE["summary"], DONE["artifacts"])
            [work] = talk.workers.received
            assert work.input == {
                "mode": "start",
                "target": {"session_id": chain.session_id, "chain_id": chain.id, "execution_id": begun.id},
                "trigger": TRIGGER,
                "policy": POLICY,
            }
            assert (work.execution_id, work.session_id) == (begun.id, chain.session_id)

    run(story)


def test_without_a_chain_it_gets_one(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url, workers=harness()) as talk:
            create = talk.conversations.harnesses.create
            fresh = await create(CALLER, errand())
            of_operator = await create(OPERATOR, errand(org_id="org_1"))
            session = await talk.conversations.sessions.get(CALLER, fresh.session_id)
            assert (session.latest_chain_id, of_operator.org_id) == (fresh.chain_id, "org_1")
            same = await create(CALLER, errand(session_id=session.id))
            assert same.chain_id == fresh.chain_id
            with pytest.raises(GatewayError) as refused:
                await create(CALLER, errand(session_id=of_operator.session_id, chain_id=fresh.chain_id))
            assert refused.value.code == "harness.other_session"
            with pytest.raises(GatewayError) as refused:
                await create(CALLER, HarnessRequest("bind_9", TRIGGER, POLICY))
            assert refused.value.code == "harness.no_binding"

    run(story)


@requirement("vai:control-harness-cancel")
def test_a_harness_can_be_cancelled(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async def works_on(work: CallRequest) -> Any:
            await asyncio.Event().wait()

        async with conversing(sqlite_url, workers=harness(works_on)) as talk:
            harnesses = talk.conversations.harnesses
            begun = await harnesses.create(CALLER, errand())
            await until(lambda: bool(talk.workers.received))
            with pytest.raises(GatewayError) as refused:
                await harnesses.resume(CALLER, begun.id)
            assert refused.value.code == "harness.not_ended"
            await harnesses.cancel(CALLER, begun.id)
            done = await ended(talk, begun)
            assert (done.status, done.error) == (
                "cancelled",
                {"code": "harness.cancelled", "message": "user_cancelled"},
            )
            assert (await harnesses.cancel(CALLER, begun.id)).status == "cancelled"

    run(story)


@requirement("vai:control-harness-resume")
def test_a_harness_goes_on_from_its_checkpoint(run: Run, database_url: str) -> None:
    async def story() -> None:
        answers: list[Any] = [Failure(Code.CRASHED, "gone", retryable=True), DONE]

        async def crashes_once(work: CallRequest) -> Any:
            return answers.pop(0)

        async with conversing(database_url, workers=harness(crashes_once)) as talk:
            harnesses = talk.conversations.harnesses
            begun = await harnesses.create(CALLER, errand())
            crashed = await ended(talk, begun)
            assert (crashed.status, crashed.error and crashed.error["code"]) == ("retryable_failure", "crashed")
            with pytest.raises(GatewayError) as refused:
                await harnesses.resume(CALLER, begun.id)
            assert refused.value.code == "harness.nothing_to_resume"
            await reached(talk, begun)
            assert (await harnesses.get(CALLER, begun.id))[1] == {"kind": "checkpoint", "data": {"cursor": 3}}
            resumed = await harnesses.resume(CALLER, begun.id)
            assert (resumed.id, resumed.mode, resumed.resumes) == (begun.id, "resume", 1)
            done = await ended(talk, begun)
            assert (done.status, done.error) == ("succeeded", None)
            assert talk.workers.received[-1].input["mode"] == "resume"
            assert "trigger" not in talk.workers.received[-1].input

    run(story)


@requirement("vai:control-harness-restart")
def test_a_harness_that_was_at_work_when_its_gateway_died_waits_to_be_resumed(run: Run, database_url: str) -> None:
    async def story() -> None:
        async def works_on(work: CallRequest) -> Any:
            await asyncio.Event().wait()

        async with conversing(database_url, workers=harness(works_on)) as talk:
            begun = await talk.conversations.harnesses.create(CALLER, errand())
            await until(lambda: bool(talk.workers.received))
            async with conversing(database_url, workers=harness()) as after:
                left = await ended(after, begun)
                assert (left.status, left.error and left.error["code"]) == (
                    "retryable_failure",
                    "harness.host_restarted",
                )
                assert after.workers.received == [], "its steps had effects, so it is not begun again by itself"

    run(story)


def test_an_execution_that_cannot_start_fails(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        answers: list[Exception] = [conflict("binding.secret_not_found", "no key"), KeyError("a bug")]

        async def refuses(work: CallRequest) -> Any:
            raise answers.pop(0)

        async with conversing(sqlite_url, workers=harness(refuses)) as talk:
            codes = []
            for _ in range(2):
                done = await ended(talk, await talk.conversations.harnesses.create(CALLER, errand()))
                codes.append((done.status, done.error and done.error["code"]))
            assert codes == [("failed", "binding.secret_not_found"), ("failed", "harness.internal")]

    run(story)


@requirement("vai:control-cross-tenant")
def test_another_orgs_executions_are_not_there(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url, workers=harness()) as talk:
            harnesses = talk.conversations.harnesses
            done = await ended(talk, await harnesses.create(CALLER, errand()))
            for ask in (harnesses.get, harnesses.cancel, harnesses.resume):
                with pytest.raises(GatewayError) as refused:
                    await ask(STRANGER, done.id)
                assert refused.value.status == 404
            assert (await harnesses.page(STRANGER, Page())).items == ()
            assert [item.id for item in (await harnesses.page(CALLER, Page(), binding_id="bind_h")).items] == [done.id]

    run(story)


@requirement("vai:control-harness-fidelity")
def test_a_summary_reseed_goes_on_in_a_fresh_chain_with_the_summary(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url, workers=harness(fidelity="summary_reseed")) as talk:
            harnesses, chains = talk.conversations.harnesses, talk.conversations.chains
            chain = await talk.chain("bug")
            before = await chains.get(CALLER, chain.id)
            begun = await ended(talk, await harnesses.create(CALLER, errand(chain_id=chain.id)))
            with pytest.raises(GatewayError) as refused:
                await harnesses.resume(CALLER, begun.id)
            assert refused.value.code == "harness.nothing_to_resume"
            await reached(talk, begun)
            with pytest.raises(GatewayError) as refused:  # a checkpoint is not what it resumes from
                await harnesses.resume(CALLER, begun.id)
            assert (refused.value.code, "summary_reseed" in refused.value.message) == (
                "harness.nothing_to_resume",
                True,
            )
            await reached(talk, begun, summary="half done")
            resumed = await ended(talk, await harnesses.resume(CALLER, begun.id))
            assert resumed.chain_id != chain.id
            fresh = await chains.get(CALLER, resumed.chain_id)
            assert (fresh.parent_chain_id, fresh.session_id, fresh.block_count) == (chain.id, chain.session_id, 1)
            _, [first] = await chains.context(CALLER, fresh.id)
            assert first["content"] == [{"type": "text", "text": "half done"}]
            assert await chains.get(CALLER, chain.id) == before
            assert talk.workers.received[-1].input["target"]["chain_id"] == fresh.id

    run(story)


@requirement("vai:control-harness-fidelity")
def test_a_prompt_replay_needs_no_checkpoint_and_stays_on_its_chain(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url, workers=harness(fidelity="prompt_replay")) as talk:
            harnesses = talk.conversations.harnesses
            begun = await ended(talk, await harnesses.create(CALLER, errand()))
            await reached(talk, begun, checkpoint=None)
            resumed = await ended(talk, await harnesses.resume(CALLER, begun.id))
            assert (resumed.chain_id, resumed.mode) == (begun.chain_id, "resume")

    run(story)


@requirement("vai:host-harness-supports")
def test_a_harness_that_does_not_support_something_is_refused_it(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url, workers=harness(supports=["tool"])) as talk:
            harnesses = talk.conversations.harnesses
            begun = await harnesses.create(CALLER, errand())
            assert begun.policy == {**POLICY, "allow_compaction": False}
            await reached(talk, await ended(talk, begun))
            with pytest.raises(GatewayError) as refused:
                await harnesses.resume(CALLER, begun.id)
            assert (refused.value.code, refused.value.details["supports"]) == ("harness.not_supported", ["tool"])

    run(story)


@requirement("vai:host-harness-mode")
def test_a_harness_of_an_unknown_mode_is_not_started(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url, workers=harness(mode="swarm")) as talk:
            with pytest.raises(GatewayError) as refused:
                await talk.conversations.harnesses.create(CALLER, errand())
            assert (refused.value.code, refused.value.status) == ("harness.unsupported_mode", 422)

    run(story)


@requirement("vai:control-policy-limits")
def test_the_limits_of_a_binding_narrow_those_of_the_request(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        workers = harness()
        bound, does = workers.bindings["bind_h"]
        limits = {"max_child_runs": 1, "max_depth": 9, "allow_compaction": False}
        workers.bindings["bind_h"] = (replace(bound, limits=limits), does)
        async with conversing(sqlite_url, workers=workers) as talk:
            begun = await ended(talk, await talk.conversations.harnesses.create(CALLER, errand()))
            narrowed = {"max_child_runs": 1, "max_depth": POLICY["max_depth"], "allow_compaction": False}
            assert begun.policy == talk.workers.received[-1].input["policy"] == narrowed

    run(story)
