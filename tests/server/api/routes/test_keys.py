"""API keys over HTTP."""

from __future__ import annotations

from pathlib import Path

from tests.server.api.test_middleware import code
from tests.support.gateways import client_of, gateway_at, make_key, make_org
from tests.support.loops import Run
from tests.support.requirements import requirement


@requirement("vai:control-api-keys")
def test_a_key_is_made_used_listed_without_itself_and_revoked(database_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(database_url, tmp_path) as gateway, client_of(gateway) as client:
            await make_org(gateway)
            body = {"org_id": "org_1", "name": "CI", "role": "admin", "expires_at": "2099-01-01T00:00:00Z"}
            made = (await client.post("/v1/api-keys", json=body)).json()
            assert made["expires_at"] == "2099-01-01T00:00:00.000000Z"
            async with client_of(gateway, made["key"]) as other:
                assert (await other.get("/v1/orgs/org_1")).status_code == 200
                listed = await client.get("/v1/api-keys", params={"org_id": "org_1"})
                assert made["key"] not in listed.text and listed.json()["items"][0]["hint"] == made["key"][-4:]
                one = await client.get(f"/v1/api-keys/{made['id']}")
                assert one.json() == {name: value for name, value in made.items() if name != "key"}
                revoked = await client.delete(f"/v1/api-keys/{made['id']}")
                assert revoked.json()["revoked_at"] is not None
                dead = await other.get("/v1/orgs/org_1")
                assert (dead.status_code, code(dead)) == (401, "auth.key_revoked")

    run(main)


def test_a_key_with_less_makes_none_and_a_moment_without_an_offset_is_none(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            body = {"org_id": "org_1", "name": "CI", "role": "viewer"}
            async with client_of(gateway, await make_key(gateway, "org_1", "operator")) as client:
                assert (await client.post("/v1/api-keys", json=body)).status_code == 403
            async with client_of(gateway) as client:
                for odd in ({"expires_at": "2099-01-01T00:00:00"}, {"role": "root"}, {"org_id": "a:b"}):
                    assert (await client.post("/v1/api-keys", json={**body, **odd})).status_code == 400

    run(main)
