"""Executions of harnesses over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from plugbay.server.api.routes.harnesses import ExecutionIn, ExecutionOut
from tests.support.conversing import gateway_with_model, settled
from tests.support.gateways import client_of, make_key
from tests.support.loops import Run
from tests.support.packaged import Publisher, bind
from tests.support.requirements import requirement
from tests.support.vai import export


@requirement("vai:control-harness-api")
def test_an_execution_is_started_read_cancelled_and_resumed(run: Run, sqlite_url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with gateway_with_model(sqlite_url, tmp_path / "data") as gateway:
            key = await make_key(gateway, "org_1", "operator", project_id="proj_1")
            viewer = await make_key(gateway, "org_1", "viewer", project_id="proj_1")
            package = await Publisher(tmp_path / "data", tmp_path).bring(gateway, "", [export("x", "harness")])
            binding = await bind(gateway, package, "x")
            async with client_of(gateway, key) as client:
                begun = await client.post("/v1/harness-executions", json={"binding_id": binding.id})
                assert (begun.status_code, begun.json()["status"]) == (202, "queued")
                assert begun.json()["policy"] == {"max_depth": 4, "max_child_runs": 12, "allow_compaction": True}
                at = f"/v1/harness-executions/{begun.json()['id']}"

                async def look() -> Any:
                    return (await client.get(at)).json()

                done = await settled(look, lambda now: now["completed_at"] is not None)
                assert (done["status"], done["summary"]) == ("succeeded", {"text": "done"})
                assert done["checkpoint"] == {"kind": "checkpoint", "data": {}}
                assert (await client.post(f"{at}:cancel")).json()["status"] == "succeeded"
                resumed = await client.post(f"{at}:resume")
                assert (resumed.status_code, resumed.json()["mode"]) == (202, "resume")
                await settled(look, lambda now: now["completed_at"] is not None)
                listed = (await client.get("/v1/harness-executions", params={"binding_id": binding.id})).json()
                assert [item["resumes"] for item in listed["items"]] == [1]
                lost = await client.post("/v1/harness-executions", json={"binding_id": "bind_9"})
                assert (lost.status_code, lost.json()["error"]["code"]) == (422, "harness.no_binding")
            async with client_of(gateway, viewer) as client:
                assert (await client.get(at)).status_code == 200
                assert (await client.post(f"{at}:resume")).status_code == 403

    run(story)


def test_an_execution_out_of_bounds_is_refused() -> None:
    with pytest.raises(ValidationError):
        ExecutionIn.model_validate({"binding_id": "b", "policy": {"max_child_runs": -1}})


def test_the_document_lists_the_modes_of_an_execution() -> None:
    assert ExecutionOut.model_json_schema()["properties"]["mode"]["enum"] == ["start", "resume"]
