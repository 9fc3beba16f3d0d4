"""Old records over HTTP: what there is of them, and their removal."""

from __future__ import annotations

from pathlib import Path

from plugbay.host.config.sections import days
from plugbay.store import calls
from tests.server.api.test_edge import code
from tests.store.test_calls import record
from tests.support.clocks import TurnedClock
from tests.support.gateways import client_of, gateway_at, make_key, make_org
from tests.support.loops import Run


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


def test_nobody_but_the_operator_of_all_orgs_has_records_removed(sqlite_url: str, tmp_path: Path, run: Run) -> None:
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
