"""The host's own plugins over HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
import pytest

from plugbay.host.config.sections import days
from plugbay.host.host import Host
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.meters import Meters
from plugbay.server.domain.operator_plugins import CallHistory
from plugbay.server.domain.settings import GatewaySettings
from plugbay.store import calls
from plugbay.store.database import Database
from tests.server.api.test_middleware import code
from tests.store.test_calls import record
from tests.support.clocks import TurnedClock
from tests.support.gateways import client_of, gateway_at, make_key, make_org
from tests.support.loops import Run
from tests.support.mcp_servers import write_server
from tests.support.nexo import write_nexo_plugin
from tests.support.patience import PATIENCE, until
from tests.support.plugins import ECHO_SH, write_plugin
from tests.support.requirements import requirement
from tests.support.vai import FAILS, LEFT, write_vai_plugin


def test_plugins_are_shown_and_handled(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p", capabilities=["tool.execute"])

    async def main() -> None:
        host, settings = Host.load(tmp_path / "plugins"), GatewaySettings(tmp_path, config_file=tmp_path / "c.toml")
        async with (
            gateway_at(sqlite_url, tmp_path, host=host, settings=settings) as gateway,
            client_of(gateway) as client,
        ):
            (shown,) = (await client.get("/api/v1/plugins")).json()["plugins"]
            assert (shown["id"], shown["granted"]) == ("p", []) and shown["refused"]
            granted = await client.post("/api/v1/plugins/p:grant", json={"capabilities": ["tool.execute"]})
            assert granted.json()["refused"] is None
            for operation, state in (("stop", "stopped"), ("start", "idle"), ("restart", "idle"), ("reload", "idle")):
                assert (await client.post(f"/api/v1/plugins/p:{operation}")).json()["state"] == state
            revoked = await client.post("/api/v1/plugins/p:revoke", json={"capabilities": ["tool.execute"]})
            assert revoked.json()["granted"] == []
            assert (await client.get("/api/v1/plugins/p")).json()["exports"][0]["name"] == "t"
            assert [each["name"] for each in (await client.get("/api/v1/exports")).json()["exports"]] == ["p/t"]
            for path in ("/api/v1/plugins/q", "/api/v1/plugins/q/logs", "/api/v1/plugins/p:stop"):
                missing = await client.get(path)
                assert (missing.status_code, code(missing)) == (404, "plugin.not_found")
            assert (await client.post("/api/v1/plugins/acme/q:stop")).status_code == 404
            lines = (await client.get("/api/v1/plugins/p/logs", params={"tail": 5})).json()["lines"]
            assert isinstance(lines, list)

    run(main)


def test_a_capability_that_a_manifest_does_not_request_is_not_granted(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    write_nexo_plugin(tmp_path / "plugins", "n", tools=["t"])

    async def main() -> None:
        host = Host.load(tmp_path / "plugins")
        async with gateway_at(sqlite_url, tmp_path, host=host) as gateway, client_of(gateway) as client:
            odd = await client.post("/api/v1/plugins/n:grant", json={"capabilities": ["root"]})
            assert (odd.status_code, code(odd)) == (422, "plugin.not_requested")

    run(main)


def test_a_server_is_approved_as_it_was_last_seen(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_server(tmp_path / "plugins", "srv")
    write_plugin(tmp_path / "plugins", "p")

    async def main() -> None:
        host = Host.load(tmp_path / "plugins", state_dir=tmp_path / "state")
        async with gateway_at(sqlite_url, tmp_path, host=host) as gateway, client_of(gateway) as client:
            digest = {"digest": f"sha256:{'0' * 64}"}
            unseen = await client.post("/api/v1/plugins/srv:approve", json=digest)
            assert (unseen.status_code, code(unseen)) == (409, "plugin.not_shown")
            seen = (await client.post("/api/v1/plugins/srv:look")).json()
            assert [tool["name"] for tool in seen["definitions"]["tools"]] == ["echo"]
            assert (seen["approved_before"], seen["changes"]) == (False, [])
            other = await client.post("/api/v1/plugins/srv:approve", json=digest)
            assert (other.status_code, code(other)) == (409, "plugin.not_shown")
            approved = await client.post("/api/v1/plugins/srv:approve", json={"digest": seen["digest"]})
            assert (approved.json()["refused"], approved.json()["exports"][0]["name"]) == (None, "echo")
            again = await client.post("/api/v1/plugins/srv:approve", json={"digest": seen["digest"]})
            assert again.status_code == 409, "once"
            plain = await client.post("/api/v1/plugins/p:look")
            assert (plain.status_code, code(plain)) == (422, "plugin.no_approval")
            assert (await client.post("/api/v1/plugins/nobody:look")).status_code == 404

    run(main)


@requirement("host:queue-bounded")
@pytest.mark.parametrize(("queue_seconds", "status"), [(0.02, 429), (600.0, 200)])
def test_a_call_that_would_queue_for_too_long_is_answered_with_429_and_others_wait(
    sqlite_url: str, tmp_path: Path, run: Run, queue_seconds: float, status: int
) -> None:
    go = tmp_path / "go"
    write_plugin(tmp_path / "plugins", "p", script=f"until [ -e '{go}' ]; do sleep 0.01; done\n{ECHO_SH}")
    config = tmp_path / "plugbay.toml"
    times = "{ launch = 60, handshake = 60, call = 60, teardown = 60 }"
    config.write_text(f"[plugins.p]\nconcurrency = 1\ntimeouts = {times}")

    async def main() -> None:
        host = Host.load(tmp_path / "plugins", config=config, unconfined=True)
        settings = GatewaySettings(tmp_path, queue_seconds=queue_seconds)
        async with (
            gateway_at(sqlite_url, tmp_path, host=host, settings=settings) as gateway,
            client_of(gateway) as client,
        ):

            def post() -> asyncio.Future[httpx2.Response]:
                return asyncio.ensure_future(client.post("/api/v1/calls", json={"export": "p/t", "input": {"a": 1}}))

            running = post()
            await until(lambda: host.plugins()[0].state == "spawning")
            further = post()
            await asyncio.wait({further}, timeout=PATIENCE if status == 429 else 0.05)
            assert further.done() is (status == 429)
            go.touch()
            answers = await asyncio.gather(running, further)
            assert [answer.status_code for answer in answers] == [200, status], answers[1].text
            assert answers[0].json()["output"] == {"a": 1}
            if status == 429:
                assert code(answers[1]) == "quota.queue_full" and int(answers[1].headers["retry-after"]) >= 1

    run(main)


def test_a_call_is_answered_with_how_it_ended_and_kept(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p")

    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        calls = CallHistory(database, Meters())
        async with Host.load(tmp_path / "plugins", call_log=calls) as host:
            gateway = Gateway(database, host, GatewaySettings(tmp_path), calls=calls)
            await gateway.start()
            async with client_of(gateway) as client:
                done = (await client.post("/api/v1/calls", json={"export": "p/t", "input": {"a": 1}})).json()
                assert (done["status"], done["output"], done["plugin"]["id"]) == ("succeeded", {"a": 1}, "p")
                lost = (await client.post("/api/v1/calls", json={"export": "nothing"})).json()
                assert (lost["status"], lost["failure"]["code"]) == ("failed", "not_found")
                told = await client.post("/api/v1/calls?stream=true", json={"export": "p/t", "input": {"a": 2}})
                assert told.text.startswith("event: result\ndata: {") and '"output":{"a":2}' in told.text
                gone = await client.post("/api/v1/calls?stream=true", json={"export": "nothing"})
                assert '"code":"not_found"' in gone.text
                await calls.flush()
                kept = (await client.get("/api/v1/calls", params={"status": "failed"})).json()["items"]
                assert [call["export"] for call in kept] == ["nothing", "nothing"]
                none = await client.get("/api/v1/calls", params={"since": "2099-01-01T00:00:00Z"})
                assert none.json()["items"] == []
                assert (await client.get("/api/v1/events", params={"topic": "a..b"})).status_code == 400
            await gateway.stop()
        await database.close()

    run(main)


@requirement("vai:host-failed-result")
def test_a_failed_call_has_the_result_that_the_plugin_answered_with(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_vai_plugin(tmp_path / "plugins", FAILS)

    async def main() -> None:
        host = Host.load(tmp_path / "plugins", grant_all=True)
        async with gateway_at(sqlite_url, tmp_path, host=host) as gateway, client_of(gateway) as client:
            done = (await client.post("/api/v1/calls", json={"export": "acme/p/t", "input": {}})).json()
            assert (done["status"], done["output"]) == ("failed", LEFT)
            assert done["failure"]["message"] == "the disk is full"

    run(main)


def test_only_the_operator_reaches_the_plugins_of_the_host(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            async with client_of(gateway, await make_key(gateway, "org_1", "admin")) as client:
                for path in ("/api/v1/plugins", "/api/v1/calls", "/api/v1/events", "/api/v1/exports", "/metrics"):
                    assert (await client.get(path)).status_code == 403
                assert (await client.post("/api/v1/calls", json={"export": "p/t"})).status_code == 403

    run(main)


def test_old_records_are_counted_removed_once_and_audited(database_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        clock = TurnedClock(1000.0)
        async with gateway_at(database_url, tmp_path, clock=clock) as gateway, client_of(gateway) as client:
            async with gateway.database.transaction() as tx:
                await calls.insert(tx, [record(number) for number in range(1, 6)])
            first = (await client.get("/api/v1/calls", params={"limit": 2})).json()
            clock.wall = days(30) + 3.5
            planned = (await client.post("/api/v1/records:prune", json={"dry_run": True})).json()
            assert planned["dry_run"] and planned["records"]["calls"] == {"kept": days(30), "number": 3}
            assert planned["records"]["audit"] == {"kept": None, "number": 0}
            once = {"idempotency-key": "once"}
            done = (await client.post("/api/v1/records:prune", json={}, headers=once)).json()
            assert done == planned | {"dry_run": False}
            assert (await client.post("/api/v1/records:prune", json={}, headers=once)).json() == done
            rest = (await client.get("/api/v1/calls", params={"limit": 2, "cursor": first["next_cursor"]})).json()
            assert rest == {"items": [], "next_cursor": None}
            (entry,) = (await client.get("/v1/audit", params={"action": "records.prune"})).json()["items"]
            assert entry["details"]["removed"] == {"calls": 3}
            metrics = (await client.get("/metrics")).text
            assert 'plugbay_records_removed_total{kind="calls"} 3.0' in metrics
            assert 'plugbay_records_removed_total{kind="audit"} 0.0' in metrics

    run(main)


def test_only_the_operator_of_all_orgs_prunes_records(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            key = await make_key(gateway, "org_1")
            async with client_of(gateway, key) as client:
                refused = await client.post("/api/v1/records:prune", json={})
                assert refused.status_code == 403 and code(refused).startswith("auth.")
            async with client_of(gateway) as client:
                odd = await client.post("/api/v1/records:prune", json={"dry": True})
                assert odd.status_code in (400, 422)

    run(main)


@requirement("host:events-publish", "host:events-watch")
def test_an_event_is_published_and_streamed(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    session = "8c7d1f0e-3b5a-4b1e-9a53-0d0c2f6f7a11"

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            followed = gateway.host_events.follow("orders.>")
            body = {"topic": "orders.created", "payload": {"id": 7}, "session_id": session}
            published = (await client.post("/api/v1/events", json=body)).json()
            assert (published["source"], published["session_id"]) == ("operator", session)
            assert published["subscribers"] == []
            seen = await anext(followed)
            assert seen.data == {key: value for key, value in published.items() if key != "subscribers"}
            for wrong, status in (
                ({"topic": "a..b"}, 400),
                ({"topic": "a.>"}, 400),
                ({"topic": ""}, 400),
                ({"topic": "a", "session_id": "s1"}, 400),
                ({"topic": "a", "source": "p"}, 400),
                ({"topic": "a", "payload": "x" * (1 << 20)}, 413),
            ):
                assert (await client.post("/api/v1/events", json=wrong)).status_code == status, str(wrong)[:60]
            await make_org(gateway)
            async with client_of(gateway, await make_key(gateway, "org_1", "admin")) as tenant:
                assert (await tenant.post("/api/v1/events", json=body)).status_code == 403

    run(main)


@requirement("host:memory-operate")
def test_the_memory_of_an_agent_is_filled_searched_and_cleared(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        host = Host([], state_dir=tmp_path / "state")
        async with gateway_at(sqlite_url, tmp_path, host=host) as gateway, client_of(gateway) as client:
            body = {"agent_id": "demo", "content": "Ada drinks tea.", "tags": ["people"], "memory_type": "fact"}
            added = (await client.post("/api/v1/memories", json=body)).json()
            assert (added["agent_id"], added["tags"], added["memory_type"]) == ("demo", ["people"], "fact")
            await client.post("/api/v1/memories", json={"agent_id": "demo", "content": "Ben plays chess."})
            found = await client.get("/api/v1/memories", params={"agent_id": "demo", "query": "tea"})
            assert found.json() == {"entries": [added]}
            newest = (await client.get("/api/v1/memories", params={"agent_id": "demo", "limit": 1})).json()["entries"]
            assert [entry["content"] for entry in newest] == ["Ben plays chess."]
            other = await client.delete(f"/api/v1/memories/{added['id']}", params={"agent_id": "other"})
            assert (other.status_code, code(other)) == (404, "memory.not_found"), "another agent has no such entry"
            gone = await client.delete(f"/api/v1/memories/{added['id']}", params={"agent_id": "demo"})
            assert gone.json() == {"removed": 1}
            cleared = await client.delete("/api/v1/memories", params={"agent_id": "demo"})
            assert cleared.json() == {"removed": 1}
            actions = [entry["action"] for entry in (await client.get("/v1/audit")).json()["items"]]
            assert {"memory.add", "memory.forget", "memory.clear"} <= set(actions)
            for wrong in ({"agent_id": "", "content": "x"}, {"agent_id": "a", "content": "x" * 65_537}):
                assert (await client.post("/api/v1/memories", json=wrong)).status_code == 400
            assert (await client.delete("/api/v1/memories")).status_code == 400, "an agent has to be named"
            assert (await client.get("/api/v1/memories", params={"agent_id": "a", "limit": 1001})).status_code == 400
            await make_org(gateway)
            async with client_of(gateway, await make_key(gateway, "org_1", "admin")) as tenant:
                assert (await tenant.get("/api/v1/memories", params={"agent_id": "demo"})).status_code == 403
                assert (await tenant.delete("/api/v1/memories", params={"agent_id": "demo"})).status_code == 403

    run(main)
