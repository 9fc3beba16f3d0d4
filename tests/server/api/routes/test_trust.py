"""Trusted publishers over HTTP."""

from __future__ import annotations

from pathlib import Path

from plugbay.packages import keys
from tests.support.gateways import client_of, gateway_at, make_key, make_org
from tests.support.loops import Run
from tests.support.packaged import Publisher, bind
from tests.support.requirements import requirement

PATH = "/v1/trusted-publishers"


@requirement("vai:control-trust", "vai:package-trust-replace")
def test_a_key_is_added_listed_and_revoked_with_its_packages(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    keys.make(tmp_path / "acme.key", tmp_path / "acme.pub")
    pem = (tmp_path / "acme.pub").read_text()

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            await make_org(gateway)
            publisher = Publisher(tmp_path, tmp_path)
            package = await publisher.bring(gateway)
            binding = await bind(gateway, package)
            body = {"public_key": pem, "publisher": "acme", "not_after": "2099-12-31T00:00:00Z"}
            refused = await client.post(PATH, json=body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (409, "trust.key_conflict")
            assert refused.json()["error"]["details"] == {"keys": [publisher.key_id]}
            added = await client.post(PATH, json={**body, "other_keys": "keep"})
            assert added.status_code == 201 and added.json()["distrusted_packages"] == []
            listed = (await client.get(f"{PATH}?limit=200")).json()["items"]
            assert {item["key_id"] for item in listed} >= {publisher.key_id, added.json()["key_id"]}
            again = await client.post(
                PATH, json={**body, "public_key": added.json()["public_key"], "other_keys": "keep"}
            )
            assert again.json() == added.json()
            gone = await client.delete(f"{PATH}/{publisher.key_id}")
            assert gone.json()["revoked"] and gone.json()["disabled_bindings"] == [binding.id]
            shown = {"id": package.id, "package_id": "acme/p", "version": "1.0.0", "status": "quarantined"}
            assert gone.json()["distrusted_packages"] == [shown]
            for key in ("rubbish", "AAAA", "-----BEGIN PUBLIC KEY-----", "\u20ac"):
                bad = await client.post(PATH, json={**body, "public_key": key})
                assert (bad.status_code, bad.json()["error"]["code"]) == (422, "trust.key_unusable")
            assert (await client.delete(f"{PATH}/none")).status_code == 404
            async with client_of(gateway, await make_key(gateway, "org_1")) as admin:
                assert (await admin.get(PATH)).status_code == 403

    run(main)
