"""Invocations over HTTP, with a real plugin."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import Request

from plugbay.host.admission import MIN_RETRY_SECONDS
from plugbay.server.api.routes.invocations import OutcomeOut, invoke
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.principal import OPERATOR
from plugbay.server.domain.settings import GatewaySettings
from plugbay.store import database
from plugbay.store.sqlite import Connection
from tests.support.conversing import gateway_with_model, settled
from tests.support.databases import away
from tests.support.gateways import client_of, gateway_at, make_key, make_org
from tests.support.loops import Run
from tests.support.packaged import Publisher, bind
from tests.support.patience import until
from tests.support.requirements import requirement
from tests.support.vai import FAILS, LEFT, export

BODY = """
def tool(body, m):
    how = body["input"].get("how")
    event(m, message="working")
    if how == "wait":
        cancels[m["id"]].wait()
    elif how == "fail":
        end(m, "failed", code="acme.broken", message="it is broken")
    else:
        succeed(m, output({"said": body["input"]}))
"""
INVOKE = "/v1/plugin-invocations"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SCOPE = {"org_id": "org_1", "project_id": "proj_1"}


@requirement("vai:control-invocation-record", "vai:control-trace", "vai:control-invocation-filters")
def test_work_is_done_and_answered_with_its_record_and_found_again(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            await make_org(gateway)
            binding = await bind(gateway, await Publisher(tmp_path, tmp_path).bring(gateway, BODY))
            headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "idempotency-key": "once"}
            session = (await client.post("/v1/sessions", json=SCOPE)).json()["id"]
            body: dict[str, Any] = {"binding_id": binding.id, "input": {"a": 1}, "session_id": session}
            done = await client.post("/v1/plugin-invocations", json=body, headers=headers)
            assert done.status_code == 200, done.text
            outcome = done.json()
            assert outcome["status"] == "succeeded" and outcome["failure"] is None
            assert outcome["result"]["structured_output"] == {"said": {"a": 1}}
            record = outcome["invocation"]
            assert record["trace_id"] == f"tr_{TRACE}" and TRACE in done.headers["traceparent"]
            again = await client.post("/v1/plugin-invocations", json=body, headers=headers)
            assert again.json() == outcome and again.headers["idempotency-replayed"] == "true"

            failed = await client.post(
                "/v1/plugin-invocations", json={"export": "t", "scope": SCOPE, "input": {"how": "fail"}}
            )
            assert (failed.status_code, failed.json()["status"]) == (200, "failed")
            assert failed.json()["failure"]["code"] == "acme.broken"
            path = "/v1/plugin-invocations"
            read = (await client.get(f"{path}/{record['invocation_id']}")).json()
            assert read == {
                **record,
                "result": outcome["result"],
                "result_bytes": read["result_bytes"],
                "failure": None,
            }
            for query, count in (
                ("", 2),
                ("?status=failed", 1),
                (f"?trace_id=tr_{TRACE}", 1),
                (f"?binding_id={binding.id}&export_kind=tool", 2),
                (f"?session_id={session}&org_id=org_1", 1),
                ("?since=2999-01-01T00:00:00Z", 0),
                ("?until=2999-01-01T00:00:00Z&limit=1", 1),
            ):
                assert len((await client.get(f"{path}{query}")).json()["items"]) == count, query

    run(main)


DIES = """
def tool(body, m):
    sys.stderr.write("boom\\n")
    sys.stderr.flush()
    os._exit(7)
"""


@requirement("host:failure-same")
def test_a_failure_has_the_exit_code_the_cause_and_the_stderr_of_the_plugin(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            await make_org(gateway)
            await bind(gateway, await Publisher(tmp_path, tmp_path).bring(gateway, DIES))
            done = (await client.post(INVOKE, json={"export": "t", "scope": SCOPE})).json()
            detail = done["failure"]["detail"]
            assert (done["failure"]["code"], detail["exit_code"], detail["stderr_tail"]) == ("crashed", 7, ["boom"])
            assert detail["cause"] == "the plugin ended early (exit code 7): boom"

    run(main)


WAITS = """
def tool(body, m):
    while not os.path.exists(body["input"]["go"]):
        time.sleep(0.005)
    succeed(m, output({}))
"""


@requirement("host:queue-bounded")
@pytest.mark.parametrize(("queue_seconds", "status"), [(0.02, 429), (600.0, 200)])
def test_a_request_that_would_queue_for_too_long_is_answered_with_429_and_others_wait(
    sqlite_url: str, tmp_path: Path, run: Run, queue_seconds: float, status: int
) -> None:
    settings = GatewaySettings(tmp_path, unconfined=True, queue_seconds=queue_seconds)

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path, settings=settings) as gateway, client_of(gateway) as client:
            await make_org(gateway)
            exports = [export("t", execution_class="worker", max_concurrency=1)]
            binding = await bind(gateway, await Publisher(tmp_path, tmp_path).bring(gateway, WAITS, exports))
            body: dict[str, Any] = {"binding_id": binding.id, "input": {"go": str(tmp_path / "go")}}

            def post(**more: Any) -> asyncio.Future[httpx2.Response]:
                return asyncio.ensure_future(client.post(INVOKE, json={**body, **more}))

            async def count() -> int:
                return len((await client.get(INVOKE)).json()["items"])

            running = post()
            await settled(count, lambda now: now == 1)
            background = await post(wait=False)
            assert background.status_code == 202, "its caller does not wait, so it may queue"
            further = post()
            await asyncio.wait({further}) if status == 429 else await settled(count, lambda now: now == 3)
            (tmp_path / "go").touch()
            assert [response.status_code for response in await asyncio.gather(running, further)] == [200, status]
            answer, metrics = await further, (await client.get("/metrics")).text
            if status == 429:
                error = answer.json()["error"]
                assert (error["type"], error["code"]) == ("rate_limit_error", "quota.queue_full")
                assert error["retryable"] and error["retry_after"] >= MIN_RETRY_SECONDS
                assert int(answer.headers["retry-after"]) >= error["retry_after"]
                assert "plugbay_queue_refusals_total 1.0" in metrics
            else:
                assert answer.json()["status"] == "succeeded" and "queue_refusals" not in metrics

    run(main)


@requirement("vai:control-invocation-events")
def test_an_invocation_is_watched_until_it_is_called_off(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            await make_org(gateway)
            await bind(gateway, await Publisher(tmp_path, tmp_path).bring(gateway, BODY))
            body = {"export": "t", "scope": SCOPE, "input": {"how": "wait"}, "wait": False}
            begun = await client.post("/v1/plugin-invocations", json=body)
            assert begun.status_code == 202 and begun.json()["status"] is None
            path = f"/v1/plugin-invocations/{begun.json()['attempts'][0]}"
            watching = asyncio.ensure_future(client.get(f"{path}/events"))
            await until(lambda: bool(gateway.invocation_events._subscriptions))
            assert (await client.post(f"{path}:cancel")).status_code == 202
            told = (await watching).text
            events = [line.removeprefix("event: ") for line in told.splitlines() if line.startswith("event: ")]
            assert events[-1] == "ended" and events.count("ended") == 1
            last = json.loads(told.splitlines()[-2].removeprefix("data: "))
            assert (last["invocation"]["status"], last["invocation"]["status_reason"]) == (
                "cancelled",
                "user_cancelled",
            )
            over = (await client.get(f"{path}/events")).text
            assert over.count("event: ") == 1 and "event: ended" in over
            assert (await client.post(f"{path}:cancel")).json()["status"] == "cancelled"

    run(main)


@requirement("vai:control-invocation-events")
def test_a_tenant_watches_its_own_invocations_and_nobody_elses(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            await make_org(gateway)
            await make_org(gateway, "org_2", "proj_2")
            await bind(gateway, await Publisher(tmp_path, tmp_path).bring(gateway, BODY))
            keys = [await make_key(gateway, org, "viewer") for org in ("org_1", "org_2")]
            async with client_of(gateway, keys[0]) as own, client_of(gateway, keys[1]) as other:
                path = "/v1/plugin-invocations:events"
                watching = [asyncio.ensure_future(each.get(path)) for each in (own, other)]
                await until(lambda: len(gateway.invocation_events._subscriptions) == 2)
                await client.post("/v1/plugin-invocations", json={"export": "t", "scope": SCOPE})
                gateway.invocation_events.close()
                mine, theirs = [(await each).text for each in watching]
            assert [mine.count(f"event: {name}\n") for name in ("started", "event", "ended")] == [1, 1, 1]
            assert '"message":"working"' in mine and "inv_" not in theirs

    run(main)


def test_requests_that_cannot_be_granted(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            await make_org(gateway)
            await make_org(gateway, "org_2", "proj_2")
            binding = await bind(gateway, await Publisher(tmp_path, tmp_path).bring(gateway, BODY))
            for body, status, code in (
                ({}, 400, "request.invalid"),
                ({"binding_id": binding.id, "export": "t"}, 400, "request.invalid"),
                ({"binding_id": binding.id, "scope": SCOPE}, 400, "request.invalid"),
                ({"export": "t"}, 400, "request.invalid"),
                ({"export": "none", "scope": SCOPE}, 404, "binding.not_found"),
                ({"export": "t", "scope": {"org_id": "org_9"}}, 404, "org.not_found"),
                ({"binding_id": "bind_none"}, 404, "binding.not_found"),
            ):
                answer = await client.post("/v1/plugin-invocations", json=body)
                assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
            async with client_of(gateway, await make_key(gateway, "org_2")) as other:
                answer = await other.post("/v1/plugin-invocations", json={"binding_id": binding.id})
                assert answer.status_code == 404
                assert (await other.get("/v1/plugin-invocations/inv_none/events")).status_code == 404
            async with client_of(gateway, await make_key(gateway, "org_1", "viewer")) as viewer:
                answer = await viewer.post("/v1/plugin-invocations", json={"binding_id": binding.id})
                assert (answer.status_code, answer.json()["error"]["code"]) == (403, "auth.role_denied")

    run(main)


async def conversation(client: httpx2.AsyncClient, scope: dict[str, str]) -> dict[str, str]:
    """A session, a chain and a run of somebody."""
    session = (await client.post("/v1/sessions", json=scope)).json()["id"]
    chain = (await client.post("/v1/chains", json={"session_id": session})).json()["id"]
    run = await client.post("/v1/runs", json={"chain_id": chain, "model": "local/m", "blocks": HELLO})
    assert run.status_code == 201, run.text
    look = f"/v1/runs/{run.json()['id']}"
    await settled(lambda: client.get(look), lambda now: now.json()["completed_at"] is not None)
    return {"session_id": session, "chain_id": chain, "run_id": run.json()["id"]}


HELLO = [{"kind": "input", "content": [{"type": "text", "text": "hello"}]}]
KINDS = [export("t"), export("h", "hook"), export("c", "compactor"), export("x", "harness")]
PROJECTION = {"projection": {"blocks": HELLO}}
INPUTS: dict[str, dict[str, Any]] = {
    "t": {},
    "h": {"type": "run.completed"},
    "c": {"source": PROJECTION, "target": {"max_input_tokens": 1000}},
    "x": {},
}


async def refused(client: httpx2.AsyncClient, path: str, body: dict[str, Any]) -> tuple[int, str]:
    answer = await client.post(path, json=body)
    return answer.status_code, answer.json()["error"]["code"]


@requirement("vai:control-cross-tenant", "vai:control-invocation-place")
@pytest.mark.parametrize("export_id", INPUTS)
def test_ids_that_are_unknown_or_another_tenants_are_not_found_whatever_is_invoked(
    sqlite_url: str, tmp_path: Path, run: Run, export_id: str
) -> None:
    async def main() -> None:
        async with gateway_with_model(sqlite_url, tmp_path / "data") as gateway, client_of(gateway) as operator:
            package = await Publisher(tmp_path / "data", tmp_path).bring(gateway, "", KINDS)
            body = {"binding_id": (await bind(gateway, package, export_id)).id, "input": INPUTS[export_id]}
            own, beside = await conversation(operator, SCOPE), await conversation(operator, SCOPE)
            foreign = await conversation(operator, {"org_id": "org_2", "project_id": "proj_2"})
            unknown = {"session_id": "sess_9", "chain_id": "ch_9", "run_id": "run_9"}
            tenant = await make_key(gateway, "org_1", "operator", "proj_1")
            async with client_of(gateway, tenant) as client:
                for who, (name, id) in product((operator, client), [*foreign.items(), *unknown.items()]):
                    found = await refused(who, INVOKE, {**body, name: id})
                    assert found == (404, f"{name.removesuffix('_id')}.not_found")
                done = await client.post(INVOKE, json={**body, "run_id": own["run_id"]})
                assert done.status_code == 200, done.text
                record = done.json()["invocation"]
                assert {name: record[name] for name in own} == own, "a run has its chain and its session"
                mixed = {**body, "chain_id": own["chain_id"], "session_id": beside["session_id"]}
                assert await refused(client, INVOKE, mixed) == (400, "chain.other_session")
                if export_id in ("c", "x"):
                    part = {"c": "source", "x": "target"}[export_id]
                    said = {**INPUTS[export_id].get(part, {}), "chain_id": foreign["chain_id"]}
                    inside = {**body, "input": {**INPUTS[export_id], part: said}}
                    assert await refused(client, INVOKE, inside) == (404, "chain.not_found")

    run(main)


def naming(own: dict[str, str], ids: dict[str, str]) -> list[tuple[str, dict[str, Any], str]]:
    """Requests that name these ids, and what they name."""
    session, chain = {"session_id": ids["session_id"]}, {"chain_id": ids["chain_id"]}
    asked = {"blocks": HELLO, "model": "local/m"}
    return [
        ("/v1/harness-executions", session, "session"),
        ("/v1/harness-executions", chain, "chain"),
        ("/v1/compactions", {**chain, "target": {"max_input_tokens": 9}}, "chain"),
        ("/v1/chains", session, "session"),
        ("/v1/runs", {**session, **asked}, "session"),
        ("/v1/runs", {"chain_id": own["chain_id"], **asked, "parent_run_id": ids["run_id"]}, "run"),
        (f"/v1/chains/{own['chain_id']}:fork", {"run_id": ids["run_id"]}, "run"),
        (f"/v1/sessions/{own['session_id']}:branch", chain, "chain"),
    ]


@requirement("vai:control-cross-tenant", "vai:control-invocation-place")
def test_ids_that_are_unknown_or_another_tenants_are_not_found_by_other_requests(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_with_model(sqlite_url, tmp_path / "data") as gateway, client_of(gateway) as operator:
            package = await Publisher(tmp_path / "data", tmp_path).bring(gateway, "", KINDS)
            harness = {"binding_id": (await bind(gateway, package, "x")).id}
            own = await conversation(operator, SCOPE)
            foreign = await conversation(operator, {"org_id": "org_2", "project_id": "proj_2"})
            async with client_of(gateway, await make_key(gateway, "org_1", "operator", "proj_1")) as client:
                unknown = {"session_id": "sess_9", "chain_id": "ch_9", "run_id": "run_9"}
                for path, body, kind in (*naming(own, foreign), *naming(own, unknown)):
                    whole = {**harness, **body} if path.endswith("executions") else body
                    assert await refused(client, path, whole) == (404, f"{kind}.not_found"), path

    run(main)


@requirement("vai:control-harness-one-way")
def test_a_harness_that_is_invoked_is_an_execution_like_any_other(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    body = """
    def harness(body, m):
        event(m, type="checkpoint", checkpoint={"kind": "checkpoint", "data": {"policy": body["policy"]}})
        if body["trigger"]["input"]:
            cancels[m["id"]].wait()
        else:
            succeed(m, {"summary": {"text": "done"}, "artifacts": []})
    """

    async def main() -> None:
        async with gateway_with_model(sqlite_url, tmp_path / "data") as gateway, client_of(gateway) as client:
            package = await Publisher(tmp_path / "data", tmp_path).bring(gateway, body, [export("x", "harness")])
            binding = (await bind(gateway, package, "x")).id
            done = await client.post(INVOKE, json={"binding_id": binding, "execution_id": "exec_mine"})
            assert (done.status_code, done.json()["status"]) == (200, "succeeded"), done.text
            assert done.json()["result"]["summary"] == {"text": "done"}
            record = done.json()["invocation"]
            execution = (await client.get("/v1/harness-executions/exec_mine")).json()
            assert execution["status"] == "succeeded" and execution["session_id"] == record["session_id"]
            assert execution["policy"] == {"max_depth": 4, "max_child_runs": 12, "allow_compaction": True}
            assert execution["checkpoint"]["data"]["policy"] == execution["policy"], "it is told its limits"
            again = await client.post(INVOKE, json={"export": "x", "scope": SCOPE, "execution_id": "exec_mine"})
            assert (again.status_code, again.json()["error"]["code"]) == (409, "harness.exists")
            wrongs: list[dict[str, Any]] = [{"mode": "resume"}, {"policy": {"max_child_runs": "all"}}, {"limits": {}}]
            for wrong in wrongs:
                answer = await client.post(INVOKE, json={"binding_id": binding, "input": wrong})
                assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invocation.invalid_input")
            waits = {"trigger": {"input": [{"type": "text", "text": "wait"}]}}
            begun = await client.post(INVOKE, json={"binding_id": binding, "input": waits, "wait": False})
            assert (begun.status_code, begun.json()["status"]) == (202, None)
            id = begun.json()["invocation"]["execution_id"]
            assert (await client.post(f"/v1/harness-executions/{id}:cancel")).status_code == 200
            ended = await settled(
                lambda: client.get(f"/v1/harness-executions/{id}"), lambda now: now.json()["completed_at"] is not None
            )
            assert ended.json()["status"] == "cancelled"
            waiting = asyncio.ensure_future(
                client.post(INVOKE, json={"binding_id": binding, "input": waits, "execution_id": "exec_2"})
            )
            look = "/v1/plugin-invocations?execution_id=exec_2"
            await settled(lambda: client.get(look), lambda now: bool(now.json()["items"]))
            await client.post("/v1/harness-executions/exec_2:cancel")
            called_off = (await waiting).json()
            assert (called_off["status"], called_off["failure"]["code"]) == ("cancelled", "cancelled")

    run(main)


@requirement("vai:control-idempotency-database")
def test_a_key_is_of_use_again_when_the_database_is_back(
    database_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    if database_url.startswith("sqlite"):
        monkeypatch.setattr(database, "PATIENCE", 0.2)
    body = f"""
    def tool(body, m):
        with open({str(tmp_path / "times")!r}, "a") as file:
            file.write("x")
        while not os.path.exists({str(tmp_path / "go")!r}):
            time.sleep(0.005)
        succeed(m, output({{"done": True}}))
    """

    async def main() -> None:
        async with gateway_with_model(database_url, tmp_path / "data") as gateway, client_of(gateway) as client:
            binding = await bind(gateway, await Publisher(tmp_path / "data", tmp_path).bring(gateway, body))
            headers, asked = {"idempotency-key": "once"}, {"binding_id": binding.id}
            with away(database_url):
                refused = await client.post(INVOKE, json=asked, headers=headers)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "store.unavailable")
            await settled(lambda: client.get(INVOKE), lambda now: now.status_code == 200)

            first = asyncio.ensure_future(client.post(INVOKE, json=asked, headers=headers))
            await until((tmp_path / "times").exists)
            again = await client.post(INVOKE, json=asked, headers=headers)
            assert (again.status_code, again.json()["error"]["code"]) == (409, "idempotency.in_progress")
            with away(database_url):
                (tmp_path / "go").touch()
                done = await first
            assert (done.status_code, done.json()["status"]) == (200, "succeeded"), "its work was done"
            replayed = await settled(
                lambda: client.post(INVOKE, json=asked, headers=headers), lambda now: now.status_code != 503
            )
            assert replayed.json() == done.json() and replayed.headers["idempotency-replayed"] == "true"
            assert (tmp_path / "times").read_text() == "x", "it was carried out once"
            path = f"{INVOKE}/{done.json()['invocation']['invocation_id']}"
            await settled(lambda: client.get(path), lambda now: now.json()["status"] == "succeeded")

    run(main)


# Arguments without dependency injection.


async def nothing(request: Request) -> None:
    """Leave the arguments to FastAPI."""


JSON = {"content-type": "application/json"}
UNUSUAL: list[tuple[str, dict[str, str], bytes]] = [
    ("no JSON", {"content-type": "text/plain"}, b'{"binding_id": "%b"}'),
    ("no type", {}, b'{"binding_id": "%b"}'),
    ("no object", JSON, b"[1]"),
    ("null", JSON, b"null"),
    ("nothing", JSON, b""),
    ("half", JSON, b'{"binding_id": '),
    ("a key twice", JSON, b'{"binding_id": "%b", "binding_id": "%b"}'),
    ("an unknown field", JSON, b'{"binding_id": "%b", "inptu": {}}'),
    ("a wrong field", JSON, b'{"binding_id": "%b", "timeout_ms": "soon"}'),
    ("neither binding nor export", JSON, b'{"input": {}}'),
    ("no such binding", JSON, b'{"binding_id": "bind_x"}'),
    ("no token", {**JSON, "authorization": ""}, b'{"binding_id": "%b"}'),
    ("a wrong token", {**JSON, "authorization": "Bearer x"}, b'{"binding_id": "%b"}'),
    ("a long trace", {**JSON, "traceparent": "0" * 600}, b'{"binding_id": "%b"}'),
    ("a wrong key", {**JSON, "idempotency-key": "k" * 300}, b'{"binding_id": "%b"}'),
    ("another version", {**JSON, "x-vai-version": "2"}, b'{"binding_id": "%b"}'),
]


def without_ids(answer: httpx2.Response) -> tuple[int, str, str]:
    """An answer without what differs each time."""
    body = re.sub(r'"(inv|tr|toolx|req)_\w+"|"\d{4}-\d\d-[^"]+Z"|"pid":\d+', '"…"', answer.text)
    return answer.status_code, answer.headers.get("content-type", ""), body


@pytest.mark.parametrize(("headers", "body"), [each[1:] for each in UNUSUAL], ids=[each[0] for each in UNUSUAL])
def test_an_invalid_request_is_answered_as_fastapi_would(
    sqlite_url: str, tmp_path: Path, headers: dict[str, str], body: bytes, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            binding = await bind(gateway, await Publisher(tmp_path, tmp_path).bring(gateway, BODY))
            content, known = body.replace(b"%b", binding.id.encode()), {"x-request-id": "r", **headers}
            async with client_of(gateway) as client:
                answer = await client.post(INVOKE, content=content, headers=known)
            monkeypatch.setitem(invoke.__dict__, "bind", nothing)
            async with client_of(gateway) as client:
                other = await client.post(INVOKE, content=content, headers=known)
            assert without_ids(answer) == without_ids(other) and answer.status_code >= 400

    run(main)


@pytest.mark.parametrize("how", ["", "fail"])
def test_arguments_without_dependency_injection_give_the_same_answer(
    sqlite_url: str, tmp_path: Path, how: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            binding = await bind(gateway, await Publisher(tmp_path, tmp_path).bring(gateway, BODY))
            sent = {"binding_id": binding.id, "input": {"how": how, "é": ["\N{SNOWMAN}", 2**53, 1.5, None]}}
            answers = [await answered(gateway, sent)]
            monkeypatch.setitem(invoke.__dict__, "bind", nothing)
            answers.append(await answered(gateway, sent))
            assert without_ids(answers[0]) == without_ids(answers[1]) and answers[0].status_code == 200
            for answer in answers:
                shape = OutcomeOut.model_validate(answer.json())
                assert shape.model_dump(mode="json") == answer.json(), "it is what the document says"
            counted = gateway.meters.counters["http_requests"]
            assert {dict(labels)["route"] for labels in counted} == {INVOKE}

    async def answered(gateway: Gateway, sent: dict[str, Any]) -> httpx2.Response:
        async with client_of(gateway) as client:
            return await client.post(INVOKE, json=sent)

    run(main)


def test_dependency_injection_is_for_invalid_requests_and_those_with_a_key(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways: list[bool] = []
    bind_arguments = invoke.__dict__["bind"]

    async def watched(request: Request) -> Any:
        arguments = await bind_arguments(request)
        ways.append(arguments is not None)
        return arguments

    monkeypatch.setitem(invoke.__dict__, "bind", watched)

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            await make_org(gateway)
            binding = await bind(gateway, await Publisher(tmp_path, tmp_path).bring(gateway, BODY))
            for sent, headers, status in (
                ({"binding_id": binding.id}, {}, 200),
                ({"binding_id": binding.id}, {"idempotency-key": "once"}, 200),
                ({"binding_id": 7}, {}, 400),
            ):
                assert (await client.post(INVOKE, json=sent, headers=headers)).status_code == status
        assert ways == [True, False]

    run(main)


@requirement("vai:control-group-commit", "vai:control-invocation-record")
def test_a_hundred_at_once_are_all_answered_as_they_ended_and_written_together(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits: list[Connection] = []
    commit = Connection.commit

    async def counted(connection: Connection) -> None:
        commits.append(connection)
        await commit(connection)

    monkeypatch.setattr(Connection, "commit", counted)

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            await make_org(gateway)
            exports = [export("t", execution_class="worker", max_concurrency=64)]
            binding = await bind(gateway, await Publisher(tmp_path, tmp_path).bring(gateway, BODY, exports))
            await client.post(INVOKE, json={"binding_id": binding.id})  # its worker is there
            commits.clear()

            async def asked(number: int) -> tuple[str, str]:
                how = "fail" if number == 50 else str(number)
                done = await client.post(INVOKE, json={"binding_id": binding.id, "input": {"how": how}})
                outcome = done.json()
                if how != "fail":
                    assert outcome["result"]["structured_output"]["said"] == {"how": how}
                return outcome["invocation"]["invocation_id"], outcome["status"]

            answered = dict(await asyncio.gather(*map(asked, range(100))))
            assert sorted(answered.values()) == ["failed", *["succeeded"] * 99]
            assert len(commits) < 200, "each has a row that is opened and closed: two commits, if it were alone"
            for id, status in answered.items():
                assert (await client.get(f"{INVOKE}/{id}")).json()["status"] == status

    run(main)


@requirement("vai:control-revocation-at-once")
def test_what_is_taken_away_counts_for_the_very_next_request(database_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(database_url, tmp_path) as gateway, client_of(gateway) as operator:
            await make_org(gateway)
            binding = await bind(gateway, await Publisher(tmp_path, tmp_path).bring(gateway, BODY))
            key = await make_key(gateway, "org_1")
            (made,) = (await operator.get("/v1/api-keys")).json()["items"]

            async def asked(client: httpx2.AsyncClient) -> tuple[int, str]:
                done = await client.post(INVOKE, json={"binding_id": binding.id})
                answer = done.json()
                return done.status_code, answer["error"]["code"] if "error" in answer else answer["status"]

            async with client_of(gateway, key) as client:
                for _ in range(2):  # from the table, then from memory
                    assert await asked(client) == (200, "succeeded")
                changed = await operator.patch(f"/v1/plugin-bindings/{binding.id}", json={"status": "disabled"})
                assert changed.status_code == 200
                assert await asked(client) == (409, "binding.not_active")
                await operator.patch(f"/v1/plugin-bindings/{binding.id}", json={"status": "active"})
                assert await asked(client) == (200, "succeeded")
                assert (await operator.delete(f"/v1/api-keys/{made['id']}")).status_code == 200
                assert await asked(client) == (401, "auth.key_revoked")

    run(main)


# Results.


async def ended_events(client: httpx2.AsyncClient, path: str) -> list[dict[str, Any]]:
    """The `ended` events of one invocation."""
    told = (await client.get(f"{path}/events")).text
    parts = [part.split("\n", 1) for part in told.split("\n\n") if part.startswith("event: ended\n")]
    return [json.loads(part[1].removeprefix("data: ")) for part in parts]


@requirement("vai:control-invocation-result")
def test_a_result_is_in_the_record_and_in_the_ended_event_once_it_has_ended(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    body = """
    def tool(body, m):
        if body["input"].get("fail"):
            return end(m, "failed", "acme.half", "half of it", result={"content": [{"type": "text", "text": "half"}]})
        while not os.path.exists(body["input"]["go"]):
            time.sleep(0.005)
        succeed(m, output({"said": "x" * body["input"]["size"]}))
    """

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path, settings=GatewaySettings(tmp_path, unconfined=True)) as gateway:
            await make_org(gateway)
            await make_org(gateway, "org_2", "proj_2")
            binding = await bind(gateway, await Publisher(tmp_path, tmp_path).bring(gateway, body))
            key, other = await make_key(gateway, "org_1", "operator"), await make_key(gateway, "org_2")
            async with client_of(gateway, key) as client, client_of(gateway, other) as stranger:

                async def begin(**given: Any) -> str:
                    sent = {"binding_id": binding.id, "wait": False, "input": given}
                    return f"{INVOKE}/{(await client.post(INVOKE, json=sent)).json()['attempts'][0]}"

                async def ended(path: str) -> dict[str, Any]:
                    seen = await settled(lambda: client.get(path), lambda now: now.json()["status"] is not None)
                    whole: dict[str, Any] = seen.json()
                    return whole

                path = await begin(go=str(tmp_path / "go"), size=3)
                running = (await client.get(path)).json()
                assert (running["status"], running["result"], running["failure"]) == (None, None, None)
                watching = asyncio.ensure_future(ended_events(client, path))
                await until(lambda: bool(gateway.invocation_events._subscriptions))
                (tmp_path / "go").touch()
                done = await ended(path)
                assert done["result"]["structured_output"] == {"said": "xxx"} and done["result_bytes"] > 3
                for event in (*await watching, *await ended_events(client, path)):
                    assert (event["result"], event["failure"]) == (done["result"], None)
                    assert event["invocation"]["status"] == "succeeded"

                failed = await ended(path := await begin(fail=True))
                assert failed["result"] == {"content": [{"type": "text", "text": "half"}]}
                assert (failed["failure"]["code"], failed["failure"]["message"]) == ("acme.half", "half of it")
                (event,) = await ended_events(client, path)
                assert (event["result"], event["failure"]) == (failed["result"], failed["failure"])

                large = await ended(await begin(go=str(tmp_path / "go"), size=2_000_000))
                assert large["result"] is None and large["result_bytes"] > 2_000_000, "it is bounded"
                assert (await stranger.get(path)).status_code == 404
                assert (await stranger.get(f"{path}/events")).status_code == 404
                listed = (await client.get(INVOKE)).json()["items"]
                assert len(listed) == 3 and "result" not in listed[0]

    run(main)


@requirement("vai:host-failed-result")
def test_a_tool_that_failed_is_answered_with_its_result(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            await make_org(gateway)
            await bind(gateway, await Publisher(tmp_path, tmp_path).bring(gateway, FAILS))
            done = (await client.post(INVOKE, json={"export": "t", "scope": SCOPE})).json()
            assert (done["status"], done["result"]) == ("failed", LEFT)
            assert (done["failure"]["code"], done["failure"]["message"]) == ("acme.half", "the disk is full")

    run(main)


KINDS_THAT_DIE = """
def dies(body, m):
    sys.stderr.write("boom\\n")
    sys.stderr.flush()
    os._exit(7)

tool = hook = compactor = harness = dies
"""


@requirement("host:failure-same")
@pytest.mark.parametrize("effect", ["read_only", "non_idempotent_write"])
def test_a_failure_has_the_same_details_wherever_it_is_read(
    sqlite_url: str, tmp_path: Path, run: Run, effect: str
) -> None:
    exports = [export("t", own={"effect_class": effect}), *KINDS[1:]]

    async def main() -> None:
        async with gateway_with_model(sqlite_url, tmp_path / "data") as gateway, client_of(gateway) as client:
            package = await Publisher(tmp_path / "data", tmp_path).bring(gateway, KINDS_THAT_DIE, exports)
            bound = {id: (await bind(gateway, package, id)).id for id in INPUTS}
            here = await conversation(client, SCOPE)

            async def ended(path: str) -> Any:
                look = await settled(lambda: client.get(path), lambda now: now.json()["completed_at"] is not None)
                return look.json()

            async def told(path: str) -> Any:
                tried = await settled(lambda: client.get(path), lambda now: now.json()["history"][0]["outcome"])
                return tried.json()

            done = (await client.post(INVOKE, json={"binding_id": bound["t"]})).json()
            read = [(await client.get(f"{INVOKE}/{id}")).json()["failure"] for id in done["attempts"]]
            assert len(read) == (3 if effect == "read_only" else 1) and read[-1] == done["failure"]
            details = [failure["detail"] for failure in read]

            squeeze = {"chain_id": here["chain_id"], "target": {"max_input_tokens": 9}}
            compaction = (await client.post("/v1/compactions", json=squeeze)).json()["id"]
            details.append((await ended(f"/v1/compactions/{compaction}"))["error"]["detail"])

            begun = (await client.post("/v1/harness-executions", json={"binding_id": bound["x"], **SCOPE})).json()["id"]
            details.append((await ended(f"/v1/harness-executions/{begun}"))["error"]["detail"])
            unknown = [None] * (len(read) + 1) + ["unknown"] if effect == "read_only" else ["unknown", None, "unknown"]
            assert [detail.get("execution_outcome") for detail in details] == unknown

            (delivery,) = (await client.get("/v1/hook-deliveries")).json()["items"]
            tried = await told(f"/v1/hook-deliveries/{delivery['id']}")
            details.append(tried["history"][0]["failure"]["detail"])
            for detail in details:
                # Two requests at once in one process write twice before it ends.
                assert (detail["exit_code"], set(detail["stderr_tail"])) == (7, {"boom"})
                assert detail["cause"] == "the plugin ended early (exit code 7): boom"

    run(main)


# Artifacts.

WRITES = """
def reference(body, name, text, kind):
    import hashlib
    with open(os.path.join(body["context"]["scratch_dir"], name), "w") as file:
        file.write(text)
    return {"path": name, "media_type": kind, "size_bytes": len(text.encode()),
            "sha256": hashlib.sha256(text.encode()).hexdigest()}

def tool(body, m):
    kept = [reference(body, *file) for file in body["input"]["files"]]
    result = output(None, artifacts=kept)
    end(m, "failed", result=result) if body["input"].get("fail") else succeed(m, result)
"""
FILES = [
    ("report.md", "# all of it", "text/markdown"),
    ("page.html", "<script>alert(1)</script>", "text/html"),
    ('a "quoted"\r\nname: x.svg', "<svg/>", "image/svg+xml\r\nx: y"),
    ("été.json", "{}", "application/json"),
]


@asynccontextmanager
async def gateway_with_artifacts(url: str, folder: Path) -> AsyncIterator[tuple[Gateway, dict[str, str]]]:
    """A gateway with two orgs, and for each of them a binding of a tool that writes files."""
    async with gateway_at(url, folder) as gateway:
        for number in (1, 2):
            await make_org(gateway, f"org_{number}", f"proj_{number}")
        await gateway.orgs.create_project(OPERATOR, "org_1", "Another", "proj_3")
        exports = [export("t", permissions={"filesystem": "scratch"})]
        package = await Publisher(folder, folder).bring(gateway, WRITES, exports)
        own = await bind(gateway, package)
        foreign = await bind(gateway, package, org_id="org_2", project_id="proj_2")
        yield gateway, {"own": own.id, "foreign": foreign.id}


async def written(gateway: Gateway, binding: str, files: list[Any], fail: bool = False) -> tuple[str, list[Any]]:
    """Where the artifacts of an invocation are, and the references to them."""
    async with client_of(gateway) as operator:
        sent = {"binding_id": binding, "input": {"files": files, "fail": fail}}
        done = (await operator.post(INVOKE, json=sent)).json()
    return f"{INVOKE}/{done['invocation']['invocation_id']}/artifacts", done["result"]["artifacts"]


@requirement("vai:control-artifacts")
@pytest.mark.parametrize("fail", [False, True])
def test_the_artifacts_of_a_result_are_fetched_as_files_that_no_browser_runs(
    sqlite_url: str, tmp_path: Path, run: Run, fail: bool
) -> None:
    async def main() -> None:
        async with gateway_with_artifacts(sqlite_url, tmp_path) as (gateway, bound):
            path, kept = await written(gateway, bound["own"], FILES, fail)
            viewer = await make_key(gateway, "org_1", "viewer", "proj_1")
            async with client_of(gateway, viewer) as client:
                answers = [await client.get(f"{path}/{ref['asset_id']}") for ref in kept]
                assert [(each.status_code, each.text) for each in answers] == [(200, text) for _, text, _ in FILES]
                for answer, ref in zip(answers, kept, strict=True):
                    assert answer.headers["content-length"] == str(ref["size_bytes"])
                    disposition = answer.headers["content-disposition"]
                    assert disposition.startswith("attachment; filename") and "\n" not in disposition
                    assert answer.headers["x-content-type-options"] == "nosniff"
                    assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
                plain = "application/octet-stream"
                types = [each.headers["content-type"].partition(";")[0] for each in answers]
                assert types == ["text/markdown", plain, plain, "application/json"]
                gateway.runner.artifacts.path(kept[0]["asset_id"]).unlink()
                assert (await client.get(f"{path}/{kept[0]['asset_id']}")).status_code == 404

    run(main)


@requirement("vai:control-artifacts", "vai:control-cross-tenant")
def test_an_artifact_is_given_only_with_the_invocation_whose_result_names_it(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_with_artifacts(sqlite_url, tmp_path) as (gateway, bound):
            path, (own,) = await written(gateway, bound["own"], FILES[:1])
            theirs, (secret,) = await written(gateway, bound["foreign"], [("s.txt", "of org_2", "text/plain")])
            async with client_of(gateway) as operator:
                assert (await operator.get(f"{theirs}/{secret['asset_id']}")).text == "of org_2"
            viewer = await make_key(gateway, "org_1", "viewer", "proj_1")
            async with client_of(gateway, viewer) as client:
                assert (await client.get(f"{path}/{own['asset_id']}")).status_code == 200
                for name in (secret["asset_id"], f"asset_{'0' * 64}", "%2e%2e", "x"):
                    answer = await client.get(f"{path}/{name}")
                    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "artifact.not_found")
                assert (await client.get(f"{theirs}/{secret['asset_id']}")).status_code == 404
            for who in (await make_key(gateway, "org_2"), await make_key(gateway, "org_1", "admin", "proj_3")):
                async with client_of(gateway, who) as stranger:
                    answer = await stranger.get(f"{path}/{own['asset_id']}")
                    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "invocation.not_found")

    run(main)


@requirement("vai:control-invocation-result")
def test_an_outcome_with_any_characters_is_kept_and_read_back(database_url: str, tmp_path: Path, run: Run) -> None:
    body = """
    def tool(body, m):
        left = {"content": [{"type": "text", "text": "a\\0b \\u2028 \\U0001f600"}]}
        end(m, "failed", "acme.odd", "no\\0 \\u202e", result=left)
    """

    async def main() -> None:
        async with gateway_at(database_url, tmp_path) as gateway, client_of(gateway) as client:
            await make_org(gateway)
            await bind(gateway, await Publisher(tmp_path, tmp_path).bring(gateway, body))
            done = (await client.post(INVOKE, json={"export": "t", "scope": SCOPE})).json()
            assert done["result"] == {"content": [{"type": "text", "text": "a\0b \u2028 \U0001f600"}]}
            read = (await client.get(f"{INVOKE}/{done['attempts'][0]}")).json()
            assert (read["status"], read["result"]) == ("failed", done["result"])
            assert read["failure"]["message"] == done["failure"]["message"]

    run(main)
