"""Orgs, projects and the audit log over HTTP."""

from __future__ import annotations

from pathlib import Path

from tests.server.api.test_middleware import code
from tests.support.gateways import client_of, gateway_at, make_key, make_org
from tests.support.loops import Run
from tests.support.requirements import requirement


def test_orgs_and_projects_are_made_read_and_changed(database_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(database_url, tmp_path) as gateway, client_of(gateway) as client:
            made = await client.post("/v1/orgs", json={"name": "Acme", "id": "org_1"})
            assert made.status_code == 201 and made.json()["created_at"].endswith("Z")
            assert (await client.get("/v1/orgs/org_1")).json() == made.json()
            changed = await client.patch("/v1/orgs/org_1", json={"policy": {"network": "none"}})
            assert (changed.json()["name"], changed.json()["policy"]) == ("Acme", {"network": "none"})
            project = await client.post("/v1/orgs/org_1/projects", json={"name": "Shop"})
            path = f"/v1/orgs/org_1/projects/{project.json()['id']}"
            assert (await client.get(path)).json() == project.json()
            assert (await client.patch(path, json={"name": "Other"})).json()["name"] == "Other"
            assert len((await client.get("/v1/orgs/org_1/projects")).json()["items"]) == 1
            twice = await client.post("/v1/orgs", json={"name": "Acme", "id": "org_1"})
            assert (twice.status_code, code(twice)) == (409, "org.exists")

    run(main)


@requirement("vai:control-cross-tenant")
def test_ids_of_another_org_get_the_same_answer_as_unknown_ids(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            await make_org(gateway, "org_2", "proj_2")
            async with client_of(gateway, await make_key(gateway, "org_2")) as client:
                for path in ("/v1/orgs/{}", "/v1/orgs/{}/projects", "/v1/orgs/{}/projects/proj_1"):
                    anothers, nobodys = [await client.get(path.format(id)) for id in ("org_1", "org_9")]
                    assert anothers.status_code == nobodys.status_code == 404
                    words = [each.json()["error"]["message"] for each in (anothers, nobodys)]
                    assert words[0].replace("org_1", "org_9") == words[1]

    run(main)


@requirement("vai:control-paging")
def test_lists_come_in_parts_and_the_limit_has_bounds(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            for number in range(5):
                await client.post("/v1/orgs", json={"name": f"Org {number}"})
            seen: list[str] = []
            cursor = None
            while True:
                query = {"limit": "2", **({"cursor": cursor} if cursor else {})}
                part = (await client.get("/v1/orgs", params=query)).json()
                seen += [org["name"] for org in part["items"]]
                cursor = part["next_cursor"]
                if cursor is None:
                    break
            assert seen == [f"Org {number}" for number in (4, 3, 2, 1, 0)]
            for limit in ("0", "201", "many"):
                assert (await client.get("/v1/orgs", params={"limit": limit})).status_code == 400
            assert (await client.get("/v1/orgs", params={"cursor": "made-up"})).status_code == 400

    run(main)


@requirement("vai:control-audit")
def test_every_change_can_be_read_back_with_its_request(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
            made = await client.post("/v1/orgs", json={"name": "Acme"}, headers={"x-request-id": "mine"})
            (entry,) = (await client.get("/v1/audit", params={"subject_id": made.json()["id"]})).json()["items"]
            assert (entry["action"], entry["actor_id"], entry["request_id"]) == ("org.create", "operator", "mine")

    run(main)


@requirement("vai:control-audit-chain", "vai:control-audit-verify")
def test_the_log_of_an_org_is_checked_by_its_own_key(database_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(database_url, tmp_path) as gateway:
            await make_org(gateway)
            await make_org(gateway, "org_2", "proj_2")
            whole, part = await make_key(gateway, "org_1"), await make_key(gateway, "org_1", project_id="proj_1")
            async with client_of(gateway, whole) as client:
                entries = (await client.get("/v1/audit")).json()["items"]
                assert [entry["position"] for entry in entries] == [4, 3, 2, 1]
                assert [entry["previous_hash"] for entry in entries[:3]] == [entry["hash"] for entry in entries[1:]]
                found = (await client.get("/v1/audit/verification")).json()
                (chain,) = found["chains"]
                assert found["valid"] and (chain["chain"], chain["entries"], chain["broken"]) == ("org_1", 4, None)
                assert chain["head"] == f"org_1:4:{entries[0]['hash']}"
                later = f"org_1:5:{'0' * 64}"
                found = (await client.get("/v1/audit/verification", params={"head": [chain["head"], later]})).json()
                assert not found["valid"] and found["chains"][0]["broken"]["kind"] == "cut"
                refused = await client.get("/v1/audit/verification", params={"head": "org_1"})
                assert (refused.status_code, code(refused)) == (400, "audit.invalid_head")
            async with client_of(gateway, part) as client:
                refused = await client.get("/v1/audit/verification")
                assert (refused.status_code, code(refused)) == (403, "auth.role_denied")
            async with client_of(gateway) as client:
                found = (await client.get("/v1/audit/verification")).json()
                assert [chain["chain"] for chain in found["chains"]] == ["org_1", "org_2"]

    run(main)
