"""Conversations run bound exports; requests that plugins send back are traced and charged."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from plugbay.host.config import config
from plugbay.host.host import Host
from plugbay.host.request import CallRequest
from plugbay.server.domain.compactions import CompactionRequest
from plugbay.server.domain.credentials import LIMITS, Credentials
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.harnesses import HarnessRequest
from plugbay.server.domain.principal import OPERATOR
from plugbay.server.domain.runs import NewRun
from plugbay.server.domain.sessions import text_block
from plugbay.server.domain.settings import GatewaySettings
from plugbay.server.domain.workers import BoundWorkers, Budgets, Provenance, Workers, find_provenance, is_inactive
from plugbay.store import deliveries as delivery_rows
from plugbay.store import runs as run_rows
from plugbay.store.bindings import BindingRow
from plugbay.store.harnesses import HarnessExecution
from plugbay.store.invocations import Wanted
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
    gateway_with_model,
    result_of,
    says,
    settled,
)
from tests.support.gateways import gateway_at, make_org
from tests.support.invoking import alive
from tests.support.loops import Run
from tests.support.packaged import Publisher, bind
from tests.support.patience import until
from tests.support.requirements import requirement
from tests.support.tiers import first_alone
from tests.support.vai import export


def test_real_and_scripted_workers_implement_the_protocols() -> None:
    kinds: list[type[Workers]] = [BoundWorkers, ScriptedWorkers]
    budgets: type[Budgets] = Credentials
    assert all(hasattr(kind, name) for kind in kinds for name in ("serving", "bound", "do"))
    assert hasattr(budgets, "spend")


BODY = """
def tool(body, m):
    text = [{"type": "text", "text": "it is " + body["input"]["city"]}]
    succeed(m, {"content": text, "structured_output": {"n": 1}, "is_error": False, "retryable": False})

def compactor(body, m):
    text = [{"type": "text", "text": "in short"}]
    succeed(m, {"seed_blocks": [{"kind": "input", "content": text}], "summary": {"text": "short"}})

def harness(body, m):
    event(m, type="checkpoint", checkpoint={"kind": "checkpoint", "data": {"step": 1}})
    if body["mode"] == "start":
        end(m, "retryable_failure")
    else:
        succeed(m, {"summary": {"text": "on from " + str(body["checkpoint"]["data"]["step"])}, "artifacts": []})
"""

CITY = {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}


async def bound(gateway: Gateway, folder: Path) -> dict[str, BindingRow]:
    """A package with an export of each kind, and their bindings."""
    exports = [
        export("weather", own={"input_schema": "schemas/city.json"}),
        export("told", "hook", own={"subscribes_to": ["run.completed", "chain.compacted"]}),
        export("shorten", "compactor"),
        export("triage", "harness"),
    ]
    publisher = Publisher(gateway.settings.data, folder)
    package = await publisher.bring(gateway, BODY, exports, schemas={"city": CITY})
    return {name: await bind(gateway, package, name) for name in ("weather", "told", "shorten", "triage")}


async def chain_of(gateway: Gateway) -> str:
    session = await gateway.sessions.create(CALLER)
    return (await gateway.chains.create(CALLER, session.id, defaults={"model": "m"})).id


def asked(text: str) -> NewRun:
    return NewRun(blocks=[text_block("input", text)])


@requirement("vai:control-tool-results", "vai:control-tool-failures")
def test_a_run_with_a_real_tool_is_delivered_to_a_real_hook(run: Run, sqlite_url: str, tmp_path: Path) -> None:
    async def story() -> None:
        replies = (calls(("weather", {"city": "Lima"}), ("weather", {"town": 1})), says("sunny"))
        async with gateway_with_model(sqlite_url, tmp_path / "data", *replies) as gateway:
            bindings = await bound(gateway, tmp_path)
            chain_id = await chain_of(gateway)
            begun = await gateway.runs.create(CALLER, chain_id, asked("weather?"))
            done = await settled(lambda: gateway.runs.get(CALLER, begun.id), lambda now: now.completed_at is not None)
            assert (done.status, done.tool_count) == ("completed", 2)
            _, blocks = await gateway.chains.context(CALLER, chain_id)
            results = [block for block in blocks if block["kind"] == "tool_result"]
            assert [block["is_error"] for block in results] == [False, True]
            assert results[0]["content"] == [{"type": "text", "text": "it is Lima"}]
            assert results[0]["structured_output"] == {"n": 1}
            assert "city" in results[1]["content"][0]["text"], "the host says what is wrong with an input"
            look = gateway.deliveries.page
            told = await settled(lambda: look(CALLER, Page(), status="delivered"), lambda part: len(part.items) == 1)
            assert told.items[0].binding_id == bindings["told"].id
            _, _, attempts = await gateway.deliveries.get(CALLER, told.items[0].id)
            assert [each.outcome for each in attempts] == ["succeeded"]
            record = await gateway.invocations.get(OPERATOR, str(attempts[0].invocation_id))
            assert (record.execution_id, record.run_id, record.export_kind) == (told.items[0].id, begun.id, "hook")

    run(story)


@requirement("vai:control-compaction")
def test_a_real_compactor_makes_a_chain(run: Run, sqlite_url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with gateway_with_model(sqlite_url, tmp_path / "data") as gateway:
            await bound(gateway, tmp_path)
            session = await gateway.sessions.create(CALLER)
            block = text_block("input", "a long story")
            chain = await gateway.chains.create(CALLER, session.id, blocks=[block])
            squeeze = CompactionRequest(chain.id, {"max_input_tokens": 100}, {"retain_system": True})
            begun = await gateway.compactions.create(CALLER, squeeze)
            done = await settled(
                lambda: gateway.compactions.get(CALLER, begun.id), lambda now: now.completed_at is not None
            )
            assert (done.status, done.error) == ("succeeded", None)
            tiny = CompactionRequest(chain.id, {"max_input_tokens": 1}, {"retain_system": True})
            begun = await gateway.compactions.create(CALLER, tiny)
            done = await settled(
                lambda: gateway.compactions.get(CALLER, begun.id), lambda now: now.completed_at is not None
            )
            assert (done.status, done.new_chain_id) == ("failed", None)
            assert done.error is not None and done.error["code"] == "compactor.invalid_seed"

    run(story)


@requirement("vai:control-harness-resume")
def test_a_real_harness_goes_on_from_its_checkpoint(run: Run, sqlite_url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with gateway_with_model(sqlite_url, tmp_path / "data") as gateway:
            bindings = await bound(gateway, tmp_path)
            errand = HarnessRequest(bindings["triage"].id, {"type": "user_request", "input": []}, {"max_child_runs": 1})
            begun = await gateway.harnesses.create(CALLER, errand)

            async def ended() -> Any:
                return await settled(
                    lambda: gateway.harnesses.get(CALLER, begun.id), lambda now: now[0].completed_at is not None
                )

            execution, checkpoint = await ended()
            assert (execution.status, checkpoint) == ("succeeded", {"kind": "checkpoint", "data": {"step": 1}})
            assert execution.summary == {"text": "on from 1"}, "it has a checkpoint, so it is tried again from there"
            await gateway.harnesses.resume(CALLER, begun.id)
            execution, _ = await ended()
            assert (execution.status, execution.resumes) == ("succeeded", 1)

    run(story)


STUBBORN = """
import json
answers = {answers!r}

def harness(body, m):
    with open({notes!r}, "w") as file:
        json.dump({{"pid": os.getpid(), "token": body["context"]["gateway"]["delegation_token"]}}, file)
    event(m)
    while True:
        time.sleep(0.005)

def cancelled(m):
    if answers:
        end(m, "cancelled")

def shutdown(m):
    pass
"""
REACH = {"network": "egress", "filesystem": "none", "gateway_api_scopes": ["runs:write"], "secret_slots": []}


@requirement("vai:control-harness-cancel")
@pytest.mark.parametrize("answers", [True, False], ids=["answers and stays", "says nothing"])
def test_a_cancelled_harness_has_ended_when_its_token_is_dead_and_its_process_gone(
    run: Run, sqlite_url: str, tmp_path: Path, answers: bool
) -> None:
    notes, data = tmp_path / "notes", tmp_path / "data"
    data.mkdir()
    toml = '[plugins."acme/p"]\ntimeouts = { grace = 1, teardown = 1 }\n'

    async def story() -> None:
        host = Host([], config.parse(toml), state_dir=data / "host")
        settings = GatewaySettings(data, unconfined=True, base_url="http://127.0.0.1:9")
        async with gateway_at(sqlite_url, data, host=host, settings=settings) as gateway:
            await make_org(gateway)
            body = STUBBORN.format(answers=answers, notes=str(notes))
            package = await Publisher(data, tmp_path).bring(gateway, body, [export("x", "harness", permissions=REACH)])
            binding = await bind(gateway, package, "x")
            begun = await gateway.harnesses.create(
                CALLER, HarnessRequest(binding.id, {"type": "user_request", "input": []}, {})
            )
            await settled(lambda: gateway.harnesses.get(CALLER, begun.id), lambda now: now[0].status == "running")
            await until(lambda: notes.exists() and notes.read_text().endswith("}"))
            seen = json.loads(notes.read_text())
            assert alive(seen["pid"]) and (await gateway.authenticate(seen["token"])).kind == "delegated"
            await gateway.harnesses.cancel(CALLER, begun.id)
            done, _ = await settled(
                lambda: gateway.harnesses.get(CALLER, begun.id), lambda now: now[0].completed_at is not None
            )
            assert not alive(seen["pid"]), "whatever it does, it does not do it any more"
            assert done.status == "cancelled"
            with pytest.raises(GatewayError) as refused:
                await gateway.authenticate(seen["token"])
            assert refused.value.code == "auth.token_revoked"
            [record] = (await gateway.invocations.page(OPERATOR, Page(), Wanted({}))).items
            assert (record.status, record.status_reason) == ("cancelled", "user_cancelled")

    run(story)


@requirement("vai:control-harness-cancel")
def test_the_token_of_a_cancelled_harness_is_dead_while_it_has_its_grace(
    run: Run, sqlite_url: str, tmp_path: Path
) -> None:
    notes, data = tmp_path / "notes", tmp_path / "data"
    data.mkdir()
    toml = '[plugins."acme/p"]\ntimeouts = { grace = 60 }\n'

    async def story() -> None:
        host = Host([], config.parse(toml), state_dir=data / "host")
        settings = GatewaySettings(data, unconfined=True, base_url="http://127.0.0.1:9")
        async with gateway_at(sqlite_url, data, host=host, settings=settings) as gateway:
            await make_org(gateway)
            body = STUBBORN.format(answers=False, notes=str(notes))
            package = await Publisher(data, tmp_path).bring(gateway, body, [export("x", "harness", permissions=REACH)])
            binding = await bind(gateway, package, "x")
            begun = await gateway.harnesses.create(
                CALLER, HarnessRequest(binding.id, {"type": "user_request", "input": []}, {})
            )
            await until(lambda: notes.exists() and notes.read_text().endswith("}"))
            seen = json.loads(notes.read_text())
            await gateway.harnesses.cancel(CALLER, begun.id)

            async def refused() -> str:
                try:
                    await gateway.authenticate(seen["token"])
                except GatewayError as error:
                    return error.code
                return ""

            assert await settled(refused, bool) == "auth.token_revoked"
            assert alive(seen["pid"]) and (await gateway.harnesses.get(CALLER, begun.id))[0].status == "running"
            os.kill(seen["pid"], signal.SIGKILL)
            done, _ = await settled(
                lambda: gateway.harnesses.get(CALLER, begun.id), lambda now: now[0].completed_at is not None
            )
            assert done.status == "cancelled"

    run(story)


def test_only_active_bindings_of_the_kind_and_scope_are_bound(run: Run, sqlite_url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with gateway_with_model(sqlite_url, tmp_path / "data") as gateway:
            bindings = await bound(gateway, tmp_path)
            workers = BoundWorkers(gateway.bindings, gateway.invocations)
            serving = await workers.serving("tool", "org_1", "proj_1", "sess_1")
            assert [each.export_id for each in serving] == ["weather"]
            assert serving[0].input_schema == CITY
            assert serving[0].facts["effect_class"] == "read_only"
            hooks = await workers.serving("hook", "org_1", "proj_1", "sess_1", "run.failed")
            assert hooks == []
            tool = bindings["weather"].id
            assert await workers.bound("tool", "org_1", "proj_1", tool) == serving[0]
            assert await workers.bound("hook", "org_1", "proj_1", tool) is None
            assert await workers.bound("tool", "org_2", None, tool) is None
            assert await workers.bound("tool", "org_1", "proj_9", tool) is None
            await gateway.bindings.change(OPERATOR, tool, {"status": "disabled"})
            assert await workers.bound("tool", "org_1", "proj_1", tool) is None
            for binding_id in (tool, "bind_9"):
                work = CallRequest(
                    "", {"city": "x"}, "tool", org_id="org_1", project_id="proj_1", binding_id=binding_id
                )
                with pytest.raises(GatewayError) as refused:
                    await workers.do(work)
                assert is_inactive(refused.value)

    run(story)


HELLO = [text_block("input", "hello")]


def plugins() -> ScriptedWorkers:
    async def tool(work: CallRequest) -> Any:
        return result_of("42")

    async def hook(work: CallRequest) -> Any:
        return {"status": "ack"}

    async def harness(work: CallRequest) -> Any:
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


def test_requests_of_people_have_no_provenance(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url) as talk, talk.database.reading() as tx:
            assert await find_provenance(tx, CALLER) == Provenance()
            unheard_of = delegated([], export_kind="harness", execution_id="exec_9", trace_id="tr_9")
            assert await find_provenance(tx, unheard_of) == Provenance(depth=1, trace_id="tr_9")

    run(story)


@requirement("vai:control-causation-depth")
def test_work_started_by_a_hook_is_traced_to_its_event(run: Run, sqlite_url: str) -> None:
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
@pytest.mark.parametrize("kind", first_alone(["harness", "tool", "hook", "compactor"]))
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
def test_work_started_by_tools_of_its_runs_is_charged_to_the_harness(run: Run, sqlite_url: str) -> None:
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
