"""Open pages under real faults: a plugin that floods its log, a server that is restarted."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.server.test_server import served
from tests.support.browser import Window, browser, logged_in, memory_of
from tests.support.nexo import write_nexo_plugin
from tests.support.patience import until_blocking
from tests.support.plugins import write_plugin
from tests.support.tiers import exhaustive

__all__ = ["browser"]

MIB = 1 << 20

MOST_LINES = 502
"""Lines of a log on a page, and the numbers of those that were left out."""

NODES = 1_000
"""By so many the nodes of a full list vary. Between the two looks, some thousand lines come and go."""

FLOOD = """
import threading, time
enough = threading.Event()

def flood():
    began, line = time.monotonic(), 0
    while not enough.is_set():
        due = int((time.monotonic() - began) * 10_000)
        sys.stderr.write("".join("line %d of a flood\\n" % at for at in range(line, due)))
        sys.stderr.flush()
        line = max(line, due)
        time.sleep(0.01)
    print("the last words after %d lines" % line, file=sys.stderr, flush=True)

def tool_invoke(m):
    if m["params"]["args"].get("flood"):
        threading.Thread(target=flood).start()
    else:
        enough.set()
    reply(m, {})
"""
"""Writes 10,000 lines a second, and says at the end how many it were."""

NEWEST = r"""() => {
  const found = document.querySelector("#log").textContent.match(/line (\d+) of a flood/g) || ["line -1"];
  return Number(found[found.length - 1].match(/-?\d+/)[0]);
}"""
"""The number of the last line of the flood on a page."""


def shows_line(page: Page, number: int) -> None:
    until_blocking(lambda: page.evaluate(NEWEST) >= number)


@exhaustive
def test_pages_and_server_stand_a_plugin_that_writes_ten_thousand_lines_a_second(
    browser: Browser, tmp_path: Path
) -> None:
    write_nexo_plugin(tmp_path / "plugins", "loud", FLOOD, tools=["t"])
    with served(tmp_path, "plugins") as server, logged_in(browser, server) as window:
        pages = [window.page, window.page.context.new_page()]
        for page, path in zip(pages, ("/plugins/loud", "/logs?plugin=loud"), strict=True):
            page.goto(window.url + path)
        assert _call(window, flood=True) == "succeeded"
        for page in pages:
            until_blocking(lambda: page.locator("#log li").count() >= 500)  # noqa: B023
        before = [memory_of(page) for page in pages]
        with logged_in(browser, server) as other:
            for path in ("/", "/plugins", "/calls", "/events", "/orgs"):
                other.open(path)
                assert other.page.title().endswith(" · plugbay")
            assert other.complaints == []
        for page in pages:
            shows_line(page, 200_000)
            assert page.locator("#log li").count() <= MOST_LINES
            expect(page.locator("#log")).to_contain_text("not shown")
        assert _call(window, flood=False) == "succeeded"
        for page in pages:
            expect(page.locator("#log li").last).to_contain_text("the last words after")
        for was, now in zip(before, (memory_of(page) for page in pages), strict=True):
            assert now.heap - was.heap < 2 * MIB and now.nodes - was.nodes < NODES
            assert now.resident - was.resident < 64 * MIB
        assert window.complaints == []
        assert server.end() == 0


CONNECTION = """() => {
  window.said = [];
  const line = document.querySelector("#connection");
  new MutationObserver(() => window.said.push(line.textContent)).observe(line, {childList: true});
}"""
"""Collects what a page says of its connection: it says most of it for a few seconds only."""


@exhaustive
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_open_page_goes_on_after_a_restart_of_the_server(browser: Browser, tmp_path: Path, number: int) -> None:
    write_plugin(tmp_path / "plugins", "calm")
    with served(tmp_path, "plugins") as first, logged_in(browser, first) as window:
        page, address = window.page, window.url.rpartition("/")[2]
        window.open("/plugins")
        badge = page.locator(f"{window.row('calm')} .badge")
        expect(badge).to_have_text("idle")
        page.evaluate(CONNECTION)
        first.end(number)
        expect(page.locator("#connection")).to_have_text("disconnected; reconnecting")
        with served(tmp_path, "plugins", "--listen", address) as second:
            until_blocking(lambda: page.evaluate("window.said").count("reconnected") == 1)
            assert second.facts["url"] == window.url
            with second.client() as client:
                assert client.post("/api/v1/plugins/calm:stop").status_code == 200
                expect(badge).to_have_text("stopped")
            expect(page.locator("#connection")).to_have_text("")
            page.click("text=Log out")  # a form from before
            expect(page.locator("h1")).to_have_text("Log in")
            assert second.end() == 0


@exhaustive
def test_an_open_page_says_that_its_session_ended_while_the_server_was_away(browser: Browser, tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins", "calm")
    with served(tmp_path, "plugins") as first, logged_in(browser, first) as window:
        page, address = window.page, window.url.rpartition("/")[2]
        window.open("/plugins")
        expect(page.locator("#plugins")).to_contain_text("calm")
        first.end()
        expect(page.locator("#connection")).to_have_text("disconnected; reconnecting")
        Path(first.facts["token_file"]).unlink()
        with served(tmp_path, "plugins", "--listen", address) as second:
            expect(page.locator("h1")).to_have_text("Log in")
            expect(page.locator(".notice")).to_contain_text("its token is no longer valid")
            assert second.end() == 0


def _call(window: Window, **given: bool) -> str:
    called = window.client.post("/api/v1/calls", json={"export": "loud/loud_t", "input": given}).json()
    return str(called["status"])
