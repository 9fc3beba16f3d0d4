"""Page views: a real browser visits all pages of a server again and again, while others stay open and calls go on.

Asserts at the end that nothing grew, in the server or in the browser.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Page

from tests.soak.readings import MIB, PageReading, find_page_growth
from tests.soak.soak import RATE_LIMITED
from tests.support.browser import Window, logged_in, memory_of, open_browser
from tests.support.patience import until_blocking
from tests.support.showcase import Showcase, showcase
from tests.support.usage import descriptor_count, private_memory, thread_count

KEPT_OPEN = ("/", "/events", "/logs?plugin=example.greeter", "/sessions")
"""Live pages that stay open all the time."""

FILLED = 550
"""Rounds of work before the first reading: a page keeps 500 lines, and a list that fills is not a leak."""

READ_EVERY = 10
"""Page views between two readings."""

LISTENS = "!document.body.dataset.live || (stream !== null && stream.readyState === EventSource.OPEN)"
"""Whether a page gets its updates, if it has any."""


@dataclass
class PageViews:
    """One server, and one browser that views its pages."""

    shown: Showcase
    window: Window
    open_pages: list[Page] = field(default_factory=list)
    readings: list[PageReading] = field(default_factory=list)
    views: int = 0

    def prepare(self) -> None:
        for path in KEPT_OPEN:
            page = self.window.page.context.new_page()
            page.goto(self.window.url + path)
            _await_stream(page)
            self.open_pages.append(page)
        for _ in range(FILLED):
            self._work()

    def run(self, seconds: float, show: Callable[[str], None]) -> None:
        begun = told = time.monotonic()
        while time.monotonic() < begun + seconds:
            for path in self.shown.pages.values():
                self._view(path)
                if self.views % READ_EVERY == 0:
                    self._read()
                if self.readings and time.monotonic() > told + 60:
                    told += 60
                    show(self.line())

    def _view(self, path: str) -> None:
        self._work()
        self.window.open(path)
        _await_stream(self.window.page)
        assert self.window.page.title().endswith(" · plugbay"), path
        self.views += 1

    def _read(self) -> None:
        self.window.open("/plugins")  # the same page each time
        _await_stream(self.window.page)
        pid = self.shown.server.process.pid
        pages = [memory_of(page) for page in (self.window.page, *self.open_pages)]
        heap, nodes, listeners = (sum(each[at] for each in pages) for at in range(3))
        used = private_memory(pid), descriptor_count(pid), thread_count(pid)
        self.readings.append(PageReading(time.monotonic(), *used, heap, nodes, listeners, pages[-1].resident))

    def _work(self) -> None:
        """An event, a record, and a call with lines in the log of its plugin: what the open pages show."""
        self._post("/api/v1/events", {"topic": "soak.tick", "payload": {"n": self.views}})
        self._post("/v1/sessions", {"org_id": "acme"})
        self._post("/api/v1/calls", {"export": "example.greeter/greet", "input": {"name": f"visitor {self.views}"}})

    def _post(self, path: str, body: object) -> None:
        while (answer := self.window.client.post(path, json=body)).status_code == RATE_LIMITED:
            time.sleep(answer.json()["error"]["retry_after"])
        assert answer.is_success, answer.text

    def line(self) -> str:
        last = self.readings[-1]
        return (
            f"server {last.memory / MIB:6.1f} MiB {last.descriptors:4d} descriptors {last.threads:3d} threads   "
            f"pages {last.heap / MIB:6.2f} MiB heap {last.nodes:6d} nodes {last.listeners:4d} listeners "
            f"{last.renderers / MIB:7.1f} MiB renderers   {self.views:6d} views"
        )


def _await_stream(page: Page) -> None:
    until_blocking(lambda: bool(page.evaluate(LISTENS)))


def view_pages(folder: Path, seconds: float, show: Callable[[str], None] = lambda line: None) -> list[str]:
    """View pages for this long; return the problems."""
    with showcase(folder) as shown, open_browser() as browser, logged_in(browser, shown.server) as window:
        views = PageViews(shown, window)
        views.prepare()
        views.run(seconds, show)
        show(views.line())
        problems = [*find_page_growth(views.readings), *window.complaints]
        if shown.server.end() != 0:
            problems.append("the server did not end in order")
    return problems
