"""Pages of harnesses: budgets, outcome, resumption."""

from __future__ import annotations

from pathlib import Path

from tests.support.conversing import gateway_with_model, settled
from tests.support.dashboards import text_of, visitor_of
from tests.support.gateways import client_of, make_key
from tests.support.loops import Run
from tests.support.packaged import Publisher, bind
from tests.support.vai import export

HOSTILE = "<script>x</script>"


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
            assert refused.status_code == 409 and "no stored state" in text_of(refused)
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
