"""The first page of an operator."""

from __future__ import annotations

from pathlib import Path

from plugbay.server.dashboard.authentication import Dashboard
from plugbay.server.dashboard.live import OverviewFeed
from tests.support.dashboards import hosting_at, text_of, visitor_of
from tests.support.loops import Run
from tests.support.plugins import write_plugin


def test_the_overview_has_health_problems_charts_and_failures(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "crashes", script="exit 3\n")
    write_plugin(tmp_path / "plugins", "wants", capabilities=["tool.execute"])
    (tmp_path / "plugins/half").mkdir()
    (tmp_path / "plugins/half/rterm-plugin.json").write_text('{"plugin_id": "half"}')

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path, "crashes") as gateway, visitor_of(gateway) as visitor:
            await gateway.host.attempt("crashes/t")
            await gateway.calls.flush()
            page = await visitor.get("/")
            shown = text_of(page)
            assert "<title>Overview · plugbay</title>" in page.text and 'data-live="/live/overview"' in page.text
            for words in (
                "1 plugin waits for your decision 2 plugins: 1 pending, 1 idle",
                "1 call in the last hour, 1 failed (100.0%)",
                "Needs your attention pending wants rune · 1 it requests tool.execute",
                "tool.execute medium risk the host does nothing with it",
                "Grant this Details",
                "Not loaded 1 folder could not be used",
                "Calls per minute calls 1 failed 1",
                "Error rate 100 %",
                "Memory of plugins",
                "CPU of plugins",
                "The last hour as a table",
                "t crashes failed crashed",
            ):
                assert words in shown, words
            assert page.text.count("<svg ") == 5 and " style=" not in page.text

    run(main)


def test_a_grant_from_the_overview_leads_back_to_it(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "wants", capabilities=["tool.execute"])

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            form = {"capability": "tool.execute", "back": "/"}
            done = await visitor.post("/plugins/wants:grant", form)
            assert (done.status_code, done.headers["location"]) == (303, "/")
            shown = text_of(await visitor.get("/"))
            assert "wants may use tool.execute" in shown and "All is well" not in shown and "all is well" in shown
            for elsewhere in ("//evil.example", "/calls"):
                done = await visitor.post("/plugins/wants:stop", {"back": elsewhere})
                assert done.headers["location"] == "/plugins/wants"

    run(main)


def test_an_empty_server_shows_the_first_steps_until_there_is_a_plugin(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            shown = text_of(await visitor.get("/"))
            assert "No plugins yet" in shown and "plugbay install weather-1.0.0.tar.gz" in shown

    run(main)


def test_the_stream_of_the_overview_has_problems_in_order(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "b", capabilities=["tool.execute"])
    write_plugin(tmp_path / "plugins", "a", capabilities=["tool.execute"])

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway:
            feed = OverviewFeed(Dashboard(gateway))
            regions = await feed.regions()
            problems = [region.view.row.id for id, region in regions.items() if id.startswith("problem-")]
            assert problems == ["a", "b"] and feed.rows == "problems" and feed.new_events() == []
            html = regions["health"].html(0.0, form_key="key")
            assert html.startswith('<p id="health"') and "2 plugins wait for your decision" in html

    run(main)
