"""Debian's chromium and its windows, for tests and pictures of the dashboard.

with open_browser() as browser, logged_in(browser, server) as window:
    window.open("/calls")
"""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.server.test_server import Served
from tests.support.patience import PATIENCE

MILLISECONDS = PATIENCE * 1000
"""For what should take a fraction of a second, and takes longer on a busy machine."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


@contextmanager
def open_browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    assert program, "install chromium; make setup does"
    expect.set_options(timeout=MILLISECONDS)
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # its own needs a user that is not root
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments, timeout=MILLISECONDS)
        yield browser
        browser.close()


class BrowserMemory(NamedTuple):
    """The memory of a page after a collection of garbage, and of the process that renders it."""

    heap: int
    """Bytes of values of scripts."""
    nodes: int
    listeners: int
    resident: int
    """Bytes of all renderers of the browser."""


def memory_of(page: Page) -> BrowserMemory:
    of_page = page.context.new_cdp_session(page)
    of_page.send("Performance.enable")
    for _ in range(2):  # the first frees nodes that only others without use refer to
        of_page.send("HeapProfiler.collectGarbage")
    values = {each["name"]: int(each["value"]) for each in of_page.send("Performance.getMetrics")["metrics"]}
    of_page.detach()
    browser = page.context.browser
    assert browser is not None
    of_browser = browser.new_browser_cdp_session()
    processes = of_browser.send("SystemInfo.getProcessInfo")["processInfo"]
    of_browser.detach()
    resident = sum(_resident(each["id"]) for each in processes if each["type"] == "renderer")
    return BrowserMemory(values["JSHeapUsedSize"], values["Nodes"], values["JSEventListeners"], resident)


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


class Window:
    """A page of a browser, and the complaints of its console."""

    def __init__(self, page: Page, server: Served, client: httpx2.Client) -> None:
        self.page = page
        self.url = server.facts["url"]
        self.client = client
        self.token = Path(server.facts["token_file"]).read_text().strip()
        self.complaints: list[str] = []
        page.context.set_default_timeout(MILLISECONDS)
        page.on(
            "console", lambda said: self.complaints.append(said.text) if said.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(dialog.message))

    def log_in(self) -> None:
        self.page.goto(self.client.post("/api/v1/dashboard-links").json()["url"])

    def open(self, path: str) -> None:
        self.page.goto(self.url + path)

    def row(self, plugin_id: str) -> str:
        return f"tr:has(a[href='/plugins/{plugin_id}'])"


@contextmanager
def logged_in(browser: Browser, server: Served, **options: Any) -> Iterator[Window]:
    """A window with a session of its own; `options` are those of Playwright's contexts."""
    context = browser.new_context(**options)
    with server.client() as client:
        window = Window(context.new_page(), server, client)
        window.log_in()
        yield window
    context.close()
