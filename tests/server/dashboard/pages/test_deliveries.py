"""Pages of deliveries: a test of a hook, its attempts and its failure, and another try."""

from __future__ import annotations

import asyncio
from pathlib import Path

from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.principal import OPERATOR
from tests.server.dashboard.pages.test_orgs import actions
from tests.support.dashboards import text_of, visitor_of
from tests.support.gateways import gateway_at, make_key, make_org
from tests.support.loops import Run
from tests.support.packaged import Publisher, bind
from tests.support.patience import pauses
from tests.support.vai import export

HOOK = """
def hook(body, m):
    end(m, "failed", "acme.full", "<script>x</script>")
"""


async def ended(gateway: Gateway, id: str, attempts: int) -> None:
    """Wait until a delivery has failed after this number of attempts."""
    for pause in pauses():
        delivery = (await gateway.deliveries.get(OPERATOR, id))[0]
        if (delivery.status, delivery.attempts) == ("failed", attempts):
            return
        await asyncio.sleep(pause)


async def others_are_refused(gateway: Gateway, path: str, hook_id: str) -> None:
    """A viewer of the org sees the delivery and does nothing; a key of another org does not see it."""
    async with visitor_of(gateway, await make_key(gateway, "org_1", "viewer")) as viewer:
        seen = await viewer.get(path)
        assert seen.status_code == 200 and ":replay" not in seen.text
        assert (await viewer.post(f"{path}:replay")).status_code == 403
        assert (await viewer.post(f"/bindings/{hook_id}:test")).status_code == 403
    async with visitor_of(gateway, await make_key(gateway, "org_2", "admin")) as stranger:
        assert (await stranger.get(path)).status_code == 404
        assert (await stranger.post(f"{path}:replay")).status_code == 404
        assert (await stranger.post(f"/bindings/{hook_id}:test")).status_code == 404
        assert path not in (await stranger.get("/deliveries")).text


def test_a_hook_is_tested_and_a_failed_delivery_is_tried_again(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            empty = await visitor.get("/deliveries")
            assert "No deliveries yet" in text_of(empty) and "plugbay binding test" in empty.text
            await make_org(gateway)
            await make_org(gateway, "org_2", "proj_2")
            exports = [export("h", "hook"), export("t")]
            package = await Publisher(tmp_path, tmp_path).bring(gateway, HOOK, exports)
            hook, tool = await bind(gateway, package, "h"), await bind(gateway, package, "t")
            assert ":test" in (await visitor.get(f"/bindings/{hook.id}")).text
            assert ":test" not in (await visitor.get(f"/bindings/{tool.id}")).text
            sent = await visitor.post(f"/bindings/{hook.id}:test", {"type": "run.completed"})
            assert sent.status_code == 303 and (await actions(gateway))[-1] == "delivery.test"
            path = sent.headers["location"]
            id = path.rpartition("/")[2]
            await ended(gateway, id, 1)
            page = await visitor.get(path)
            words = text_of(page)
            assert "failed test acme.full" in words and "queued" in words and "attempts 1 of" in words.lower()
            assert "acme.full: <script>x</script>" in words and "<script>x" not in page.text
            assert 'href="/invocations/inv_' in page.text, "each attempt is an invocation"
            again = await visitor.post(f"{path}:replay")
            assert again.status_code == 303 and (await actions(gateway))[-1] == "delivery.replay"
            await ended(gateway, id, 2)
            assert "attempt 2 started" in text_of(await visitor.get(path))
            assert id in (await visitor.get(f"/deliveries?status=failed&binding={hook.id}&search=FULL")).text
            assert "Nothing found" in text_of(await visitor.get("/deliveries?status=delivered"))
            attempt = (await gateway.deliveries.get(OPERATOR, id))[2][-1].invocation_id
            invocation = text_of(await visitor.get(f"/invocations/{attempt}"))
            assert "queued" in invocation and "delivery" in invocation and "attempt 1 started" in invocation
            assert (await visitor.post(f"/bindings/{tool.id}:test")).status_code == 422
            assert (await visitor.post(f"/bindings/{hook.id}:test", {"type": "no.such"})).status_code == 422
            await others_are_refused(gateway, path, hook.id)

    run(main)


def test_a_delivered_one_is_not_delivered_again(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            await make_org(gateway)
            package = await Publisher(tmp_path, tmp_path).bring(gateway, exports=[export("h", "hook")])
            hook = await bind(gateway, package, "h")
            path = (await visitor.post(f"/bindings/{hook.id}:test")).headers["location"]
            for pause in pauses():
                page = await visitor.get(path)
                if "delivered" in text_of(page):
                    break
                await asyncio.sleep(pause)
            assert ":replay" not in page.text
            refused = await visitor.post(f"{path}:replay")
            assert refused.status_code == 409 and "not sent again" in text_of(refused)

    run(main)
