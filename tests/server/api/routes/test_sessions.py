"""Sessions over HTTP."""

from __future__ import annotations

from pathlib import Path

from tests.support.conversing import gateway_with_model
from tests.support.gateways import client_of, make_key
from tests.support.loops import Run
from tests.support.requirements import requirement


@requirement("vai:control-sessions-api")
def test_sessions_are_made_read_changed_and_branched(run: Run, sqlite_url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with gateway_with_model(sqlite_url, tmp_path) as gateway:
            key = await make_key(gateway, "org_1", project_id="proj_1")
            async with client_of(gateway, key) as client:
                made = await client.post("/v1/sessions", json={"metadata": {"a": 1}})
                assert made.status_code == 201
                id = made.json()["id"]
                assert made.json() == (await client.get(f"/v1/sessions/{id}")).json()
                changed = await client.patch(f"/v1/sessions/{id}", json={"external_session_id": "chat"})
                assert (changed.json()["external_session_id"], changed.json()["metadata"]) == ("chat", {"a": 1})
                listed = await client.get("/v1/sessions", params={"external_session_id": "chat"})
                assert [item["id"] for item in listed.json()["items"]] == [id]
                bare = await client.post(f"/v1/sessions/{id}:branch", json={})
                assert (bare.status_code, bare.json()["error"]["code"]) == (422, "session.nothing_to_branch")
                await client.post("/v1/chains", json={"session_id": id})
                branch = await client.post(f"/v1/sessions/{id}:branch", json={})
                assert branch.status_code == 201
                assert branch.json()["session"]["parent_session_id"] == id
                chains = await client.get(f"/v1/sessions/{branch.json()['session']['id']}/chains")
                assert [item["id"] for item in chains.json()["items"]] == [branch.json()["chain"]["id"]]
                unknown = await client.post("/v1/sessions", json={"colour": "red"})
                assert unknown.status_code == 400

    run(story)


@requirement("vai:control-cross-tenant")
def test_another_orgs_session_is_not_found(run: Run, sqlite_url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with gateway_with_model(sqlite_url, tmp_path) as gateway:
            mine, theirs = await make_key(gateway, "org_1"), await make_key(gateway, "org_2")
            async with client_of(gateway, mine) as client:
                id = (await client.post("/v1/sessions", json={})).json()["id"]
            async with client_of(gateway, theirs) as client:
                for answer in (
                    await client.get(f"/v1/sessions/{id}"),
                    await client.patch(f"/v1/sessions/{id}", json={}),
                    await client.get(f"/v1/sessions/{id}/chains"),
                    await client.get("/v1/sessions/sess_nobodys"),
                    await client.get(f"/v1/sessions/{id}:branch"),
                ):
                    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "session.not_found")

    run(story)
