"""Pages that bind an export: a dry run of the form, and the binding that it has shown."""

from __future__ import annotations

from html import unescape
from pathlib import Path

from tests.server.dashboard.pages.test_bindings import all_bindings, hidden, settings, stocked
from tests.server.dashboard.pages.test_orgs import actions
from tests.support.dashboards import text_of, visitor_of
from tests.support.loops import Run


def test_a_first_binding_is_shown_as_it_would_be_and_then_saved(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with stocked(sqlite_url, tmp_path) as (gateway, package), visitor_of(gateway) as visitor:
            empty = await visitor.get("/bindings")
            assert "No bindings yet" in text_of(empty) and 'href="/bindings/new"' in empty.text
            assert "plugbay binding create" in empty.text
            chosen = f"/bindings/new?package={package.id}&amp;export=t"
            assert f'href="{chosen}"' in (await visitor.get("/bindings/new")).text
            assert chosen in (await visitor.get("/bindings/new?search=ACME/p/T")).text
            assert "Nothing found" in text_of(await visitor.get("/bindings/new?search=nothing"))
            placed = await visitor.get("/bindings/new?org=org_1&project=proj_1")
            assert f"{chosen}&amp;org=org_1&amp;project=proj_1" in placed.text
            page = await visitor.get(unescape(chosen))
            assert "config.units metric" in text_of(page) and "org org_1" in text_of(page)
            assert not await all_bindings(gateway), "nothing is saved"
            saved = await visitor.post("/bindings", hidden(page, "/bindings"))
            assert saved.status_code == 303
            row = (await all_bindings(gateway))[0]
            assert saved.headers["location"] == f"/bindings/{row.id}"
            assert (row.config, row.status, row.traffic_percent) == ({"units": "metric"}, "active", 100)
            assert (await actions(gateway))[-1] == "binding.create"
            assert "t tool acme/p 1.0.0 org_1 active 100 %" in text_of(await visitor.get("/bindings"))

    run(main)


def test_a_form_is_judged_before_it_is_saved(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with stocked(sqlite_url, tmp_path) as (gateway, package), visitor_of(gateway) as visitor:
            path = f"/bindings/new?package={package.id}&export=t"
            wanted = settings(org="org_1", project="proj_1", **{"config:units": '"imperial"', "config:city": "Lima"})
            page = await visitor.post(path, wanted)
            assert "config.city Lima" in text_of(page) and "project proj_1" in text_of(page)
            for wrong in (
                {"config:units": "kelvin"},
                {"traffic_percent": "101"},
                {"traffic_percent": "-1"},
                {"policy:timeout_ms": "x"},
                {"status": "king"},
                {"org": "org_9"},
                {"config_json": "[1]"},
                {"config_json": '{"city": "\\ud800"}'},
            ):
                refused = await visitor.post(path, wanted | wrong)
                assert refused.status_code in (400, 404, 422), wrong
                assert 'action="/bindings"' not in refused.text, "there is no button to save it"
                assert "notice bad" in refused.text
            unfit = await visitor.post(path, wanted | {"config_json": '{"wind": 1}'})
            assert "binding.invalid_config" in unfit.text and 'action="/bindings"' not in unfit.text
            assert not await all_bindings(gateway)
            assert (await visitor.post("/bindings", {"document": '{"a": 1'})).status_code == 400
            assert (await visitor.post("/bindings", {"document": "[]"})).status_code == 400
            assert (await visitor.get("/bindings/new?package=pkg_9&export=t")).status_code == 404
            assert (await visitor.get(f"/bindings/new?package={package.id}&export=nope")).status_code == 404

    run(main)
