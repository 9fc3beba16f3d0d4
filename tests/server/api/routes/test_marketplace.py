"""The marketplace over HTTP."""

from __future__ import annotations

from pathlib import Path

from tests.support.gateways import client_of, gateway_at, make_key, make_org
from tests.support.loops import Run
from tests.support.packaged import Publisher
from tests.support.requirements import requirement

SCOPE = {"org_id": "org_1", "project_id": "proj_1"}


@requirement("vai:control-marketplace-install", "vai:control-marketplace-cards")
def test_cards_are_shown_and_one_of_them_is_installed(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            await make_org(gateway)
            cards = (await client.get("/v1/plugin-marketplace")).json()["items"]
            assert [card["install_policy"]["installable"] for card in cards] == [False, False, True]
            assert (await client.get("/v1/plugin-marketplace/thread-weave")).json() == cards[2]
            path = "/v1/plugin-marketplace/thread-weave:install"
            for config, code in (
                ({"detail": "much"}, "binding.invalid_config"),
                ({"colour": 1}, "binding.invalid_config"),
            ):
                refused = await client.post(path, json={"scope": SCOPE, "config": config})
                assert (refused.status_code, refused.json()["error"]["code"]) == (422, code)
            done = await client.post(path, json={"scope": SCOPE})
            assert done.status_code == 200, done.text
            assert (
                done.json()["binding"]["export_id"] == "thread_weave" and done.json()["binding"]["status"] == "active"
            )
            assert done.json()["package"]["signature"]["status"] == "verified"
            refused = await client.post("/v1/plugin-marketplace/opencode-harness:install", json={"scope": SCOPE})
            assert (refused.status_code, refused.json()["error"]["code"]) == (409, "marketplace.not_installable")
            assert refused.json()["error"]["details"]["reasons"]
            assert (await client.get("/v1/plugin-marketplace/none")).status_code == 404
            async with client_of(gateway, await make_key(gateway, "org_1", "viewer")) as viewer:
                assert (await viewer.post(path, json={"scope": SCOPE})).status_code == 403

    run(main)


@requirement("vai:control-marketplace-publish")
def test_an_entry_is_published_listed_installed_and_removed(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            await make_org(gateway)
            package = await Publisher(tmp_path, tmp_path).bring(gateway)
            body = {"id": "jira", "package": package.id, "export_id": "t", "reviewed": True}
            source = {"repo": "https://example.com", "refs": ["v1"]}
            made = await client.post("/v1/plugin-marketplace", json={**body, "source": source})
            assert made.status_code == 201, made.text
            assert made.json()["source"] == source and made.json()["review"]["state"] == "reviewed"
            assert (await client.get("/v1/plugin-marketplace")).json()["items"][-1] == made.json()
            first = (await client.get("/v1/plugin-marketplace?limit=3")).json()
            assert len(first["items"]) == 3 and first["next_cursor"]
            rest = (await client.get(f"/v1/plugin-marketplace?limit=3&cursor={first['next_cursor']}")).json()
            assert rest == {"items": [made.json()], "next_cursor": None}
            done = await client.post("/v1/plugin-marketplace/jira:install", json={"scope": SCOPE})
            assert done.json()["package"]["id"] == package.id and done.json()["binding"]["status"] == "active"
            for change in ({"id": "A b"}, {"export_id": ""}, {"colour": 1}, {"reviewed": "perhaps"}):
                assert (await client.post("/v1/plugin-marketplace", json={**body, **change})).status_code == 400
            assert (await client.delete("/v1/plugin-marketplace/jira")).json() == made.json()
            assert (await client.delete("/v1/plugin-marketplace/jira")).status_code == 404
            async with client_of(gateway, await make_key(gateway, "org_1")) as admin:
                assert (await admin.post("/v1/plugin-marketplace", json=body)).status_code == 403

    run(main)


@requirement("vai:control-marketplace-contract-ready")
def test_a_contract_ready_entry_stays_and_says_why_it_cannot_be_installed(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            await make_org(gateway)
            installed = await client.post("/v1/plugin-marketplace/thread-weave:install", json={"scope": SCOPE})
            assert installed.status_code == 200
            cards = {card["id"]: card for card in (await client.get("/v1/plugin-marketplace")).json()["items"]}
            for id in ("openai-codex-harness", "opencode-harness"):
                card = cards[id]
                assert (card["status"], card["kind"], card["version"]) == ("contract_ready", "harness", None)
                assert card["contract"]["harness"]["mode"] == "composite" and card["source"]["refs"]
                assert (card["oci"], card["signature"]["status"]) == ({"ref": None, "digest": None}, "missing")
                policy = card["install_policy"]
                assert (policy["installable"], policy["requires_lock"]) == (False, True)
                reasons = {reason["code"]: reason["message"] for reason in policy["reasons"]}
                wanted = {"contract_ready", "signature_not_verified", "digest_not_pinned", "dependency_lock_missing"}
                assert wanted <= set(reasons) and all(reasons.values())
                refused = await client.post(f"/v1/plugin-marketplace/{id}:install", json={"scope": SCOPE})
                assert refused.json()["error"]["details"]["reasons"] == policy["reasons"]
            listed = (await client.get("/v1/plugin-packages")).json()["items"]
            assert [package["package_id"] for package in listed] == ["plugbay/thread-weave"]
            assert (await client.get("/v1/plugin-harnesses")).json()["items"] == []

    run(main)
