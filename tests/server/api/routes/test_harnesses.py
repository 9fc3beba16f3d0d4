"""Executions of harnesses over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import ValidationError

from plugbay.server.api.routes.harnesses import ExecutionIn, ExecutionOut
from plugbay.server.domain.gateway import Gateway
from tests.support.conversing import gateway_with_model, settled
from tests.support.gateways import client_of, make_key
from tests.support.loops import Run
from tests.support.packaged import Publisher, bind
from tests.support.patience import until
from tests.support.requirements import requirement
from tests.support.vai import export

SCOPE = {"org_id": "org_1", "project_id": "proj_1"}
HELLO = [{"kind": "input", "content": [{"type": "text", "text": "hello"}]}]


@requirement("vai:control-harness-api")
def test_an_execution_is_started_read_cancelled_and_resumed(run: Run, sqlite_url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with gateway_with_model(sqlite_url, tmp_path / "data") as gateway:
            key = await make_key(gateway, "org_1", "operator", project_id="proj_1")
            viewer = await make_key(gateway, "org_1", "viewer", project_id="proj_1")
            package = await Publisher(tmp_path / "data", tmp_path).bring(gateway, "", [export("x", "harness")])
            binding = await bind(gateway, package, "x")
            async with client_of(gateway, key) as client:
                begun = await client.post("/v1/harness-executions", json={"binding_id": binding.id})
                assert (begun.status_code, begun.json()["status"]) == (202, "queued")
                assert begun.json()["policy"] == {"max_depth": 4, "max_child_runs": 12, "allow_compaction": True}
                at = f"/v1/harness-executions/{begun.json()['id']}"

                async def look() -> Any:
                    return (await client.get(at)).json()

                done = await settled(look, lambda now: now["completed_at"] is not None)
                assert (done["status"], done["summary"]) == ("succeeded", {"text": "done"})
                assert done["checkpoint"] == {"kind": "checkpoint", "data": {}}
                assert (await client.post(f"{at}:cancel")).json()["status"] == "succeeded"
                resumed = await client.post(f"{at}:resume")
                assert (resumed.status_code, resumed.json()["mode"]) == (202, "resume")
                await settled(look, lambda now: now["completed_at"] is not None)
                listed = (await client.get("/v1/harness-executions", params={"binding_id": binding.id})).json()
                assert [item["resumes"] for item in listed["items"]] == [1]
                lost = await client.post("/v1/harness-executions", json={"binding_id": "bind_9"})
                assert (lost.status_code, lost.json()["error"]["code"]) == (422, "harness.no_binding")
            async with client_of(gateway, viewer) as client:
                assert (await client.get(at)).status_code == 200
                assert (await client.post(f"{at}:resume")).status_code == 403

    run(story)


def test_an_execution_out_of_bounds_is_refused() -> None:
    with pytest.raises(ValidationError):
        ExecutionIn.model_validate({"binding_id": "b", "policy": {"max_child_runs": -1}})


def test_the_document_lists_the_modes_of_an_execution() -> None:
    assert ExecutionOut.model_json_schema()["properties"]["mode"]["enum"] == ["start", "resume"]


# Tools of a harness.

WAITS = """
def harness(body, m):
    event(m, message="begun")
    cancels[m["id"]].wait()

def tool(body, m):
    if body["input"].get("fail"):
        sys.stderr.write("for the operator\\n")
        sys.stderr.flush()
        os._exit(7)
    succeed(m, output({"input": body["input"], "gateway": body["context"]["gateway"]["scopes"]}))
"""
CALLS_BACK = {"network": "egress", "gateway_api_scopes": ["runs:write"]}
PACKAGE = [
    export("x", "harness", own={"supports": ["continue", "tool"]}, permissions=CALLS_BACK, max_concurrency=4),
    export("plain", "harness", permissions=CALLS_BACK),
    export("t", permissions=CALLS_BACK),
    export("u"),
    export("h", "hook"),
]
INVOKE = "/v1/plugin-invocations"


class Tokens:
    """The tokens that a gateway issues, by execution."""

    def __init__(self, gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of: dict[str, str] = {}
        issue = gateway.credentials.issue

        async def issued(claims: Any) -> str:
            token = self.of[claims["execution_id"]] = await issue(claims)
            return token

        monkeypatch.setattr(gateway.credentials, "issue", issued)


@asynccontextmanager
async def harness_tokens(
    url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Gateway, dict[str, str], Callable[..., Awaitable[tuple[str, dict[str, Any]]]]]]:
    """A gateway with two orgs, its bindings, and a way to start a harness: its token and its execution."""
    async with gateway_with_model(url, folder / "data") as gateway, client_of(gateway) as operator:
        package = await Publisher(folder / "data", folder).bring(gateway, WAITS, PACKAGE)
        bound = {each["id"]: (await bind(gateway, package, each["id"])).id for each in PACKAGE}
        bound["foreign"] = (await bind(gateway, package, "t", org_id="org_2", project_id="proj_2")).id
        tokens = Tokens(gateway, monkeypatch)

        async def start(name: str = "x", **policy: Any) -> tuple[str, dict[str, Any]]:
            body = {"binding_id": bound[name], "org_id": "org_1", "project_id": "proj_1", "policy": policy}
            begun = (await operator.post("/v1/harness-executions", json=body)).json()
            await until(lambda: begun["id"] in tokens.of)
            return tokens.of[begun["id"]], begun

        yield gateway, bound, start


async def code(answer: Awaitable[httpx2.Response]) -> tuple[int, str]:
    got = await answer
    return got.status_code, got.json()["error"]["code"]


@requirement("vai:control-harness-tools")
def test_a_harness_lists_and_invokes_the_tools_that_it_was_given_and_no_others(
    run: Run, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with harness_tokens(sqlite_url, tmp_path, monkeypatch) as (gateway, bound, start):
            token, execution = await start(tools=["t"])
            assert execution["policy"]["tools"] == ["acme/p/t"]
            async with client_of(gateway, token) as client:
                (tool,) = (await client.get("/v1/plugin-tools")).json()["items"]
                assert (tool["export_id"], [each["binding_id"] for each in tool["bindings"]]) == ("t", [bound["t"]])
                for named in ({"export": "t"}, {"export": "acme/p/t"}, {"binding_id": bound["t"]}):
                    done = await client.post(INVOKE, json={**named, "input": {"a": 1}})
                    assert (done.status_code, done.json()["status"]) == (200, "succeeded"), done.text
                    assert done.json()["result"]["structured_output"]["input"] == {"a": 1}
                    record = done.json()["invocation"]
                    assert (record["session_id"], record["chain_id"]) == (
                        execution["session_id"],
                        execution["chain_id"],
                    )
                    assert record["trace_id"] == execution["trace_id"]
                for other in ("u", "h", "plain", "x"):
                    refused = (403, "policy.tool_not_given")
                    assert await code(client.post(INVOKE, json={"binding_id": bound[other]})) == refused, other
                assert await code(client.post(INVOKE, json={"export": "u"})) == (403, "policy.tool_not_given")
                missing = (404, "binding.not_found")
                assert await code(client.post(INVOKE, json={"binding_id": bound["foreign"]})) == missing
                assert await code(client.post(INVOKE, json={"export": "nothing"})) == missing
                elsewhere = {"export": "t", "scope": {"org_id": "org_2", "project_id": "proj_2"}}
                assert await code(client.post(INVOKE, json=elsewhere)) == (404, "project.not_found")
                foreign = client.get("/v1/plugin-tools", params={"org_id": "org_2"})
                assert (await foreign).status_code == 404
                later = client.post(INVOKE, json={"export": "t", "wait": False})
                assert await code(later) == (400, "request.invalid")
                asked = {"chain_id": execution["chain_id"], "model": "local/m", "tools": ["u"], "blocks": HELLO}
                assert await code(client.post("/v1/runs", json=asked)) == (422, "run.tool_unknown")
            async with client_of(gateway) as operator:
                at = f"/v1/harness-executions/{execution['id']}"
                await operator.post(f"{at}:cancel")
                await settled(lambda: operator.get(at), lambda now: now.json()["completed_at"] is not None)
            async with client_of(gateway, token) as client:
                assert await code(client.get("/v1/plugin-tools")) == (401, "auth.token_revoked")

    run(story)


@requirement("vai:control-harness-tools")
def test_a_harness_is_given_all_tools_that_serve_it_unless_some_are_named(
    run: Run, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with harness_tokens(sqlite_url, tmp_path, monkeypatch) as (gateway, bound, start):
            token, execution = await start()
            assert "tools" not in execution["policy"]
            async with client_of(gateway, token) as client:
                listed = (await client.get("/v1/plugin-tools")).json()["items"]
                assert sorted(tool["export_id"] for tool in listed) == ["t", "u"]
                assert [each["binding_id"] for tool in listed for each in tool["bindings"]].count(bound["foreign"]) == 0
                done = (await client.post(INVOKE, json={"export": "t"})).json()
                assert done["result"]["structured_output"]["gateway"] == [], "such a tool has no token of its own"
                crashed = (await client.post(INVOKE, json={"export": "u", "input": {"fail": True}})).json()
                assert (crashed["status"], crashed["failure"]["code"]) == ("retryable_failure", "crashed")
                assert "for the operator" not in str(crashed), "stderr is not for plugins"
            token, _ = await start(tools=[])
            async with client_of(gateway, token) as client:
                assert (await client.get("/v1/plugin-tools")).json()["items"] == []
                assert await code(client.post(INVOKE, json={"export": "t"})) == (403, "policy.tool_not_given")
            async with client_of(gateway) as operator:
                wrong = {"binding_id": bound["x"], **SCOPE, "policy": {"tools": ["v"]}}
                unknown = operator.post("/v1/harness-executions", json=wrong)
                assert await code(unknown) == (422, "run.tool_unknown")

    run(story)


@requirement("vai:control-harness-tools")
def test_a_plugin_that_is_no_harness_with_tools_neither_lists_nor_invokes_any(
    run: Run, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with harness_tokens(sqlite_url, tmp_path, monkeypatch) as (gateway, _, start):
            token, _ = await start("plain")
            async with client_of(gateway, token) as client:
                assert await code(client.get("/v1/plugin-tools")) == (403, "auth.scope_denied")
                assert await code(client.post(INVOKE, json={"export": "t"})) == (403, "auth.scope_denied")
                assert await code(client.get("/v1/plugin-hooks")) == (403, "auth.scope_denied")

    run(story)
