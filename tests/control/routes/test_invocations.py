"""Invocations over HTTP, with a real plugin."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.support.gateways import client_of, gateway_at, make_key, make_org
from tests.support.loops import Run, until
from tests.support.packaged import Publisher, bind
from tests.support.requirements import requirement

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
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SCOPE = {"org_id": "org_1", "project_id": "proj_1"}


@requirement("vai:control-invocation-record", "vai:control-trace", "vai:control-invocation-filters")
def test_work_is_done_and_answered_with_its_record_and_found_again(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            await make_org(gateway)
            binding = await bind(gateway, await Publisher(tmp_path, tmp_path).bring(gateway, BODY))
            headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "idempotency-key": "once"}
            body: dict[str, Any] = {"binding_id": binding.id, "input": {"a": 1}, "session_id": "sess_1"}
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
            assert (await client.get(f"{path}/{record['invocation_id']}")).json() == record
            for query, count in (
                ("", 2),
                ("?status=failed", 1),
                (f"?trace_id=tr_{TRACE}", 1),
                (f"?binding_id={binding.id}&export_kind=tool", 2),
                ("?session_id=sess_1&org_id=org_1", 1),
                ("?since=2999-01-01T00:00:00Z", 0),
                ("?until=2999-01-01T00:00:00Z&limit=1", 1),
            ):
                assert len((await client.get(f"{path}{query}")).json()["items"]) == count, query

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
            await until(lambda: bool(gateway.live._watchers))
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
                await until(lambda: len(gateway.live._watchers) == 2)
                await client.post("/v1/plugin-invocations", json={"export": "t", "scope": SCOPE})
                gateway.live.close()
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
