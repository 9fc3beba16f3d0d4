"""Events and deliveries over HTTP."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from plugbay.packages.archive import pack
from plugbay.sdk.manifests import write_vai
from plugbay.server.domain import deliveries
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.principal import OPERATOR
from plugbay.server.domain.runs import NewRun, RunOptions
from plugbay.server.domain.secrets import SecretScope
from plugbay.store.packages import PackageRow
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


RAISES = """
from plugbay.sdk import Plugin, ToolError

plugin = Plugin("acme/raises", version="1.0.0", name="Raises", description="Raises.")

@plugin.hook("run.completed", export="notify", capabilities=["secret=key"])
def notify(event, ctx):
    if event["summary"].get("for_good"):
        raise ToolError("the channel is closed", code="slack.closed")
    if ctx.attempt < 3:
        raise ValueError(f"no line to {ctx.secrets['key']}")

if __name__ == "__main__":
    plugin.run()
"""


async def packaged(gateway: Gateway, folder: Path, source: str) -> PackageRow:
    """A package of a plugin that is written with the SDK."""
    root = folder / "raises"
    root.mkdir()
    (root / "plugin.py").write_text(source)
    plugin = runpy.run_path(str(root / "plugin.py"))["plugin"]
    write_vai(plugin, root)
    publisher = Publisher(folder / "data", folder)
    packed = pack(root, folder)
    row, _ = await gateway.packages.upload(OPERATOR, packed.path, publisher.sign(packed))
    return row


@requirement("vai:control-delivery-exception", "vai:host-retry-count")
def test_a_hook_that_raises_is_told_again_and_its_history_has_the_message(
    run: Run, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "FIRST_PAUSE", 0.01)

    async def story() -> None:
        async with gateway_with_model(sqlite_url, tmp_path / "data") as gateway, client_of(gateway) as client:
            await gateway.secrets.put(OPERATOR, SecretScope("org_1", "proj_1"), "key", "hunter2222")
            package = await packaged(gateway, tmp_path, RAISES)
            binding = await bind(gateway, package, "notify", secrets={"key": "secret://proj_1/key"})
            at = f"/v1/plugin-bindings/{binding.id}:test-delivery"

            async def told(**body: Any) -> Any:
                sent = (await client.post(at, json=body)).json()
                path = f"/v1/hook-deliveries/{sent['id']}"
                seen = await settled(lambda: client.get(path), lambda now: now.json()["completed_at"] is not None)
                return seen.json()

            done = await told()
            assert (done["status"], done["attempts"]) == ("delivered", 3)
            assert [each["outcome"] for each in done["history"]] == [*["retryable_failure"] * 2, "succeeded"]
            for each in done["history"][:2]:
                assert each["failure"]["message"] == "ValueError: no line to ***", "it is redacted"
                assert (each["failure"]["code"], each["failure"]["retryable"]) == ("internal", True)
            assert done["history"][2]["failure"] is None
            ids = [each["invocation_id"] for each in done["history"]]
            counts = [(await client.get(f"/v1/plugin-invocations/{id}")).json()["retry_count"] for id in ids]
            assert counts == [0, 1, 2]

            final = await told(summary={"for_good": True})
            assert (final["status"], final["attempts"], final["error_code"]) == ("failed", 1, "slack.closed")
            assert final["history"][0]["failure"]["message"] == "the channel is closed"

    run(story)


@requirement("vai:control-delivery-test")
def test_an_operator_sends_a_test_to_a_hook_and_it_is_marked_as_one(run: Run, sqlite_url: str, tmp_path: Path) -> None:
    body = """
    def hook(body, m):
        with open(os.path.join(os.path.dirname(PLACE), "heard"), "a") as file:
            file.write(json.dumps([body["delivery_id"], body["event"]]) + "\\n")
        respond(m, status="ack")
    """.replace("PLACE", repr(str(tmp_path / "x")))
    exports = [export("h", "hook", own={"subscribes_to": ["run.completed", "chain.compacted"]}), export("t")]

    async def story() -> None:
        async with gateway_with_model(sqlite_url, tmp_path / "data") as gateway:
            package = await Publisher(tmp_path / "data", tmp_path).bring(gateway, body, exports)
            hook, tool = await bind(gateway, package, "h"), await bind(gateway, package, "t")
            keys = {role: await make_key(gateway, "org_1", role, "proj_1") for role in ("viewer", "operator")}
            other = await make_key(gateway, "org_2")
            at = f"/v1/plugin-bindings/{hook.id}:test-delivery"
            async with client_of(gateway, keys["operator"]) as client:
                sent = await client.post(at)
                assert (sent.status_code, sent.json()["test"], sent.json()["status"]) == (202, True, "pending")
                path = f"/v1/hook-deliveries/{sent.json()['id']}"
                done = (await settled(lambda: client.get(path), lambda now: now.json()["status"] == "delivered")).json()
                assert done["test"] and [each["outcome"] for each in done["history"]] == ["succeeded"]
                assert done["event"]["subject"] == {"kind": "test", "id": hook.id}
                chosen = await client.post(at, json={"type": "chain.compacted", "summary": {"text": "short"}})
                path = f"/v1/hook-deliveries/{chosen.json()['id']}"
                await settled(lambda: client.get(path), lambda now: now.json()["status"] == "delivered")
                heard = [json.loads(line) for line in (tmp_path / "heard").read_text().splitlines()]
                assert [delivery for delivery, _ in heard] == [sent.json()["id"], chosen.json()["id"]]
                assert [event["type"] for _, event in heard] == ["run.completed", "chain.compacted"]
                assert all(event["summary"]["test"] is True for _, event in heard), "the hook can tell"
                assert heard[1][1]["summary"]["text"] == "short"

                listed = (await client.get("/v1/hook-deliveries", params={"test": "true"})).json()["items"]
                assert len(listed) == 2
                assert (await client.get("/v1/hook-deliveries", params={"test": "false"})).json()["items"] == []

                unknown = await client.post(at, json={"type": "run.failed"})
                assert (unknown.status_code, unknown.json()["error"]["code"]) == (422, "delivery.not_subscribed")
                no_hook = await client.post(f"/v1/plugin-bindings/{tool.id}:test-delivery")
                assert (no_hook.status_code, no_hook.json()["error"]["code"]) == (422, "delivery.no_hook")
                await client.patch(f"/v1/plugin-bindings/{hook.id}", json={"status": "disabled"})
                off = await client.post(at)
                assert (off.status_code, off.json()["error"]["code"]) == (409, "binding.not_active")
            async with client_of(gateway, keys["viewer"]) as client:
                assert (await client.post(at)).status_code == 403
            async with client_of(gateway, other) as client:
                assert (await client.post(at)).status_code == 404
                assert (await client.get(path)).status_code == 404

    run(story)
