"""Sessions over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from plugbay.server.api.routes.sessions import ChainIn, SessionIn
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


BLOCKS = [{"kind": "input", "content": [{"type": "text", "text": text}]} for text in ("a", "b", "c")]


@requirement("vai:control-chains-api")
def test_chains_are_made_read_forked_and_closed(run: Run, sqlite_url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with gateway_with_model(sqlite_url, tmp_path) as gateway:
            key = await make_key(gateway, "org_1", project_id="proj_1")
            async with client_of(gateway, key) as client:
                session = (await client.post("/v1/sessions", json={})).json()["id"]
                body = {"session_id": session, "blocks": BLOCKS, "defaults": {"model": "m", "limits": {"max_turns": 3}}}
                made = await client.post("/v1/chains", json=body)
                assert made.status_code == 201
                chain = made.json()
                assert (chain["message_count_cached"], chain["chain_version"], chain["status"]) == (3, 1, "idle")
                assert chain["defaults"] == {"model": "m", "limits": {"max_turns": 3}}
                part = await client.get(f"/v1/chains/{chain['id']}/context", params={"limit": 2})
                assert [block["sequence"] for block in part.json()["blocks"]] == [1, 2]
                assert part.json()["next_sequence"] == 2
                rest = await client.get(f"/v1/chains/{chain['id']}/context", params={"after": 2})
                assert ([block["sequence"] for block in rest.json()["blocks"]], rest.json()["next_sequence"]) == (
                    [3],
                    None,
                )
                fork = await client.post(f"/v1/chains/{chain['id']}:fork", json={"sequence": 2})
                assert fork.status_code == 201
                assert (fork.json()["parent_chain_id"], fork.json()["message_count_cached"]) == (chain["id"], 2)
                shut = await client.patch(f"/v1/chains/{chain['id']}", json={"status": "closed"})
                assert shut.json()["status"] == "closed"
                listed = await client.get("/v1/chains", params={"status": "closed", "session_id": session})
                assert [item["id"] for item in listed.json()["items"]] == [chain["id"]]
                assert (await client.get(f"/v1/chains/{chain['id']}")).json()["digest"] == chain["digest"]

    run(story)


def test_bad_blocks_are_refused_with_their_place(run: Run, sqlite_url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with gateway_with_model(sqlite_url, tmp_path) as gateway:
            key = await make_key(gateway, "org_1")
            async with client_of(gateway, key) as client:
                session = (await client.post("/v1/sessions", json={})).json()["id"]
                bad = await client.post("/v1/chains", json={"session_id": session, "blocks": [{"kind": "rumour"}]})
                assert bad.status_code == 422
                assert (bad.json()["error"]["code"], bad.json()["error"]["param"]) == (
                    "chain.invalid_blocks",
                    "blocks[0]",
                )
                lost = await client.post("/v1/chains", json={"session_id": "sess_nobodys"})
                assert lost.status_code == 404

    run(story)


@pytest.mark.parametrize(
    ("model", "body"),
    [
        (SessionIn, {"org_id": "a/b"}),
        (SessionIn, {"metadata": {str(number): 1 for number in range(65)}}),
        (ChainIn, {}),
        (ChainIn, {"session_id": "s", "defaults": {"colour": "red"}}),
    ],
)
def test_a_session_or_chain_out_of_bounds_is_refused(model: Any, body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        model.model_validate(body)
