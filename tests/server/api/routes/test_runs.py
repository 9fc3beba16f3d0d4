"""Runs over HTTP."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import ValidationError

from plugbay.server.api.routes.runs import RunIn
from tests.support.conversing import gateway_with_model, says, settled, stuck
from tests.support.gateways import client_of, make_key
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.requirements import requirement

HELLO = {"blocks": [{"kind": "input", "content": [{"type": "text", "text": "hello"}]}]}


async def a_chain(client: httpx2.AsyncClient) -> str:
    session = (await client.post("/v1/sessions", json={})).json()["id"]
    made = await client.post("/v1/chains", json={"session_id": session, "defaults": {"model": "m"}})
    return str(made.json()["id"])


async def ended(client: httpx2.AsyncClient, id: str) -> dict[str, Any]:
    async def look() -> dict[str, Any]:
        found: dict[str, Any] = (await client.get(f"/v1/runs/{id}")).json()
        return found

    return await settled(look, lambda run: run["completed_at"] is not None)


@requirement("vai:control-runs-api")
def test_a_run_from_its_start_to_its_timeline(run: Run, sqlite_url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with gateway_with_model(sqlite_url, tmp_path, says("hi")) as gateway:
            key = await make_key(gateway, "org_1", project_id="proj_1")
            async with client_of(gateway, key) as client:
                chain = await a_chain(client)
                traced = {"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"}
                begun = await client.post(f"/v1/chains/{chain}/runs", json=HELLO, headers=traced)
                assert (begun.status_code, begun.json()["status"]) == (201, "queued")
                assert begun.json()["trace_id"] == f"tr_{'ab' * 16}"
                id = begun.json()["id"]
                done = await ended(client, id)
                assert (done["status"], done["stop_reason"], done["model"]) == ("completed", "end_turn", "local/m")
                assert done["usage"] == {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
                timeline = (await client.get(f"/v1/runs/{id}/timeline")).json()
                assert [event["type"] for event in timeline["events"]] == ["run.queued", "run.started", "run.completed"]
                request = (await client.get(f"/v1/runs/{id}/effective-request")).json()
                assert request["messages"] == [{"role": "user", "content": "hello"}]
                again = await client.post(f"/v1/runs/{id}:regenerate", json={})
                assert (again.status_code, again.json()["rerun_of_run_id"]) == (201, id)
                await ended(client, again.json()["id"])
                listed = (await client.get(f"/v1/chains/{chain}/runs")).json()
                assert [item["id"] for item in listed["items"]] == [id]
                both = (await client.get("/v1/runs", params={"status": "completed"})).json()
                assert len(both["items"]) == 2

    run(story)


def names(stream: httpx2.Response) -> list[str]:
    return [line[7:] for line in stream.text.splitlines() if line.startswith("event: ")]


@requirement("vai:control-runs-stream")
def test_a_run_that_was_created_before_is_followed_to_its_end(run: Run, sqlite_url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with gateway_with_model(sqlite_url, tmp_path, stuck()) as gateway:
            key = await make_key(gateway, "org_1", project_id="proj_1")
            async with client_of(gateway, key) as client:
                chain = await a_chain(client)
                id = (await client.post(f"/v1/chains/{chain}/runs", json=HELLO)).json()["id"]
                following = asyncio.create_task(client.get(f"/v1/runs/{id}/events"))
                await until(lambda: id in gateway.runs.feeds.watched)
                await client.post(f"/v1/runs/{id}:cancel")
                seen = names(await following)
                assert (seen[0], seen[-1]) == ("run", "run.cancelled")
                assert names(await client.get(f"/v1/runs/{id}/events")) == ["run"], "it has ended"
                assert (await client.get("/v1/runs/run_nobodys/events")).status_code == 404
                assert not gateway.runs.feeds.watched

    run(story)


@requirement("vai:control-runs-stream")
def test_a_streamed_run_is_seen_as_it_happens(run: Run, sqlite_url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with gateway_with_model(sqlite_url, tmp_path, says("hi there")) as gateway:
            key = await make_key(gateway, "org_1", project_id="proj_1")
            async with client_of(gateway, key) as client:
                chain = await a_chain(client)
                answer = await client.post(f"/v1/chains/{chain}/runs:stream", json=HELLO)
                assert answer.headers["content-type"].startswith("text/event-stream")
                events = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
                pieces = [json.loads(data) for data in events]
                assert [piece["type"] for piece in pieces] == [
                    "run.queued",
                    "run.started",
                    "response.delta",
                    "run.completed",
                ]
                assert pieces[2]["delta"] == "hi there"
                refused = await client.post("/v1/chains/ch_nobodys/runs:stream", json=HELLO)
                assert refused.status_code == 404

    run(story)


@requirement("vai:control-run-one-at-a-time")
def test_conflicts_and_cancelling(run: Run, sqlite_url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with gateway_with_model(sqlite_url, tmp_path, stuck()) as gateway:
            key = await make_key(gateway, "org_1", project_id="proj_1")
            async with client_of(gateway, key) as client:
                chain = await a_chain(client)
                begun = await client.post("/v1/runs", json={**HELLO, "chain_id": chain, "routing": {"model": "n"}})
                assert begun.json()["model"] == "local/n"
                second = await client.post(f"/v1/chains/{chain}/runs", json=HELLO)
                assert (second.status_code, second.json()["error"]["code"]) == (409, "chain.attach_conflict")
                cancelled = await client.post(f"/v1/runs/{begun.json()['id']}:cancel")
                assert cancelled.status_code == 200
                done = await ended(client, begun.json()["id"])
                assert (done["status"], done["error"]["code"]) == ("cancelled", "run.cancelled")

    run(story)


def test_a_run_without_a_chain_takes_the_sessions_latest_or_makes_one(
    run: Run, sqlite_url: str, tmp_path: Path
) -> None:
    async def story() -> None:
        async with gateway_with_model(sqlite_url, tmp_path) as gateway:
            key = await make_key(gateway, "org_1")
            async with client_of(gateway, key) as client:
                session = (await client.post("/v1/sessions", json={})).json()["id"]
                begun = await client.post("/v1/runs", json={**HELLO, "session_id": session, "model": "m"})
                await ended(client, begun.json()["id"])
                again = await client.post("/v1/runs", json={**HELLO, "session_id": session, "model": "m"})
                assert again.json()["chain_id"] == begun.json()["chain_id"]
                await ended(client, again.json()["id"])
                nowhere = await client.post("/v1/runs", json=HELLO)
                assert (nowhere.status_code, nowhere.json()["error"]["code"]) == (400, "run.no_chain")
                unsaid = await client.post("/v1/runs", json={**HELLO, "session_id": session})
                assert (unsaid.status_code, unsaid.json()["error"]["code"]) == (422, "run.model_missing")

    run(story)


@requirement("vai:control-idempotency")
def test_a_repeated_request_starts_one_run(run: Run, sqlite_url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with gateway_with_model(sqlite_url, tmp_path) as gateway:
            key = await make_key(gateway, "org_1")
            async with client_of(gateway, key) as client:
                chain = await a_chain(client)
                headers = {"Idempotency-Key": "once"}
                first = await client.post(f"/v1/chains/{chain}/runs", json=HELLO, headers=headers)
                again = await client.post(f"/v1/chains/{chain}/runs", json=HELLO, headers=headers)
                assert first.status_code == again.status_code == 201
                assert first.json() == again.json()
                await ended(client, first.json()["id"])
                other = await client.post(f"/v1/chains/{chain}/runs", json={**HELLO, "model": "x"}, headers=headers)
                assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency.conflict")
                assert len((await client.get(f"/v1/chains/{chain}/runs")).json()["items"]) == 1

    run(story)


@pytest.mark.parametrize(
    "body",
    [
        {"temperature": 3},
        {"limits": {"max_turns": 0}},
        {"limits": {"timeout_ms": 10**9}},
        {"tools": [""]},
    ],
)
def test_a_run_out_of_bounds_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        RunIn.model_validate(body)
