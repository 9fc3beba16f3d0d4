"""Pages of bindings: a dry run before every change, both values in a conflict, the rights of the API."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any

import httpx2

from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.principal import OPERATOR
from plugbay.store.bindings import BindingRow
from plugbay.store.packages import PackageRow
from plugbay.store.pages import Page
from tests.server.dashboard.pages.test_orgs import actions
from tests.support.dashboards import Visitor, text_of, visitor_of
from tests.support.gateways import gateway_at, make_key, make_org
from tests.support.loops import Run
from tests.support.packaged import Publisher, bind
from tests.support.vai import export

SCHEMA = {
    "type": "object",
    "properties": {"units": {"enum": ["metric", "imperial"], "default": "metric"}, "city": {"type": "string"}},
    "additionalProperties": False,
}
EXPORTS = [export("t", config_schema="schemas/config.json"), export("s", permissions={"secret_slots": ["key"]})]


@asynccontextmanager
async def stocked(url: str, folder: Path) -> AsyncIterator[tuple[Gateway, PackageRow]]:
    """A gateway with an org and a package."""
    async with gateway_at(url, folder) as gateway:
        await make_org(gateway)
        package = await Publisher(folder, folder).bring(gateway, exports=EXPORTS, schemas={"config": SCHEMA})
        yield gateway, package


def hidden(page: httpx2.Response, action: str) -> dict[str, str]:
    """The hidden fields of the form with this action."""
    form = page.text.partition(f'action="{action}"')[2].partition("</form>")[0]
    found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', form)
    return {unescape(name): unescape(value) for name, value in found if name != "form_key"}


def settings(**fields: str) -> dict[str, Any]:
    """What the form of the settings sends."""
    return {"part": ["settings", "traffic"], "traffic_percent": "100", "status": "active", **fields}


async def all_bindings(gateway: Gateway) -> tuple[BindingRow, ...]:
    return (await gateway.bindings.page(OPERATOR, Page())).items


def test_a_roll_out_and_a_change_show_what_differs(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with stocked(sqlite_url, tmp_path) as (gateway, package), visitor_of(gateway) as visitor:
            row = await bind(gateway, package, config={"units": "metric"})
            path = f"/bindings/{row.id}"
            page = await visitor.get(path)
            assert 'type="range"' in page.text and "the validation" not in text_of(page)
            base = hidden(page, f"{path}:check")["base"]
            checked = await visitor.post(f"{path}:check", {"part": "traffic", "traffic_percent": "25", "base": base})
            assert "traffic 100 % 25 %" in text_of(checked) and (await all_bindings(gateway))[0] == row
            saved = await visitor.post(f"{path}:save", hidden(checked, f"{path}:save"))
            assert saved.status_code == 303
            now = (await all_bindings(gateway))[0]
            assert (now.traffic_percent, now.config, now.revision) == (25, {"units": "metric"}, 2)
            form = settings(package_version="1.0.0", base=base, **{"config:units": '"imperial"'})
            mixed = await visitor.post(f"{path}:check", form | {"part": "settings", "traffic_percent": "100"})
            assert "config.units metric imperial" in text_of(mixed) and mixed.status_code == 409
            assert "traffic" not in hidden(mixed, f"{path}:save")["document"], "the older page changes only its own"
            assert (await actions(gateway))[-1] == "binding.update"

    run(main)


def test_the_second_of_two_operators_gets_both_values(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with (
            stocked(sqlite_url, tmp_path) as (gateway, package),
            visitor_of(gateway) as one,
            visitor_of(gateway) as other,
        ):
            row = await bind(gateway, package, config={"units": "metric"})
            check, save = f"/bindings/{row.id}:check", f"/bindings/{row.id}:save"
            base = hidden(await one.get(f"/bindings/{row.id}"), check)["base"]

            async def change(visitor: Visitor, **config: str) -> dict[str, str]:
                form = settings(part="settings", package_version="1.0.0", base=base)
                fields = {f"config:{name}": value for name, value in config.items()}
                return hidden(await visitor.post(check, form | fields), save)

            first = await change(one, units='"metric"', city="Lima")
            second = await change(other, units='"imperial"', city="Oslo")
            assert (await one.post(save, first)).status_code == 303
            conflict = await other.post(save, second)
            words = text_of(conflict)
            assert conflict.status_code == 409 and "Another operator changed this binding" in words
            assert "config.city theirs Lima yours Oslo" in words and "config.units metric imperial" in words
            assert (await all_bindings(gateway))[0].config == {"units": "metric", "city": "Lima"}, "nothing is lost"
            assert (await other.post(save, hidden(conflict, save))).status_code == 303
            now = (await all_bindings(gateway))[0]
            assert now.config == {"units": "imperial", "city": "Oslo"} and now.revision == 3
            for revision in ("", "x", "1", "99"):
                stale = await other.post(save, second | {"revision": revision})
                assert stale.status_code == 409
            assert (await all_bindings(gateway))[0] == now

    run(main)


def test_a_binding_is_disabled_enabled_and_deleted_after_a_confirmation(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with stocked(sqlite_url, tmp_path) as (gateway, package), visitor_of(gateway) as visitor:
            row = await bind(gateway, package)
            path = f"/bindings/{row.id}"
            asked = await visitor.post(f"{path}:disable")
            assert "This cancels its running invocations" in text_of(asked)
            assert (await gateway.bindings.get(OPERATOR, row.id)).status == "active"
            assert (await visitor.post(f"{path}:disable", {"confirm": "yes"})).status_code == 303
            assert (await gateway.bindings.get(OPERATOR, row.id)).status == "disabled"
            assert (await visitor.post(f"{path}:enable")).status_code == 303
            other = await bind(gateway, package, status="draft")
            refused = await visitor.post(f"/bindings/{other.id}:enable")
            assert refused.status_code == 422 and "percent too much" in text_of(refused)
            assert "Delete t?" in text_of(await visitor.post(f"{path}:delete"))
            assert (await visitor.post(f"{path}:delete", {"confirm": "yes"})).headers["location"] == "/bindings"
            assert [each.id for each in await all_bindings(gateway)] == [other.id]
            assert (await actions(gateway))[-1] == "binding.delete"

    run(main)


def test_a_viewer_sees_settings_and_no_buttons_and_is_refused(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with stocked(sqlite_url, tmp_path) as (gateway, package):
            await make_org(gateway, "org_2", "proj_2")
            own, foreign = await bind(gateway, package), await bind(gateway, package, org_id="org_2", project_id=None)
            before = await all_bindings(gateway)
            async with visitor_of(gateway, await make_key(gateway, "org_1", "viewer")) as visitor:
                page = await visitor.get(f"/bindings/{own.id}")
                assert page.status_code == 200 and page.text.count('method="post"') == 1, "only to log out"
                listed = await visitor.get("/bindings")
                assert own.id in listed.text and foreign.id not in listed.text and "New binding" not in listed.text
                document = json.dumps({"status": "disabled"})
                for path in (":check", ":save", ":enable", ":disable", ":delete"):
                    form = {"confirm": "yes", "document": document, "revision": "1", "part": "traffic"}
                    assert (await visitor.post(f"/bindings/{own.id}{path}", form)).status_code == 403, path
                assert (await visitor.get("/bindings/new")).status_code == 403
                assert (await visitor.post("/bindings", {"document": "{}"})).status_code == 403
            async with visitor_of(gateway, await make_key(gateway, "org_1", "operator")) as visitor:
                assert (await visitor.get("/bindings?org=org_2")).status_code == 404
                for path in ("", ":check", ":save", ":enable", ":disable", ":delete"):
                    target = f"/bindings/{foreign.id}{path}"
                    answer = await (
                        visitor.post(target, {"confirm": "yes", "document": "{}"}) if path else visitor.get(target)
                    )
                    assert answer.status_code == 404, path
                document = json.dumps(
                    {
                        "package_id": "acme/p",
                        "package_version": "1.0.0",
                        "export_id": "t",
                        "scope": {"org_id": "org_2"},
                    }
                )
                assert (await visitor.post("/bindings", {"document": document})).status_code == 404
            assert await all_bindings(gateway) == before

    run(main)
