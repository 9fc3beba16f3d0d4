"""What conversations need of plugins is what bindings and invocations give, and what tests script."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from plugbay.host.config import config
from plugbay.host.host import Host
from plugbay.server.domain.compactions import CompactionRequest
from plugbay.server.domain.credentials import Credentials
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.harnesses import HarnessRequest
from plugbay.server.domain.principal import OPERATOR
from plugbay.server.domain.runs import NewRun
from plugbay.server.domain.settings import GatewaySettings
from plugbay.server.domain.workers import BoundWorkers, Budgets, Job, Workers, WorkRefused
from plugbay.store.bindings import BindingRow
from plugbay.store.invocations import Wanted
from plugbay.store.pages import Page
from tests.support.conversing import CALLER, ScriptedWorkers, calls, gateway_with_model, says, settled
from tests.support.gateways import gateway_at, make_org
from tests.support.invoking import alive
from tests.support.loops import Run
from tests.support.packaged import Publisher, bind
from tests.support.patience import until
from tests.support.requirements import requirement
from tests.support.vai import export


def test_whoever_is_given_to_conversations_has_what_they_ask_of_it() -> None:
    kinds: list[type[Workers]] = [BoundWorkers, ScriptedWorkers]
    budgets: type[Budgets] = Credentials
    assert all(hasattr(kind, name) for kind in kinds for name in ("serving", "bound", "do"))
    assert hasattr(budgets, "spend")


def test_a_refusal_says_why() -> None:
    refused = WorkRefused("binding.not_active", "it is off", inactive=True)
    assert (str(refused), refused.inactive) == ("binding.not_active: it is off", True)


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
    return NewRun(blocks=[{"kind": "input", "content": [{"type": "text", "text": text}]}])


@requirement("vai:control-tool-results", "vai:control-tool-failures")
def test_a_run_with_a_real_tool_and_a_hook_that_hears_of_it(run: Run, sqlite_url: str, tmp_path: Path) -> None:
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
            block = {"kind": "input", "content": [{"type": "text", "text": "a long story"}]}
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


def test_only_what_is_active_here_and_of_its_kind_is_bound(run: Run, sqlite_url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with gateway_with_model(sqlite_url, tmp_path / "data") as gateway:
            bindings = await bound(gateway, tmp_path)
            workers = BoundWorkers(gateway.bindings, gateway.invocations)
            async with gateway.database.reading() as tx:
                serving = await workers.serving(tx, "tool", "org_1", "proj_1", "sess_1")
                assert [each.export_id for each in serving] == ["weather"]
                assert serving[0].input_schema == CITY
                assert serving[0].facts["effect_class"] == "read_only"
                hooks = await workers.serving(tx, "hook", "org_1", "proj_1", "sess_1", "run.failed")
                assert hooks == []
                tool = bindings["weather"].id
                assert await workers.bound(tx, "tool", "org_1", "proj_1", tool) == serving[0]
                assert await workers.bound(tx, "hook", "org_1", "proj_1", tool) is None
                assert await workers.bound(tx, "tool", "org_2", None, tool) is None
                assert await workers.bound(tx, "tool", "org_1", "proj_9", tool) is None
            await gateway.bindings.change(OPERATOR, tool, {"status": "disabled"})
            async with gateway.database.reading() as tx:
                assert await workers.bound(tx, "tool", "org_1", "proj_1", tool) is None
            for binding_id in (tool, "bind_9"):
                job = Job(binding_id, "tool", {"city": "x"}, "org_1", "proj_1", "toolx_1", "tr_1")
                with pytest.raises(WorkRefused) as refused:
                    await workers.do(job)
                assert refused.value.inactive

    run(story)
