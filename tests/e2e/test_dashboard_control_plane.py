"""The control plane entirely in the browser: from an empty server to a bound export, its work and its records.

Debian's chromium against a real server; the package is a real file, its plugin a real process.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.server.test_server import Served, served
from tests.support.browser import Window, browser, logged_in
from tests.support.packaged import Publisher
from tests.support.patience import pauses
from tests.support.showcase import showcase
from tests.support.tiers import exhaustive
from tests.support.vai import export

__all__ = ["browser"]  # the fixture

pytestmark = exhaustive

SCHEMA = {
    "type": "object",
    "properties": {"units": {"enum": ["metric", "imperial"], "default": "metric"}, "city": {"type": "string"}},
    "additionalProperties": False,
}

BODY = """
def tool(body, m):
    succeed(m, output({"city": body["input"].get("city")}))
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    (tmp_path / "plugins").mkdir()
    with served(tmp_path, "plugins") as server:
        yield server


@pytest.fixture(params=[True, False], ids=["script", "no-script"])
def window(browser: Browser, server: Served, request: pytest.FixtureRequest) -> Iterator[Window]:
    with logged_in(
        browser, server, java_script_enabled=request.param, viewport={"width": 390, "height": 800}
    ) as window:
        yield window


def packed(server: Served, folder: Path) -> tuple[Path, Path]:
    """The file of a package, and that of its signature by a publisher whom the server trusts."""
    publisher = Publisher(Path(server.facts["token_file"]).parent, folder)
    exports = [export("forecast", config_schema="schemas/config.json"), export("alert", "hook")]
    made = publisher.pack(BODY, exports, package="acme/weather", schemas={"config": SCHEMA})
    signature = folder / "signature.json"
    signature.write_bytes(publisher.sign(made))
    return made.path, signature


def fits(window: Window) -> bool:
    """Whether the page needs no horizontal scrolling."""
    return bool(window.page.evaluate("document.documentElement.scrollWidth <= 390"))


def create_org_and_key(page: Page) -> str:
    """An org and its key, which is shown once."""
    page.click("text=Control plane")
    page.fill("#name", "Tea shop")
    page.fill("#id", "tea")
    page.click("text=Create org")
    expect(page.locator(".notice.good")).to_contain_text("Tea shop is created")
    page.click(".ways >> text=Keys")
    page.fill("#name", "ci")
    page.click("text=Create key")
    key = page.locator(".answer code").first.inner_text()
    page.reload()
    expect(page.locator("main")).not_to_contain_text(key)
    return key


def upload(page: Page, archive: Path, signature: Path) -> None:
    """A package, uploaded as a file."""
    page.click("nav >> text=Packages")
    page.set_input_files("#archive", archive)
    page.set_input_files("#signature", signature)
    page.click("text=Upload")
    expect(page.locator(".badge").first).to_have_text("available")
    expect(page.locator("main")).to_contain_text("verified by acme")


def bind_tool(page: Page) -> str:
    """A binding, with a dry run before it is saved, and before it is rolled out; returns its id."""
    page.get_by_label("Bind forecast").click()
    expect(page.locator("#review")).to_contain_text("nothing is saved yet")
    page.fill("[name='config:city']", "Lima")
    page.click("button:has-text('Check')")
    expect(page.locator("#review")).to_contain_text("config.city Lima")
    page.click("text=Save binding")
    expect(page.locator(".notice.good")).to_contain_text("forecast is bound for tea")
    page.locator("#traffic_percent").fill("40")
    page.locator("section:has(h2:text('Roll-out')) button").click()
    expect(page.locator("#review del")).to_have_text("100 %")
    expect(page.locator("#review ins")).to_have_text("40 %")
    page.click("text=Save change")
    expect(page.locator(".numbers")).to_contain_text("40 %")
    return page.url.rpartition("/")[2]


def send_to_hook(page: Page) -> None:
    """A bound hook gets a test, and its page shows how it went."""
    page.click("nav >> text=Bindings")
    page.click("text=New binding")
    page.get_by_label("Bind alert of acme/weather 1.0.0").click()
    page.click("text=Save binding")
    page.click("text=Send a test")
    expect(page.locator("#timeline")).to_contain_text("queued")
    for pause in pauses():
        if page.locator(".state .badge").first.inner_text() == "delivered":
            break
        page.wait_for_timeout(1000 * pause)
        page.reload()
    expect(page.locator("#timeline .steps li.good")).to_contain_text("succeeded")


def test_the_control_plane_tour(window: Window, server: Served, tmp_path: Path) -> None:
    page = window.page
    archive, signature = packed(server, tmp_path)
    key = create_org_and_key(page)
    upload(page, archive, signature)
    assert fits(window)
    binding_id = bind_tool(page)
    assert fits(window)

    # An invocation over REST, with the key of the tour, and its timeline.
    answer = window.client.post(
        "/v1/plugin-invocations",
        json={"binding_id": binding_id, "input": {"city": "Lima"}},
        headers={"authorization": f"Bearer {key}"},
    )
    assert answer.json()["status"] == "succeeded", answer.text
    page.click("nav >> text=Invocations")
    page.click("th >> text=forecast")
    expect(page.locator("#timeline .steps")).to_contain_text("started")
    expect(page.locator("#timeline .steps li.good")).to_contain_text("succeeded")
    expect(page.locator("pre.json")).to_contain_text('"city": "Lima"')
    assert fits(window)

    # The delivery to a hook, and the log of all this.
    send_to_hook(page)
    page.click("nav >> text=Audit")
    for action in ("org.create", "key.create", "package.create", "binding.create", "binding.update", "delivery.test"):
        expect(page.locator("table")).to_contain_text(action)
    page.click("text=Verify the chains")
    expect(page.locator("#chains")).to_contain_text("The chains are whole")
    assert fits(window) and window.complaints == []
    page.evaluate("document.querySelector('main').style.width = '500px'")
    assert not fits(window), "the control: a wide page is noticed"


def test_a_first_binding_takes_five_clicks(browser: Browser, server: Served, tmp_path: Path) -> None:
    archive, signature = packed(server, tmp_path)
    context = browser.new_context()
    with server.client() as client:
        header = {"content-type": "application/gzip"}
        assert client.post("/v1/orgs", json={"id": "tea", "name": "Tea shop"}).status_code == 201
        signed = {"x-vai-signature": b64encode(signature.read_bytes()).decode()}
        added = client.post("/v1/plugin-packages", content=archive.read_bytes(), headers=header | signed)
        assert added.json()["status"] == "available"
        window = Window(context.new_page(), server, client)
        window.log_in()
        page = window.page
        page.click("text=Control plane")
        page.click("nav >> text=Bindings")
        page.click("text=New binding")
        page.get_by_label("Bind forecast of acme/weather 1.0.0").click()
        page.click("text=Save binding")
        expect(page.locator(".notice.good")).to_contain_text("forecast is bound for tea")
        listed = client.get("/v1/plugin-bindings").json()["items"]
        assert [each["export_id"] for each in listed] == ["forecast"] and window.complaints == []
    context.close()


def test_two_operators_and_one_binding(browser: Browser, server: Served, tmp_path: Path) -> None:
    archive, signature = packed(server, tmp_path)
    with server.client() as client:
        client.post("/v1/orgs", json={"id": "tea", "name": "Tea shop"})
        signed = {"x-vai-signature": b64encode(signature.read_bytes()).decode(), "content-type": "application/gzip"}
        client.post("/v1/plugin-packages", content=archive.read_bytes(), headers=signed)
        scope = {"package_id": "acme/weather", "package_version": "1.0.0", "scope": {"org_id": "tea"}}
        made = client.post("/v1/plugin-bindings", json={**scope, "export_id": "forecast"}).json()
        path = f"/v1/plugin-bindings/{made['binding_id']}"
        contexts = [browser.new_context() for _ in range(2)]
        windows = [Window(context.new_page(), server, client) for context in contexts]
        for window, city in zip(windows, ("Lima", "Oslo"), strict=True):
            window.log_in()
            window.open(f"/bindings/{made['binding_id']}")
            window.page.fill("[name='config:city']", city)
            window.page.locator("section:has(h2:text('Settings')) button").click()
            expect(window.page.locator("#review ins")).to_have_text(city)
        first, second = (window.page for window in windows)
        first.click("text=Save change")
        expect(first.locator(".notice.good")).to_contain_text("saved")
        second.click("text=Save change")
        expect(second.locator(".notice.warn")).to_contain_text("Another operator changed this binding")
        expect(second.locator("#review")).to_contain_text("theirs Lima yours Oslo")
        assert client.get(path).json()["config"] == {"city": "Lima"}
        second.click("text=Save change")
        expect(second.locator(".notice.good")).to_contain_text("saved")
        assert client.get(path).json()["config"] == {"city": "Oslo"}
        for context in contexts:
            context.close()


def test_the_value_of_a_secret_is_not_in_the_page_or_its_history(browser: Browser, server: Served) -> None:
    value = "correct-horse-battery-7"
    with logged_in(browser, server, viewport={"width": 390, "height": 800}) as window:
        page = window.page
        assert window.client.post("/v1/orgs", json={"id": "tea", "name": "Tea shop"}).is_success
        window.open("/orgs/tea")
        page.click(".ways >> text=Secrets")
        page.fill("#name", "jira_token")
        page.fill("#value", "x")
        page.click("text=Set secret")
        expect(page.locator("#value-hint strong")).to_be_visible()
        expect(page.locator("#name")).to_have_value("jira_token")
        expect(page.locator("#value")).to_have_value("")
        assert all("400 (Bad Request)" in said for said in window.complaints)
        window.complaints.clear()
        window.open("/secrets?org=tea")
        page.fill("#name", "jira_token")
        page.fill("#value", value)
        assert fits(window)
        page.click("text=Set secret")
        expect(page.locator(".notice.good")).to_contain_text("jira_token is set")
        assert value not in page.content() and value not in page.url
        page.go_back()
        expect(page.locator("h1")).to_have_text("Secrets")
        fields = page.evaluate("[...document.querySelectorAll('input')].map((field) => field.value)")
        assert value not in fields and value not in page.content()
        window.open("/secrets")
        page.click("text=jira_token")
        page.click("text=Delete…")
        expect(page.locator("h1")).to_have_text("Delete jira_token?")
        page.click("text=Delete the secret")
        expect(page.locator(".empty")).to_contain_text("No secrets yet")
        assert all(value not in line for line in server.log)
        assert window.complaints == []


def test_lists_follow_their_records_while_they_are_open(browser: Browser, tmp_path: Path) -> None:
    with showcase(tmp_path) as shown, logged_in(browser, shown.server) as window:
        page, client = window.page, window.client
        records = page.locator("#records tbody tr")
        session = shown.pages["session"].rpartition("/")[2]
        bindings = client.get("/v1/plugin-bindings").json()["items"]
        ids = {each["export_id"]: each["binding_id"] for each in bindings}
        invocation = {"binding_id": ids["orders"], "input": {"order": 99}}
        block = {"kind": "input", "content": [{"type": "text", "text": "Is there tea?"}]}
        run = {"session_id": session, "model": "local/m", "blocks": [block]}
        execution = {"binding_id": ids["drafts"], "session_id": session}
        for path, post, body, ended in (
            ("/invocations", "/v1/plugin-invocations", invocation, "succeeded"),
            ("/deliveries", f"/v1/plugin-bindings/{ids['audit']}:test-delivery", {}, "delivered"),
            ("/runs", "/v1/runs", run, "failed"),
            ("/harnesses", "/v1/harness-executions", execution, "succeeded"),
        ):
            window.open(path)
            before = records.count()
            page.fill("[name=search]", "half a wo")
            assert client.post(post, json=body).is_success
            expect(records).to_have_count(before + 1)
            expect(records.first.locator(".badge")).to_have_text(ended)
            assert page.evaluate("document.activeElement.value") == "half a wo", "a field that has the focus keeps it"
            with logged_in(browser, shown.server, java_script_enabled=False) as other:
                other.open(path)
                expect(other.page.locator("#records tbody tr")).to_have_count(before + 1)
        assert window.complaints == []
