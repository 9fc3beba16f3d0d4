"""Pages of conversations: a chain reads as one, runs and executions show their work and are cancelled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.server.dashboard.pages.test_orgs import actions
from tests.support.conversing import gateway_with_model, says, settled, stuck
from tests.support.dashboards import text_of, visitor_of
from tests.support.gateways import client_of, gateway_at, make_key
from tests.support.loops import Run
from tests.support.packaged import Publisher, bind
from tests.support.vai import export

HOSTILE = "<script>x</script>"


@pytest.mark.parametrize("path", ["sessions", "runs", "harnesses", "compactions"])
def test_an_empty_list_names_the_next_step(sqlite_url: str, tmp_path: Path, run: Run, path: str) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            page = await visitor.get(f"/{path}")
            assert page.status_code == 200 and " yet" in text_of(page) and "plugbay " in page.text
            assert "Nothing found" in text_of(await visitor.get(f"/{path}?search=x"))
            assert (await visitor.get(f"/{path}/nobodys")).status_code == 404

    run(main)


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


def test_an_execution_shows_its_budget_and_is_resumed_only_if_it_can_be(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        data = tmp_path / "data"
        data.mkdir()
        publisher = Publisher(data, tmp_path)
        async with (
            gateway_with_model(sqlite_url, data) as gateway,
            client_of(gateway) as client,
            visitor_of(gateway) as visitor,
        ):
            body = f'def harness(body, m):\n    end(m, "failed", "acme.stop", "{HOSTILE}")\n'
            package = await publisher.bring(gateway, body, [export("h", "harness")])
            binding = await bind(gateway, package, "h", project_id=None)
            trigger = {"type": "user_request", "input": [{"type": "text", "text": "Take stock"}]}
            asked = {"org_id": "org_1", "binding_id": binding.id, "trigger": trigger, "policy": {"max_child_runs": 4}}
            begun = await client.post("/v1/harness-executions", json=asked)
            assert begun.status_code == 202, begun.text
            made = begun.json()
            path = f"/harnesses/{made['id']}"

            async def look() -> str:
                return text_of(await visitor.get(path))

            words = await settled(look, lambda words: "Refresh" not in words)
            assert "runs 0 of 4" in words and "acme.stop" in words and "Take stock" in words
            page = await visitor.get(path)
            assert HOSTILE not in page.text and "<meter" in page.text and f"{path}:resume" in page.text
            refused = await visitor.post(f"{path}:resume")
            assert refused.status_code == 409 and "nothing stored" in text_of(refused)
            assert made["id"] in (await visitor.get("/harnesses?status=failed")).text
            async with visitor_of(gateway, await make_key(gateway, "org_1", "viewer")) as viewer:
                assert ":resume" not in (await viewer.get(path)).text
                for act in (":resume", ":cancel"):
                    assert (await viewer.post(path + act, {"confirm": "yes"})).status_code == 403
            async with visitor_of(gateway, await make_key(gateway, "org_2", "admin")) as stranger:
                assert (await stranger.get(path)).status_code == 404
                for act in (":resume", ":cancel"):
                    assert (await stranger.post(path + act, {"confirm": "yes"})).status_code == 404

    run(main)


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
