"""Who asks, and whether they may."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.server.api import caller as module
from plugbay.server.api.caller import NEEDS, NEEDS_ONE, RateLimits, needs
from plugbay.server.domain import sessions as sessions_module
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.principal import Principal
from plugbay.server.domain.settings import GatewaySettings
from plugbay.store.rows import ALL_TENANTS
from tests.server.api.test_middleware import code
from tests.support.clocks import TurnedClock
from tests.support.databases import KINDS, database
from tests.support.gateways import client_of, gateway_at, make_key, make_org, openapi_of
from tests.support.loops import Run
from tests.support.requirements import requirement


@requirement("vai:control-auth")
def test_without_a_key_or_with_one_that_nobody_knows_nothing_is_answered(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            for header, expected in (
                ("", "auth.missing"),
                ("Basic abc", "auth.missing"),
                ("Bearer ", "auth.missing"),
                ("Bearer nobody", "auth.key_unknown"),
                ("Bearer " + "x" * 5000, "auth.key_unknown"),
            ):
                answer = await client.get("/v1/orgs", headers={"authorization": header})
                assert (answer.status_code, code(answer)) == (401, expected)
                assert answer.headers["www-authenticate"] == "Bearer"
            token = str(gateway.made_operator_token)
            small = await client.get("/v1/orgs", headers={"authorization": f"bearer  {token} "})
            assert small.status_code == 200

    run(main)


@requirement("vai:control-scopes")
def test_a_role_that_is_not_enough_is_told_what_would_be(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            async with client_of(gateway, await make_key(gateway, "org_1", "viewer")) as client:
                answer = await client.patch("/v1/orgs/org_1", json={"name": "x"})
                assert (answer.status_code, code(answer)) == (403, "auth.role_denied")
                assert answer.json()["error"]["details"] == {"required": ["admin"]}
                assert (await client.get("/v1/orgs/org_1")).status_code == 200

    run(main)


@requirement("vai:control-rate-limit")
def test_whoever_asks_too_often_is_told_when_to_come_again(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        clock, slow = TurnedClock(), GatewaySettings(tmp_path, requests_per_second=1, request_burst=2)
        async with (
            gateway_at(sqlite_url, tmp_path, clock=clock, settings=slow) as gateway,
            client_of(gateway) as client,
        ):
            statuses = [(await client.get("/v1/orgs")).status_code for _ in range(3)]
            assert statuses == [200, 200, 429]
            answer = await client.get("/v1/orgs")
            assert answer.headers["retry-after"] == "1" and answer.json()["error"]["retryable"] is True
            assert (await client.get("/livez")).status_code == 200, "nobody is asked for a key there"
            clock.turn(1)
            assert (await client.get("/v1/orgs")).status_code == 200

    run(main)


def test_what_a_route_needs_is_written_into_its_document(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    assert needs("a", "b", any_of=["c"])["openapi_extra"] == {NEEDS: ["a", "b"], NEEDS_ONE: ["c"]}

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            document = openapi_of(gateway)
            assert document["paths"]["/v1/audit"]["get"][NEEDS] == ["admin"]
            assert document["paths"]["/v1/audit"]["get"]["security"] == [{"key": []}]
            open_routes = [
                path for path, item in document["paths"].items() if any(NEEDS not in op for op in item.values())
            ]
            assert open_routes == ["/livez", "/readyz"]

    run(main)


def key(number: int) -> Principal:
    return Principal("key", "org_1", None, "admin", key_id=f"key_{number}")


@requirement("vai:control-rate-limit")
def test_each_caller_has_a_burst_and_then_its_rate() -> None:
    clock = TurnedClock()
    rates = RateLimits(clock, 10, 3)
    for _ in range(3):
        rates.take(key(1))
    with pytest.raises(GatewayError) as raised:
        rates.take(key(1))
    assert (raised.value.status, raised.value.retry_after) == (429, 0.1)
    rates.take(key(2))
    clock.turn(0.11)
    rates.take(key(1))


def test_callers_are_forgotten_before_they_take_all_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CALLERS", 5)
    rates = RateLimits(TurnedClock(), 1, 1)
    for number in range(20):
        rates.take(key(number))
    assert len(rates._buckets) == 5


@requirement("vai:control-second-wall")
@pytest.mark.parametrize("kind", KINDS)
def test_on_postgresql_a_query_without_its_filter_shows_an_org_nothing_of_another(
    kind: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first wall is removed: lists have no filter, and every id is visible to every caller."""
    monkeypatch.setattr(sessions_module, "tenant", lambda caller: ALL_TENANTS)
    monkeypatch.setattr(Principal, "sees", lambda *_: True)

    async def main(url: str) -> None:
        async with gateway_at(url, tmp_path) as gateway:
            await make_org(gateway)
            await make_org(gateway, "org_2", "proj_2")
            async with client_of(gateway, await make_key(gateway, "org_1")) as client:
                id = (await client.post("/v1/sessions", json={})).json()["id"]
                path = f"/v1/sessions/{id}"
                assert (await client.get(path)).status_code == 200
            async with client_of(gateway, await make_key(gateway, "org_2")) as client:
                listed = [each["id"] for each in (await client.get("/v1/sessions")).json()["items"]]
                found = (await client.get(path)).status_code
                changed = (await client.patch(path, json={"metadata": {"a": 1}})).status_code
            if kind == "sqlite":
                assert (listed, found, changed) == ([id], 200, 200), "without the first wall SQLite shows everything"
            else:
                assert (listed, found, changed) == ([], 404, 404)
            async with client_of(gateway) as client:
                assert [each["id"] for each in (await client.get("/v1/sessions")).json()["items"]] == [id]

    with database(kind, tmp_path) as url:
        run(lambda: main(url))


def test_each_of_several_gateways_has_its_share_of_the_rate() -> None:
    clock, number = TurnedClock(), 1
    rates = RateLimits(clock, 100, 200, lambda: number)

    def passed() -> int:
        count = 0
        while True:
            try:
                rates.take(key(1))
            except GatewayError:
                return count
            count += 1

    assert passed() == 200
    number = 4
    assert passed() == 50, "at another number, each begins with its share of the burst"
    clock.turn(1.0)
    assert passed() == 25
    number = 100
    assert passed() == 10, "and with ten requests at least"
