"""The operator's plugins entirely in the browser: installed, upgraded with a diff, rolled back, pinned, removed.

Debian's chromium against a real server; packages are real files, signed by a publisher whom the operator trusts in the
browser, and the plugin is a real process.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from playwright.sync_api import Browser, Page, expect

from plugbay.packages import keys
from plugbay.packages.archive import signature_path
from tests.packages.builders import PLUGIN, key, pack, sign
from tests.server.test_server import Served, served
from tests.support.browser import Window, browser, logged_in
from tests.support.dashboards import PATIENT
from tests.support.tiers import exhaustive

__all__ = ["browser"]  # the fixture

pytestmark = exhaustive

WANTED: dict[str, list[str]] = {"1.0.0": [], "2.0.0": ["mail.send"], "3.0.0": ["mail.send"]}
"""Releases and the capabilities that they ask for."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    (tmp_path / "plugbay.toml").write_text(PATIENT % f'"{PLUGIN}"')
    with served(tmp_path) as server:
        yield server


@pytest.fixture(params=[True, False], ids=["script", "no-script"])
def window(browser: Browser, server: Served, request: pytest.FixtureRequest) -> Iterator[Window]:
    with logged_in(
        browser, server, java_script_enabled=request.param, viewport={"width": 390, "height": 800}
    ) as window:
        yield window


def upload(page: Page, package: Path) -> None:
    page.click("nav >> text=Installed")
    page.locator("#archive").wait_for(state="attached")  # before, the answer is about a page that is not there yet
    if not page.locator("#archive").is_visible():
        page.click("summary")
    page.set_input_files("#archive", package)
    page.set_input_files("#signature", signature_path(package))
    page.click("text=Upload and look")


def version(window: Window) -> str:
    """The release that answers calls."""
    answer = window.client.post("/api/v1/calls", json={"export": f"{PLUGIN}/t", "input": {}}).json()
    return str((answer["output"] or {}).get("version") or answer["failure"]["code"])


def trust(window: Window, public: str) -> None:
    page = window.page
    page.click("nav >> text=Publishers")
    page.click("summary")
    page.fill("#publisher", "acme")
    page.fill("#public_key", public)
    page.click("text=Continue")
    page.fill("#token", window.token)
    page.click("text=Trust this key")
    expect(page.locator(".notice.good")).to_contain_text("acme is trusted")


def fits(window: Window) -> bool:
    """Whether the page needs no horizontal scrolling."""
    return bool(window.page.evaluate("document.documentElement.scrollWidth <= 390"))


def install(window: Window, package: Path, private: Ed25519PrivateKey) -> None:
    """A package whose publisher is trusted when the page has named the key."""
    page = window.page
    expect(page.locator("main")).to_contain_text("No installed plugins")
    upload(page, package)
    expect(page.locator("#consent")).to_contain_text("which is not trusted")
    shown = page.url
    trust(window, b64encode(keys.public_of(private)).decode())
    page.goto(shown)
    expect(page.locator("#consent")).to_contain_text("nothing is installed yet")
    page.click("text=Install 1.0.0, sha256:")
    expect(page.locator(".notice.good")).to_contain_text("The server has loaded it")


def upgrade(page: Page, package: Path) -> None:
    """A release that asks for more."""
    upload(page, package)
    expect(page.locator(".diff ins")).to_have_text("mail.send")
    page.click("text=Upgrade to 2.0.0, sha256:")
    expect(page.locator(".notice.warn")).to_contain_text("Nothing was granted. It asks for mail.send.")


def roll_back(page: Page) -> None:
    page.click("text=Roll back to 1.0.0…")
    expect(page.locator(".question")).to_contain_text("no longer asks for")
    page.click("button:text-is('Roll back')")
    expect(page.locator(".notice.good")).to_contain_text("1.0.0 is current again")


def pin_and_unpin(page: Page, package: Path) -> None:
    """A pinned plugin refuses an upgrade."""
    page.click("button:text-is('Pin')")
    upload(page, package)
    expect(page.locator("#consent")).to_contain_text("is pinned to 1.0.0")
    page.click("#consent >> text=The installed plugin")
    page.click("button:text-is('Unpin')")
    expect(page.locator(".notice.good")).to_contain_text("no longer pinned")


def test_the_life_of_an_installed_plugin(window: Window, tmp_path: Path) -> None:
    page, private = window.page, key()
    one, two, three = (
        sign(pack(tmp_path / number, number, capabilities=wanted), private) for number, wanted in WANTED.items()
    )
    page.click("text=Install")
    page.click("nav >> text=Installed")
    install(window, one, private)
    assert fits(window) and version(window) == "1.0.0"
    page.click("text=plugin page")
    expect(page.locator("h1")).to_have_text(PLUGIN)
    page.click("a:has-text('release 1.0.0')")
    expect(page.locator(".state")).to_contain_text("installed")

    upgrade(page, two)
    assert fits(window) and version(window) == "capability_not_allowed"
    roll_back(page)
    assert version(window) == "1.0.0"
    pin_and_unpin(page, three)
    page.click("text=Uninstall…")
    page.click("button:text-is('Uninstall')")
    expect(page.locator(".notice.good")).to_contain_text("is uninstalled")
    assert window.client.get("/api/v1/plugins").json()["plugins"] == []
    window.open("/audit")
    for action in ("install", "upgrade", "rollback", "pin", "unpin", "uninstall"):
        expect(page.locator("table")).to_contain_text(f"plugin.{action}")
    assert fits(window) and window.complaints == []
