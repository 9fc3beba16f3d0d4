"""Compactions over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from plugbay.server.api.routes.compactions import CompactionIn
from tests.support.conversing import gateway_with_model
from tests.support.gateways import client_of, make_key
from tests.support.loops import Run
from tests.support.packaged import Publisher, bind
from tests.support.requirements import requirement
from tests.support.vai import export


@requirement("vai:control-compactions-api")
def test_a_compaction_is_accepted_and_can_be_read(run: Run, sqlite_url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with gateway_with_model(sqlite_url, tmp_path / "data") as gateway:
            key = await make_key(gateway, "org_1", project_id="proj_1")
            package = await Publisher(tmp_path / "data", tmp_path).bring(gateway, "", [export("c", "compactor")])
            binding = await bind(gateway, package, "c")
            async with client_of(gateway, key) as client:
                session = (await client.post("/v1/sessions", json={})).json()["id"]
                block = {"kind": "input", "content": [{"type": "text", "text": "long"}]}
                chain = (await client.post("/v1/chains", json={"session_id": session, "blocks": [block]})).json()["id"]
                body = {
                    "chain_id": chain,
                    "target": {"max_input_tokens": 1000},
                    "compactor": {"binding_id": binding.id},
                    "compaction_id": "cmp_mine",
                }
                asked = await client.post("/v1/compactions", json=body)
                assert (asked.status_code, asked.json()["id"]) == (202, "cmp_mine")
                assert (await client.post("/v1/compactions", json=body)).status_code == 202
                assert (await client.get("/v1/compactions/cmp_mine")).json()["chain_id"] == chain
                listed = (await client.get("/v1/compactions", params={"chain_id": chain})).json()
                assert [item["id"] for item in listed["items"]] == ["cmp_mine"]
                wrong = await client.post("/v1/compactions", json={"chain_id": chain})
                assert wrong.status_code == 400
                assert (await client.get("/v1/compactions/cmp_nobodys")).status_code == 404

    run(story)


def test_a_compaction_out_of_bounds_is_refused() -> None:
    with pytest.raises(ValidationError):
        CompactionIn.model_validate({"chain_id": "c", "target": {"max_input_tokens": 0}})
