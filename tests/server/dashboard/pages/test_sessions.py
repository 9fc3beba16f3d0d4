"""Pages of sessions: a chain reads as a conversation, and leads to its runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.conversing import gateway_with_model, says, settled
from tests.support.dashboards import text_of, visitor_of
from tests.support.gateways import client_of, make_key
from tests.support.loops import Run

HOSTILE = "<script>x</script>"


def test_a_chain_reads_as_a_conversation_and_a_run_shows_its_work(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with (
            gateway_with_model(sqlite_url, tmp_path / "data", says(f"Green tea. {HOSTILE}")) as gateway,
            client_of(gateway) as client,
            visitor_of(gateway) as visitor,
        ):
            session = (
                await client.post("/v1/sessions", json={"org_id": "org_1", "external_session_id": "desk"})
            ).json()
            begun = await client.post(
                "/v1/runs",
                json={
                    "session_id": session["id"],
                    "model": "local/any",
                    "blocks": [{"kind": "input", "content": [{"type": "text", "text": f"Which tea? {HOSTILE}"}]}],
                },
            )
            made: dict[str, Any] = begun.json()

            async def look() -> dict[str, Any]:
                found: dict[str, Any] = (await client.get(f"/v1/runs/{made['id']}")).json()
                return found

            await settled(look, lambda found: found["completed_at"] is not None)
            page = await visitor.get(f"/sessions/{session['id']}")
            words = text_of(page)
            assert f"Which tea? {HOSTILE}" in words and f"Green tea. {HOSTILE}" in words
            assert HOSTILE not in page.text
            chain = await visitor.get(f"/chains/{made['chain_id']}")
            assert "Green tea." in text_of(chain) and made["id"] in chain.text and HOSTILE not in chain.text
            assert "No messages yet." in text_of(await visitor.get(f"/chains/{made['chain_id']}?after=99"))
            shown = text_of(await visitor.get(f"/runs/{made['id']}"))
            assert "completed" in shown and "queued" in shown and "run.completed" in shown and "local/any" in shown
            assert "desk" in (await visitor.get("/sessions?search=DESK")).text
            assert made["id"] in (await visitor.get("/runs?status=completed&org=org_1")).text
            async with visitor_of(gateway, await make_key(gateway, "org_2", "admin")) as stranger:
                for path in (f"/sessions/{session['id']}", f"/chains/{made['chain_id']}", f"/runs/{made['id']}"):
                    assert (await stranger.get(path)).status_code == 404
                assert (await stranger.post(f"/runs/{made['id']}:cancel", {"confirm": "yes"})).status_code == 404
                assert made["id"] not in (await stranger.get("/runs")).text

    run(main)
