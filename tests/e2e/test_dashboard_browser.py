"""The dashboard in a real browser: Debian's chromium against a real server with real plugins.

One browser and one server for the whole file; every test has a window, and so a session, of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.server.test_server import Served, served
from tests.support.browser import Window, browser, logged_in
from tests.support.dashboards import PATIENT
from tests.support.mcp_servers import write_server
from tests.support.nexo import write_nexo_plugin
from tests.support.plugins import ECHO_SH, write_plugin
from tests.support.tiers import exhaustive

__all__ = ["browser"]

HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\u202e'

SCHEMA = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}, "loud": {"type": "boolean"}},
}

LOUD_SH = 'echo "said <b>$$</b>" >&2\n' + ECHO_SH


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("dashboard")
    plugins = folder / "plugins"
    tools = [{"name": "t", "description": "Says it again.", "input_schema": SCHEMA}]
    write_plugin(plugins, "calm")
    write_nexo_plugin(plugins, "stays", tools=["t"])
    write_plugin(plugins, "chatty", script=LOUD_SH, tools=tools)
    write_plugin(plugins, "hostile", description=HOSTILE, tools=[{"name": "t", "description": HOSTILE}])
    write_plugin(plugins, "wants", capabilities=["tool.execute"], tools=tools)
    (folder / "plugbay.toml").write_text(
        "".join(PATIENT % name for name in ("calm", "chatty", "hostile", "stays", "wants"))
    )
    write_server(plugins, "srv", f"TOOLS[0]['description'] = {HOSTILE!r}")
    with served(folder, "plugins") as server:
        yield server


@pytest.fixture
def window(browser: Browser, server: Served) -> Iterator[Window]:
    with logged_in(browser, server) as window:
        yield window


@exhaustive
def test_a_link_opens_the_list_and_a_row_follows_its_plugin(window: Window) -> None:
    page, row = window.page, window.row("calm")
    assert page.url == f"{window.url}/" and page.title() == "Overview · plugbay"
    page.click("nav >> text=Plugins")
    expect(page.locator(f"{row} .badge")).to_have_text("idle")
    page.locator(f"{row} a").first.focus()
    window.client.post("/api/v1/plugins/calm:stop")
    expect(page.locator(f"{row} .badge")).to_have_text("stopped")
    expect(page.locator("#summary")).to_contain_text("1 stopped")
    assert page.evaluate("document.activeElement.textContent") == "calm", "what has the focus keeps it"
    window.client.post("/api/v1/plugins/calm:start")
    expect(page.locator(f"{row} .badge")).to_have_text("idle")
    window.client.post("/api/v1/calls", json={"export": "calm/t"})
    expect(page.locator(f"{row} [data-label=Calls]")).not_to_have_text("0")
    assert window.complaints == []


@exhaustive
def test_what_a_plugin_asks_for_is_granted_and_then_it_can_be_tried(window: Window) -> None:
    page = window.page
    window.open("/plugins/wants")
    expect(page.locator("#overview .badge")).to_have_text("pending")
    page.get_by_label("tool.execute").check()
    page.click("text=Grant selected")
    expect(page.locator(".notice.good")).to_contain_text("wants may use tool.execute")
    expect(page.locator("#overview .badge")).to_have_text("idle")
    page.click("#exports >> text=Try")
    page.fill("[name='field:name']", 'Ada\n<b>"Lovelace"</b>')
    page.fill("[name='field:age']", "36")
    page.select_option("[name='field:loud']", "true")
    page.click("button.primary")
    expect(page.locator(".answer .badge")).to_have_text("succeeded")
    expect(page.locator(".answer pre")).to_contain_text('"name": "Ada\\n<b>\\"Lovelace\\"</b>"')
    expect(page.locator(".answer pre")).to_contain_text('"loud": true')
    page.click("text=as JSON")
    page.fill("#json", '{"name": 7}')
    page.click("button.primary")
    expect(page.locator(".answer code").first).to_have_text("invalid_input")
    page.click(".answer a")
    expect(page.locator("main")).to_contain_text("invalid_input")
    assert window.complaints == []


@exhaustive
def test_a_server_is_looked_at_and_what_was_seen_is_approved(window: Window) -> None:
    page = window.page
    window.open("/plugins/srv")
    expect(page.locator("#overview .badge")).to_have_text("pending")
    page.click("text=Read the definitions")
    expect(page.locator("#approval .exports")).to_contain_text("echo")
    expect(page.locator("#approval .exports")).to_contain_text("<script>window.hacked=1</script>")
    page.click("#approval summary")
    expect(page.locator("#approval pre.json")).to_contain_text('"inputSchema"')
    page.click("text=Approve these definitions")
    expect(page.locator(".notice.good")).to_contain_text("The definitions of srv are approved")
    expect(page.locator("#overview .badge")).to_have_text("idle")
    expect(page.locator("#approval")).to_have_count(0)
    page.click("#exports >> text=Try")
    page.fill("#json", '{"tea": 1}')
    page.click("button.primary")
    expect(page.locator(".answer .badge")).to_have_text("succeeded")
    assert page.evaluate("window.hacked") is None
    assert window.complaints == []


@exhaustive
def test_what_a_plugin_writes_appears_while_one_looks(window: Window) -> None:
    page = window.page
    window.open("/plugins/chatty")
    expect(page.locator("#log")).not_to_contain_text("said <b>")
    window.client.post("/api/v1/calls", json={"export": "chatty/t", "input": {"name": "x"}})
    expect(page.locator("#log")).to_contain_text("said <b>")
    assert page.locator("#log b").count() == 0, "it is text"
    expect(page.locator("#calls .badge").first).to_have_text("succeeded")
    assert window.complaints == []


@exhaustive
def test_events_come_can_be_paused_and_go_on_without_a_gap(window: Window) -> None:
    page, started = window.page, window.page.locator("#events li:has-text('plugin.lifecycle.stays.started')")
    window.open("/events?topic=plugin.lifecycle.stays.%3E")
    before = started.count()
    assert window.client.post("/api/v1/plugins/stays:restart").status_code == 200
    expect(started).to_have_count(before + 1)
    page.click("text=Pause")
    expect(page.locator("#connection")).to_have_text("paused")
    for _ in range(2):
        assert window.client.post("/api/v1/plugins/stays:restart").status_code == 200
    expect(started).to_have_count(before + 1)
    page.click("text=Resume")
    expect(started).to_have_count(before + 3)
    assert window.complaints == []


def test_nothing_that_a_plugin_says_runs(window: Window) -> None:
    page = window.page
    for path in ("/plugins", "/plugins/hostile", "/export?export=hostile/t"):
        window.open(path)
        expect(page.locator("main")).to_contain_text("hostile")
    expect(page.locator("main")).to_contain_text("<script>window.hacked=1</script>\\u202e")
    assert page.evaluate("window.hacked") is None and window.complaints == []
    # The control: what got past the templates would be held back by the policy, and would be seen here.
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hacked=1\">')")
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'window.hacked=2'}))")
    assert page.evaluate("window.hacked") is None
    assert any("Content Security Policy" in said for said in window.complaints)


@exhaustive
def test_a_page_notices_that_its_session_is_over(window: Window) -> None:
    page = window.page
    other = page.context.new_page()
    other.goto(window.url + "/calls")
    other.click("text=Log out")
    expect(other.locator("h1")).to_have_text("Log in")
    expect(page.locator("h1")).to_have_text("Log in")


@exhaustive
def test_without_a_script_everything_can_be_read_and_done(browser: Browser, server: Served) -> None:
    context = browser.new_context(java_script_enabled=False)
    with server.client() as client:
        window = Window(context.new_page(), server, client)
        window.log_in()
        page = window.page
        window.open("/plugins")
        page.click("text=calm")
        page.click("text=Stop")
        expect(page.locator(".notice")).to_contain_text("calm was stopped")
        page.click("button:has-text('Start')")
        expect(page.locator("#overview .badge")).to_have_text("idle")
        expect(page.locator("[data-pause]")).to_be_hidden()
        window.open("/events")
        expect(page.locator("h1")).to_have_text("Events")
        page.click("text=Log out")
        expect(page.locator("h1")).to_have_text("Log in")
        page.fill("#token", window.token)
        page.click("button.primary")
        expect(page.locator("h1")).to_have_text("Overview")
    context.close()


@exhaustive
def test_the_first_page_of_a_server_without_plugins_stands_still_until_there_is_one(
    browser: Browser, tmp_path: Path
) -> None:
    told = """() => new Promise((done) => {
      const own = new EventSource("/live/plugins");
      own.addEventListener("order", () => { own.close(); done(true); });
    })"""
    (tmp_path / "plugins").mkdir()
    with served(tmp_path, "plugins") as server, server.client() as client:
        context = browser.new_context()
        window, loads = Window(context.new_page(), server, client), []
        window.page.on(
            "request", lambda request: loads.append(request.url) if request.is_navigation_request() else None
        )
        window.log_in()
        expect(window.page.locator("#welcome h2")).to_have_text("No plugins yet")
        window.open("/plugins")
        expect(window.page.locator("h2")).to_have_text("No plugins yet")
        before = len(loads)
        for _ in range(3):  # whoever reloads meanwhile takes the question along
            assert window.page.evaluate(told)
        assert len(loads) == before and window.complaints == []
        write_plugin(tmp_path / "plugins", "first")
        expect(window.page.locator("#plugins tr")).to_contain_text("first")
        expect(window.page.locator("h2")).to_be_hidden()
        assert len(loads) == before
        context.close()
