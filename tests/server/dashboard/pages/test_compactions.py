"""Pages of compactions: one leads to both chains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.conversing import gateway_with_model, settled
from tests.support.dashboards import text_of, visitor_of
from tests.support.gateways import client_of
from tests.support.loops import Run
from tests.support.packaged import Publisher, bind
from tests.support.vai import export


def test_a_compaction_links_both_chains(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        data = tmp_path / "data"
        data.mkdir()
        publisher = Publisher(data, tmp_path)
        async with (
            gateway_with_model(sqlite_url, data) as gateway,
            client_of(gateway) as client,
            visitor_of(gateway) as visitor,
        ):
            package = await publisher.bring(gateway, exports=[export("c", "compactor")])
            await bind(gateway, package, "c", project_id=None)
            session = (await client.post("/v1/sessions", json={"org_id": "org_1"})).json()
            block = {"kind": "input", "content": [{"type": "text", "text": "Hello"}]}
            chain = (await client.post("/v1/chains", json={"session_id": session["id"], "blocks": [block]})).json()
            asked = {"chain_id": chain["id"], "target": {"max_input_tokens": 4000}}
            begun = await client.post("/v1/compactions", json=asked)
            assert begun.status_code == 202, begun.text
            made = begun.json()

            async def look() -> dict[str, Any]:
                found: dict[str, Any] = (await client.get(f"/v1/compactions/{made['id']}")).json()
                return found

            done = await settled(look, lambda found: found["status"] not in ("queued", "running"))
            page = await visitor.get(f"/compactions/{made['id']}")
            assert (
                f'href="/chains/{chain["id"]}"' in page.text and f'href="/chains/{done["new_chain_id"]}"' in page.text
            )
            new = await visitor.get(f"/chains/{done['new_chain_id']}")
            assert "Hello" in text_of(new) and made["id"] in new.text
            assert made["id"] in (await visitor.get("/compactions?status=succeeded")).text

    run(main)
