"""The pages of the host in a real browser: overview, settings, wire, calls, screens, phones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.cli.test_config import SETTINGS
from tests.server.test_server import Served, served
from tests.support.ainb import write_ainb_plugin
from tests.support.browser import Window, browser, logged_in
from tests.support.dashboards import PATIENT
from tests.support.kaged import write_kaged_plugin
from tests.support.nexo import write_nexo_plugin
from tests.support.patience import until_blocking
from tests.support.plugins import ECHO_SH, write_plugin
from tests.support.tiers import exhaustive

__all__ = ["browser"]

WAITS_SH = "while [ ! -e go ]; do sleep 0.05; done\n" + ECHO_SH

TRIP = {
    "type": "object",
    "required": ["day"],
    "properties": {
        "day": {"type": "string", "format": "date"},
        "from": {"type": "object", "properties": {"city": {"type": "string"}}},
        "seats": {"type": "array", "items": {"type": "integer"}},
    },
}

IDS = ("calm", "pane", "set", "stays", "trips", "waits", "wants")


def write_plugins(folder: Path) -> None:
    plugins = folder / "plugins"
    write_plugin(plugins, "calm")
    write_plugin(plugins, "waits", script=WAITS_SH)
    write_plugin(plugins, "trips", tools=[{"name": "t", "description": "Books.", "input_schema": TRIP}])
    write_plugin(plugins, "wants", capabilities=["tool.execute"])
    write_nexo_plugin(plugins, "stays", tools=["t"])
    write_ainb_plugin(plugins, "pane", screens=["main"], namespaces=["n"])
    write_kaged_plugin(plugins, "set", **SETTINGS)
    (folder / "plugbay.toml").write_text("".join(PATIENT % name for name in IDS))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("pages")
    write_plugins(folder)
    with served(folder, "plugins", "--no-sandbox") as server:
        yield server


@pytest.fixture
def window(browser: Browser, server: Served) -> Iterator[Window]:
    with logged_in(browser, server) as window:
        yield window


@exhaustive
def test_the_overview_follows_calls_and_grants(window: Window) -> None:
    page = window.page
    expect(page.locator("#problems")).to_contain_text("wants")
    expect(page.locator(".chart svg")).to_have_count(5)
    legend = page.locator("#chart-calls .legend").first

    def counted() -> bool:
        """The legend has the calls of the current minute, so there has to be one in each."""
        window.client.post("/api/v1/calls", json={"export": "calm/t"})
        page.wait_for_timeout(200)
        return legend.text_content() != "calls 0"

    until_blocking(counted)
    window.client.post("/api/v1/calls", json={"export": "calm/nothing"})
    expect(page.locator("#calls")).to_contain_text("not_found")
    page.get_by_label("Grant this to wants: tool.execute").click()
    expect(page.locator(".notice.good")).to_contain_text("wants may use tool.execute")
    expect(page.locator("#problems")).not_to_contain_text("wants")
    assert window.complaints == []


@exhaustive
def test_settings_and_a_secret_are_kept(window: Window) -> None:
    page = window.page
    window.open("/settings?plugin=set")
    page.fill("[name='field:limit']", "7")
    page.press("[name='field:limit']", "Enter")
    expect(page.locator(".notice.good")).to_contain_text("The settings were saved")
    expect(page.locator("[name='field:limit']")).to_have_value("7")
    page.fill("[name=value]", "open sesame")
    page.get_by_label("Save key").click()
    expect(page.locator(".secret")).to_contain_text("is set")
    assert "sesame" not in page.content()
    page.get_by_label("Reset How many").click()
    expect(page.locator("[name='field:limit']")).to_have_value("3")
    assert window.complaints == []


@exhaustive
def test_the_wire_shows_frames_as_they_pass(window: Window) -> None:
    page = window.page
    window.open("/wire?plugin=stays")
    expect(page.locator("#frames")).to_contain_text("joined")
    window.client.post("/api/v1/calls", json={"export": "stays/stays_t", "input": {"tea": "<b>"}})
    expect(page.locator("#frames li", has_text="ok tool.invoke")).to_have_count(1)
    page.locator("#frames summary").first.click()
    expect(page.locator("#frames pre").first).to_contain_text("<b>")
    assert page.locator("#frames b").count() == 0 and window.complaints == []


@exhaustive
def test_a_call_that_runs_is_followed_and_cancelled(window: Window) -> None:
    page = window.page
    window.open("/export?export=waits/t&as=json")
    page.fill("#json", '{"tea": 1}')
    page.get_by_label("Keep the input").check()
    page.click("button:text-is('Call')")
    expect(page.locator("#try .badge")).to_have_text("running")
    page.click("text=Cancel")
    expect(page.locator("#try .badge")).to_have_text("cancelled")
    page.click("text=Again")
    expect(page.locator("#json")).to_have_value('{\n  "tea": 1\n}')
    assert window.complaints == []


@exhaustive
def test_a_form_and_its_json_keep_their_values(window: Window) -> None:
    page = window.page
    window.open("/export?export=trips/t")
    page.fill("[name='field:day']", "2026-03-12")
    page.fill("[name='field:from/city']", "Lima")
    page.fill("[name='field:seats']", "1\n2")
    page.click("text=as JSON")
    expect(page.locator("#json")).to_have_value(
        '{\n  "day": "2026-03-12",\n  "from": {\n    "city": "Lima"\n  },\n  "seats": [\n    1,\n    2\n  ]\n}'
    )
    page.click("text=as a form")
    expect(page.locator("[name='field:from/city']")).to_have_value("Lima")
    page.click("button:text-is('Call')")
    expect(page.locator(".answer .badge")).to_have_text("succeeded")
    assert window.complaints == []


@exhaustive
def test_a_screen_takes_what_is_typed_and_tab_leaves_it(window: Window) -> None:
    page = window.page
    window.open("/screen?name=pane/main")
    expect(page.locator("#screen")).to_contain_text("pane 80x24")
    page.locator("[data-keys]").focus()
    page.keyboard.press("x")
    expect(page.locator("#screen")).to_contain_text("keys x")
    page.keyboard.press("ArrowUp")
    expect(page.locator("#screen")).to_contain_text("up")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "key"
    assert window.complaints == []


UNNAMED = """[...document.querySelectorAll("input:not([type=hidden]), select, textarea")]
    .filter((field) => !field.labels.length && !field.ariaLabel).length"""
"""Fields without a label."""

PAGES = (
    "/",
    "/plugins",
    "/plugins/wants",
    "/plugins/set",
    "/settings?plugin=set",
    "/logs?plugin=calm",
    "/wire?plugin=stays",
    "/export?export=trips/t",
    "/screen?name=pane/main",
    "/command?name=pane/n",
    "/calls",
    "/events",
)


@exhaustive
def test_no_page_is_wider_than_a_phone(browser: Browser, server: Served) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 800}, color_scheme="dark")
    with server.client() as client:
        window = Window(context.new_page(), server, client)
        window.log_in()
        for path in PAGES:
            window.open(path)
            assert window.page.evaluate("document.documentElement.scrollWidth") <= 390, path
            fields = "input:not([type=hidden]), select, textarea"
            unnamed = (
                f"[...document.querySelectorAll('{fields}')].filter((e) => !e.labels.length && !e.ariaLabel).length"
            )
            assert window.page.evaluate(unnamed) == 0, path
        assert window.complaints == []
    context.close()
