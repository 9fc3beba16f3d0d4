"""One-time links over the API."""

from __future__ import annotations

from pathlib import Path

from plugbay.server.dashboard.sessions import CODE_SECONDS
from plugbay.server.domain.clock import stamp
from tests.support.clocks import TurnedClock
from tests.support.gateways import client_of, gateway_at, make_key, make_org
from tests.support.loops import Run


def test_a_key_gets_a_link_that_logs_in_with_its_rights(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        clock = TurnedClock()
        async with gateway_at(sqlite_url, tmp_path, clock=clock) as gateway:
            await make_org(gateway)
            key = await make_key(gateway, "org_1", "viewer")
            async with client_of(gateway, key) as client:
                made = await client.post("/api/v1/dashboard-links")
                assert made.status_code == 201
                assert made.json()["expires_at"] == stamp(clock.now() + CODE_SECONDS)
                assert made.json()["url"].startswith("http://127.0.0.1/login/") and key not in made.text
                del client.headers["authorization"]
                assert (await client.get(made.json()["url"])).status_code == 303
                assert (await client.get("/orgs/org_1")).status_code == 200
                assert (await client.get("/calls")).status_code == 403, "no more than the key"
                assert (await client.post("/api/v1/dashboard-links")).status_code == 401

    run(main)


def test_a_link_is_of_the_address_under_which_it_was_asked_for(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            made = await client.post("/api/v1/dashboard-links", headers={"host": "localhost:9000"})
            assert made.json()["url"].startswith("http://localhost:9000/login/")

    run(main)


def test_a_repetition_is_told_no_link(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            headers = {"idempotency-key": "once"}
            first, again = [await client.post("/api/v1/dashboard-links", headers=headers) for _ in range(2)]
            assert first.json()["url"] and again.json()["url"] is None

    run(main)
