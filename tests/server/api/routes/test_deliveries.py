"""Events and deliveries over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plugbay.server.domain.runs import NewRun, RunOptions
from tests.support.conversing import CALLER, gateway_with_model, settled
from tests.support.gateways import client_of, make_key
from tests.support.loops import Run
from tests.support.packaged import Publisher, bind
from tests.support.requirements import requirement
from tests.support.vai import export

REFUSES = """
def hook(body, m):
    end(m, "failed", "slack.gone")
"""


@requirement("vai:control-deliveries-api")
def test_a_refused_delivery_is_listed_and_replayed(run: Run, sqlite_url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with gateway_with_model(sqlite_url, tmp_path / "data") as gateway:
            key = await make_key(gateway, "org_1", project_id="proj_1")
            other = await make_key(gateway, "org_2")
            package = await Publisher(tmp_path / "data", tmp_path).bring(gateway, REFUSES, [export("h", "hook")])
            binding = await bind(gateway, package, "h")
            session = await gateway.sessions.create(CALLER)
            chain = await gateway.chains.create(CALLER, session.id)
            block = {"kind": "input", "content": [{"type": "text", "text": "go"}]}
            done = await gateway.runs.create(CALLER, chain.id, NewRun([block], RunOptions(model="m")))
            async with client_of(gateway, key) as client:

                async def look() -> Any:
                    return (await client.get("/v1/hook-deliveries", params={"status": "failed"})).json()["items"]

                [failed] = await settled(look, lambda items: len(items) == 1)
                assert (failed["error_code"], failed["reason"], failed["binding_id"]) == (
                    "slack.gone",
                    "refused",
                    binding.id,
                )
                at = f"/v1/hook-deliveries/{failed['id']}"
                detail = (await client.get(at)).json()
                assert detail["event"]["subject"] == {"kind": "run", "id": done.id}
                assert [each["outcome"] for each in detail["history"]] == ["failed"]
                events = (await client.get("/v1/events", params={"run_id": done.id})).json()["items"]
                assert [event["id"] for event in events] == [failed["event_id"]]
                replayed = await client.post(f"{at}:replay")
                assert (replayed.status_code, replayed.json()["status"]) == (202, "pending")

                async def again() -> Any:
                    return (await client.get(at)).json()

                twice = await settled(again, lambda now: now["attempts"] == 2 and now["status"] == "failed")
                assert len(twice["history"]) == 2
            async with client_of(gateway, other) as client:
                assert (await client.get(at)).status_code == 404
                assert (await client.get("/v1/events")).json()["items"] == []

    run(story)
