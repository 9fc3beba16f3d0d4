"""Pages of the marketplace: signature and permissions are shown, and what was consented to is installed."""

from __future__ import annotations

from pathlib import Path

from plugbay.server.domain.principal import OPERATOR
from plugbay.store.pages import Page
from tests.server.dashboard.pages.test_bindings import hidden
from tests.server.dashboard.pages.test_orgs import actions
from tests.support.dashboards import text_of, visitor_of
from tests.support.gateways import gateway_at, make_key, make_org
from tests.support.loops import Run

CARD = "/install/thread-weave"


def test_a_card_is_installed_after_consent(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            cards = text_of(await visitor.get("/install"))
            assert "Thread Weave Compactor thread-weave compactor plugbay verified yes" in cards
            assert "its runtime is not published yet" in cards or "it has not been reviewed" in cards
            found = text_of(await visitor.get("/install?search=WEAVE"))
            assert "Thread Weave" in found and "Codex" not in found
            early = await visitor.get(CARD)
            assert "Create one first" in text_of(early), "there is no org yet"
            await make_org(gateway)
            page = await visitor.get(CARD)
            words = text_of(page)
            assert "verified by plugbay" in words and "files scratch" in words and "network none" in words
            form = {**hidden(page, CARD), "org": "org_1"}
            refused = await visitor.post(CARD, form)
            assert refused.status_code == 400 and "Confirm the permissions of the package" in text_of(refused)
            other = await visitor.post(CARD, form | {"consent": "yes", "digest": "sha256:" + 64 * "0"})
            assert other.status_code == 409 and "changed since the page showed it" in text_of(other)
            assert (await visitor.post(CARD, form | {"consent": "yes", "org": "org_9"})).status_code == 404
            assert not (await gateway.bindings.page(OPERATOR, Page())).items, "nothing was installed"
            done = await visitor.post(CARD, form | {"consent": "yes"})
            assert done.status_code == 303
            binding = (await gateway.bindings.page(OPERATOR, Page())).items[0]
            assert done.headers["location"] == f"/bindings/{binding.id}"
            assert (binding.export_id, binding.status) == ("thread_weave", "active")
            assert (await actions(gateway))[-2:] == ["package.create", "binding.create"]

    run(main)


def test_a_card_that_is_not_ready_has_no_button(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            await make_org(gateway)
            page = await visitor.get("/install/openai-codex-harness")
            assert "It cannot be installed" in text_of(page) and 'name="consent"' not in page.text
            form = {"org": "org_1", "consent": "yes", "digest": ""}
            assert (await visitor.post("/install/openai-codex-harness", form)).status_code == 409
            assert (await visitor.get("/install/nothing")).status_code == 404

    run(main)


def test_a_key_installs_for_its_own_org_and_a_viewer_does_not(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway, "org_1", "proj_1")
            await make_org(gateway, "org_2", "proj_2")
            async with visitor_of(gateway, await make_key(gateway, "org_1", "viewer")) as viewer:
                page = await viewer.get(CARD)
                assert page.status_code == 200 and 'name="consent"' not in page.text
                form = {"org": "org_1", "consent": "yes", "digest": "x"}
                assert (await viewer.post(CARD, form)).status_code == 403
            async with visitor_of(gateway, await make_key(gateway, "org_1", "operator")) as visitor:
                page = await visitor.get(CARD)
                assert "org_2" not in page.text
                form = {**hidden(page, CARD), "consent": "yes"}
                assert (await visitor.post(CARD, form | {"org": "org_2"})).status_code == 404
                assert (await visitor.post(CARD, form | {"org": "org_1"})).status_code == 303

    run(main)
