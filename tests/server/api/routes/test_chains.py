"""Chains over HTTP."""

from __future__ import annotations

from pathlib import Path

from tests.support.conversing import gateway_with_model
from tests.support.gateways import client_of, make_key
from tests.support.loops import Run
from tests.support.requirements import requirement

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
