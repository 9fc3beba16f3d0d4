"""Pages of runs: one is cancelled after a confirmation."""

from __future__ import annotations

from pathlib import Path

from tests.server.dashboard.pages.test_orgs import actions
from tests.support.conversing import gateway_with_model, settled, stuck
from tests.support.dashboards import text_of, visitor_of
from tests.support.gateways import client_of, make_key
from tests.support.loops import Run


def test_a_run_is_cancelled_after_a_confirmation(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with (
            gateway_with_model(sqlite_url, tmp_path / "data", stuck()) as gateway,
            client_of(gateway) as client,
            visitor_of(gateway) as visitor,
        ):
            session = (await client.post("/v1/sessions", json={"org_id": "org_1"})).json()
            block = {"kind": "input", "content": [{"type": "text", "text": "Hello"}]}
            body = {"session_id": session["id"], "model": "local/any", "blocks": [block]}
            made = (await client.post("/v1/runs", json=body)).json()
            path = f"/runs/{made['id']}"
            async with visitor_of(gateway, await make_key(gateway, "org_1", "viewer")) as viewer:
                assert ":cancel" not in (await viewer.get(path)).text
                assert (await viewer.post(f"{path}:cancel", {"confirm": "yes"})).status_code == 403
            assert "Cancel" in text_of(await visitor.post(f"{path}:cancel"))
            assert (await visitor.post(f"{path}:cancel", {"confirm": "yes"})).status_code == 303
            assert "run.cancel" in await actions(gateway)

            async def look() -> str:
                return text_of(await visitor.get(path))

            assert "cancelled" in await settled(look, lambda words: "Refresh" not in words)

    run(main)
