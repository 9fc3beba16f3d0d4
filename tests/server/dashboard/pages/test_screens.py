"""Screens and command lines of plugins on pages."""

from __future__ import annotations

from pathlib import Path

from plugbay.server.dashboard.live import ScreenFeed
from plugbay.server.domain.principal import OPERATOR
from tests.support.ainb import write_ainb_plugin
from tests.support.dashboards import hosting_at, text_of, visitor_of
from tests.support.loops import Run


def test_a_screen_is_drawn_and_takes_keys(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_ainb_plugin(tmp_path / "plugins", "p", screens=["main"], namespaces=["n"])

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path, "p") as gateway, visitor_of(gateway) as visitor:
            plugin = await visitor.get("/plugins/p")
            assert 'href="/screen?name=p%2Fmain"' in plugin.text and 'href="/command?name=p%2Fn"' in plugin.text
            page = await visitor.get("/screen?name=p/main&size=40x24")
            assert "p 40x24" in text_of(page) and '<svg class="cells"' in page.text and " style=" not in page.text
            assert 'data-live="/live/screen?name=p%2Fmain&amp;size=40x24"' in page.text
            feed = ScreenFeed(gateway, "p/main", (40, 24))
            first = (await feed.regions())["screen"]
            assert (await feed.regions())["screen"] is not first and (await feed.regions())["screen"] == first
            sent = await visitor.post("/screen?name=p/main&size=40x24", {"key": "x y"})
            assert sent.status_code == 200 and "keys x" in text_of(sent)
            assert "keys x" in (await feed.regions())["screen"].html(0.0), "other viewers see it"
            quiet = await visitor.post("/screen?name=p/main", {"key": ["ctrl+a", "<"], "quiet": "yes"})
            assert quiet.status_code == 204 and "script-src" in quiet.headers["content-security-policy"]
            odd = await visitor.post("/screen?name=p/main", {"key": "hyper+x"})
            assert odd.status_code == 400 and "is not a modifier" in text_of(odd)
            assert (await visitor.post("/screen?name=p/main", {"key": "nokey", "quiet": "1"})).status_code == 400
            for path in ("/screen?name=p/none", "/live/screen?name=none", "/screen", "/command?name=p/main"):
                assert (await visitor.get(path)).status_code == 404

    run(main)


def test_a_screen_that_fails_says_why_and_is_not_asked_at_once_again(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_ainb_plugin(tmp_path / "plugins", "p", screens=["main"])

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path, "p") as gateway, visitor_of(gateway) as visitor:
            await gateway.operator_plugins.operate(OPERATOR, "p", "stop")
            page = await visitor.get("/screen?name=p/main")
            assert 'class="notice bad"' in page.text
            feed = ScreenFeed(gateway, "p/main", (80, 24))
            region = (await feed.regions())["screen"]
            for _ in range(5):
                assert (await feed.regions())["screen"].view is region.view, "it is not drawn again at once"
            assert region.view.frame is None and region.view.problem
            lost = await visitor.post("/screen?name=p/main", {"key": "x"})
            assert "did not get all keys" in text_of(lost)

    run(main)


def test_a_command_line_is_run(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_ainb_plugin(tmp_path / "plugins", "p", namespaces=["n"])

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path, "p") as gateway, visitor_of(gateway) as visitor:
            done = await visitor.post("/command?name=p/n", {"words": "a '<b> c'"})
            assert "exit code 0 stdout n a <b> c" in text_of(done) and "<b>" not in done.text
            open_quote = await visitor.post("/command?name=p/n", {"words": "'a"})
            assert open_quote.status_code == 400 and "cannot be split" in text_of(open_quote)
            await visitor.post("/plugins/p:stop")
            failed = await visitor.post("/command?name=p/n", {"words": "a"})
            assert failed.status_code == 200 and "failed unavailable" in text_of(failed)

    run(main)
