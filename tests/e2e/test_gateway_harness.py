"""A harness in its sandbox that comes back to a real server over a real socket, and is stopped where its policy says.

`plugbay serve` runs as its own process, on each kind of database. The harness asks for far more than it may have, from
many threads at once: what the gateway gives it is exactly what it was started with.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx2

from tests.server.test_server import served
from tests.support.conversing import says
from tests.support.databases import database_url
from tests.support.openai_server import OpenAiServer
from tests.support.packaged import Publisher
from tests.support.patience import PATIENCE
from tests.support.requirements import requirement
from tests.support.vai import export

__all__ = ["database_url"]

ASKS = 24
"""Child runs that the harness wants, all at once."""

ALLOWED = 3

USUALLY = 12
"""Child runs of a harness whose policy says nothing of them."""

POLL_SECONDS = 0.05
"""Between two questions whether it has ended: a server that is quick refuses more than 100 a second."""

PERMISSIONS = {
    "network": "egress",
    "filesystem": "none",
    "gateway_api_scopes": ["chains:read", "chains:write", "runs:write", "compactions:write"],
    "secret_slots": [],
}

BODY = f"""
import urllib.error, urllib.request
from concurrent.futures import ThreadPoolExecutor

def harness(body, m):
    context, other = body["context"], json.loads(body["trigger"]["input"][0]["text"])
    gateway, mine = context["gateway"], body["target"]

    def ask(method, path, **fields):
        headers = {{"authorization": "Bearer " + gateway["delegation_token"], "content-type": "application/json"}}
        data = json.dumps(fields).encode() if fields else None
        request = urllib.request.Request(gateway["base_url"] + path, data, headers, method=method)
        while True:
            try:
                with urllib.request.urlopen(request, timeout=240) as answer:
                    return answer.status, json.loads(answer.read())
            except urllib.error.HTTPError as error:
                said = json.loads(error.read())["error"]
                if error.code != 503:  # on a busy machine every connection to the database may be in use
                    return error.code, said

    task = [{{"kind": "input", "content": [{{"type": "text", "text": "a draft"}}]}}]

    def child(number):
        status, chain = ask("POST", "/v1/chains", session_id=mine["session_id"], blocks=task)
        assert status == 201, chain
        status, made = ask("POST", "/v1/runs", chain_id=chain["id"], model="local/m", tools=[])
        return [status, made.get("code"), (made.get("details") or {{}}).get("limit"), made.get("execution_id")]

    with ThreadPoolExecutor(8) as threads:
        children = list(threads.map(child, range({ASKS})))
    squeeze = {{"chain_id": mine["chain_id"], "target": {{"max_input_tokens": 1000}}}}
    data = {{
        "children": children,
        "other_chain": ask("GET", "/v1/chains/" + other["chain_id"])[1].get("code"),
        "other_run": ask("POST", "/v1/runs", chain_id=other["chain_id"], model="local/m")[1].get("code"),
        "unscoped": ask("GET", "/v1/sessions")[1].get("code"),
        "operators": ask("GET", "/v1/plugin-bindings")[1].get("code"),
        "compaction": ask("POST", "/v1/compactions", **squeeze)[1].get("code"),
        "chains": len(ask("GET", "/v1/chains?limit=200")[1]["items"]),
    }}
    checkpoint = {{"kind": "checkpoint", "data": data}}
    succeed(m, {{"checkpoint": checkpoint, "summary": {{"text": "done"}}, "artifacts": []}})
"""


def made(answer: httpx2.Response, status: int = 201) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    whole: dict[str, Any] = answer.json()
    return whole


def ended(client: httpx2.Client, path: str) -> dict[str, Any]:
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline:
        now = made(client.get(path), 200)
        if now["completed_at"] is not None:
            return now
        time.sleep(POLL_SECONDS)
    raise AssertionError(f"{path} has no end")


def chain_of(client: httpx2.Client) -> dict[str, Any]:
    session = made(client.post("/v1/sessions", json={"org_id": "acme"}))
    block = {"kind": "input", "content": [{"type": "text", "text": "hello"}]}
    return made(client.post("/v1/chains", json={"session_id": session["id"], "blocks": [block]}))


def acted(folder: Path, url: str) -> None:
    with served(folder, "--database", url) as server, server.client() as client:
        publisher = Publisher(Path(server.facts["data"]), folder)
        harness = export("x", "harness", permissions=PERMISSIONS, default_timeout_ms=60_000)
        packed = publisher.pack(BODY, [harness, export("c", "compactor")])
        headers = {"content-type": "application/vnd.vai.plugin.package.v1.tar+gzip", **publisher.header(packed)}
        made(client.post("/v1/plugin-packages", content=packed.path.read_bytes(), headers=headers))
        made(client.post("/v1/orgs", json={"id": "acme", "name": "Acme"}))
        draft = {"package_id": "acme/p", "package_version": "1.0.0", "scope": {"org_id": "acme"}}
        binding, _ = [made(client.post("/v1/plugin-bindings", json={**draft, "export_id": id})) for id in ("x", "c")]
        target, other = chain_of(client), chain_of(client)
        errand = {
            "binding_id": binding["binding_id"],
            "chain_id": target["id"],
            "trigger": {"input": [{"type": "text", "text": f'{{"chain_id": "{other["id"]}"}}'}]},
            "policy": {"max_child_runs": ALLOWED, "allow_compaction": False},
        }
        begun = made(client.post("/v1/harness-executions", json=errand), 202)
        execution = ended(client, f"/v1/harness-executions/{begun['id']}")
        assert execution["status"] == "succeeded", (execution, server.log)
        judge(client, begun["id"], execution["checkpoint"]["data"], ALLOWED)
        judge_invoked(client, errand)
        judge_narrowed(client, errand)
        assert server.end() == 0


def judge_invoked(client: httpx2.Client, errand: dict[str, Any]) -> None:
    """The same harness, invoked: where its policy says nothing, it has the usual limits."""
    said = {"trigger": {"type": "user_request", **errand["trigger"]}, "policy": {"allow_compaction": False}}
    chain = chain_of(client)
    place = {"session_id": chain["session_id"], "chain_id": chain["id"]}
    body = {"binding_id": errand["binding_id"], "input": said, **place}
    outcome = made(client.post("/v1/plugin-invocations", json=body, timeout=PATIENCE), 200)
    assert outcome["status"] == "succeeded", outcome
    id = outcome["invocation"]["execution_id"]
    judge(client, id, outcome["result"]["checkpoint"]["data"], USUALLY)
    execution = made(client.get(f"/v1/harness-executions/{id}"), 200)
    assert (execution["status"], execution["session_id"]) == ("succeeded", outcome["invocation"]["session_id"])


def judge_narrowed(client: httpx2.Client, errand: dict[str, Any]) -> None:
    """The same harness under policies of its org and its binding: the least counts, whatever a request asks for."""
    place = f"/v1/plugin-bindings/{errand['binding_id']}"
    made(client.patch("/v1/orgs/acme", json={"policy": {"max_child_runs": 2}}), 200)
    made(client.patch(place, json={"policy": {"max_child_runs": 9, "allow_compaction": False}}), 200)
    shown = made(client.post(f"{place}:validate"), 200)["effective_permissions"]["limits"]
    assert (shown["max_child_runs"], shown["max_depth"], shown["allow_compaction"]) == (2, None, False)
    asked = {"max_child_runs": ALLOWED, "allow_compaction": True}
    begun = made(
        client.post("/v1/harness-executions", json={**errand, "chain_id": chain_of(client)["id"], "policy": asked}), 202
    )
    assert begun["policy"] == {"max_depth": 4, "max_child_runs": 2, "allow_compaction": False}
    execution = ended(client, f"/v1/harness-executions/{begun['id']}")
    judge(client, begun["id"], execution["checkpoint"]["data"], 2)


def judge(client: httpx2.Client, execution_id: str, seen: dict[str, Any], allowed: int) -> None:
    """What the harness saw, and what the gateway has of it."""
    children = Counter(map(tuple, seen["children"]))
    refused = (403, "policy.limit_exceeded", "max_child_runs", None)
    assert children == {(201, None, None, execution_id): allowed, refused: ASKS - allowed}
    assert (seen["other_chain"], seen["other_run"]) == ("chain.not_found", "chain.not_found")
    assert (seen["unscoped"], seen["operators"]) == ("auth.scope_denied", "auth.scope_denied")
    assert seen["compaction"] == "policy.limit_exceeded"
    assert seen["chains"] == 1 + ASKS, "its own and those it made, and no other session's"
    runs = made(client.get("/v1/runs", params={"execution_id": execution_id}), 200)["items"]
    assert len(runs) == allowed
    [invocation] = made(client.get("/v1/plugin-invocations", params={"execution_id": execution_id}), 200)["items"]
    assert (invocation["execution_class"], invocation["status"]) == ("isolated", "succeeded")


@requirement("vai:control-harness-limits", "vai:control-harness-one-way", "vai:control-policy-limits")
def test_a_harness_in_its_sandbox_is_stopped_by_the_gateway_and_not_by_itself(
    database_url: str, tmp_path: Path
) -> None:
    async def story() -> None:
        async with OpenAiServer(says("a draft")) as model:
            provider = f'[llm.providers.local]\nkind = "openai"\nbase_url = "{model.url}"\nmax_retries = 0\n'
            (tmp_path / "plugbay.toml").write_text(provider)
            await asyncio.to_thread(acted, tmp_path, database_url)

    with asyncio.Runner() as runner:
        runner.run(asyncio.wait_for(story(), 2 * PATIENCE))
