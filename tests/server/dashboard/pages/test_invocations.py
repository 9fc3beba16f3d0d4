"""Pages of invocations: filters, the timeline and the outcome of one, cancelling, and the rights of the API."""

from __future__ import annotations

import asyncio
from pathlib import Path

from plugbay.host.request import CallRequest
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.principal import OPERATOR
from plugbay.store.bindings import BindingRow
from tests.support.dashboards import text_of, visitor_of
from tests.support.gateways import gateway_at, make_key, make_org
from tests.support.loops import Run
from tests.support.packaged import Publisher, bind
from tests.support.patience import pauses

TOOL = """
def tool(body, m):
    asked = body.get("input", {})
    if asked.get("wait"):
        cancels[m["id"]].wait()
    elif asked.get("bad"):
        end(m, "failed", "acme.half", "<script>x</script>")
    else:
        end(m, "succeeded", result={"content": [{"type": "text", "text": "</pre><script>x</script>"}]})
"""


def asked(binding: BindingRow, **input: object) -> CallRequest:
    return CallRequest("", input, org_id=binding.org_id, project_id=binding.project_id, binding_id=binding.id)


async def invoked(gateway: Gateway, binding: BindingRow, **input: object) -> str:
    """Run an invocation; returns its id."""
    result = await gateway.invocations.invoke(asked(binding, **input))
    assert result.invocation is not None
    return str(result.invocation.invocation_id)


def test_an_invocation_has_a_timeline_and_an_outcome(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            empty = await visitor.get("/invocations")
            assert "No invocations yet" in text_of(empty) and "plugbay invocation create" in empty.text
            await make_org(gateway)
            binding = await bind(gateway, await Publisher(tmp_path, tmp_path).bring(gateway, TOOL))
            good, bad = await invoked(gateway, binding), await invoked(gateway, binding, bad=True)
            page = await visitor.get(f"/invocations/{good}")
            words = text_of(page)
            assert "succeeded" in words and "+0.0 ms started" in words and "<script>x</script>" in words
            assert "<script>x" not in page.text and "<rect" in page.text and ":cancel" not in page.text
            failed = await visitor.get(f"/invocations/{bad}")
            assert "acme.half from the plugin" in text_of(failed) and "<script>x" not in failed.text
            listed = await visitor.get("/invocations")
            assert good in listed.text and bad in listed.text
            for query, found in (
                ("status=failed", {bad}),
                ("status=succeeded&since=last+hour", {good}),
                ("search=ACME.half", {bad}),
                (f"binding={binding.id}&kind=tool", {good, bad}),
                ("kind=hook", set()),
                ("org=org_1", {good, bad}),
            ):
                text = (await visitor.get(f"/invocations?{query}")).text
                assert {id for id in (good, bad) if id in text} == found, query
            assert (await visitor.get("/invocations?org=org_9")).status_code == 200, "the operator sees every org"
            assert (await visitor.get("/invocations/inv_9")).status_code == 404

    run(main)


def test_a_running_invocation_is_cancelled_after_a_confirmation(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            await make_org(gateway)
            await make_org(gateway, "org_2", "proj_2")
            binding = await bind(gateway, await Publisher(tmp_path, tmp_path).bring(gateway, TOOL))
            record = await gateway.invocations.begin(asked(binding, wait=True))
            path = f"/invocations/{record.invocation_id}"
            async with visitor_of(gateway, await make_key(gateway, "org_1", "viewer")) as viewer:
                page = await viewer.get(path)
                assert "running" in text_of(page) and ":cancel" not in page.text
                assert (await viewer.post(f"{path}:cancel", {"confirm": "yes"})).status_code == 403
            async with visitor_of(gateway, await make_key(gateway, "org_2", "admin")) as stranger:
                assert (await stranger.get(path)).status_code == 404
                assert (await stranger.post(f"{path}:cancel", {"confirm": "yes"})).status_code == 404
                assert record.invocation_id not in (await stranger.get("/invocations")).text
                assert (await stranger.get("/invocations?org=org_1")).status_code == 404
            assert f'action="{path}:cancel"' in (await visitor.get(path)).text
            assert "Cancel t?" in text_of(await visitor.post(f"{path}:cancel"))
            assert (await gateway.invocations.get(OPERATOR, record.invocation_id)).status is None
            assert (await visitor.post(f"{path}:cancel", {"confirm": "yes"})).status_code == 303

            for pause in pauses():
                if (await gateway.invocations.get(OPERATOR, record.invocation_id)).status == "cancelled":
                    break
                await asyncio.sleep(pause)
            assert "cancelled" in text_of(await visitor.get(path))
            again = await visitor.post(f"{path}:cancel", {"confirm": "yes"})
            assert again.status_code == 303 and "had ended already" in text_of(await visitor.get(path))

    run(main)
