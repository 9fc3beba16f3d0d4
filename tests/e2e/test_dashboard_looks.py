"""Every page of the dashboard in a real browser: wide, narrow, dark, by keyboard; and checked by axe-core."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from plugbay.server.dashboard.routes import ROUTES
from tests.support.browser import Window, browser, logged_in
from tests.support.showcase import CLUSTER_PAGES, PAGES, Showcase, cluster_showcase, showcase
from tests.support.tiers import exhaustive

__all__ = ["browser"]

AXE = Path(__file__).parents[2] / ".peers/node_modules/axe-core/axe.min.js"

LOOKS: dict[str, dict[str, Any]] = {
    "wide": {"viewport": {"width": 1280, "height": 800}},
    "narrow": {"viewport": {"width": 390, "height": 844}, "has_touch": True},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
}

WITHOUT_PAGE = re.compile(r"/(live|static)/|/login")
"""Paths of streams, files and the way in."""


def open_try(window: Window) -> None:
    """A call that runs and has reported progress. A call belongs to the session that made it."""
    window.open("/export?export=kettle/boil")
    window.page.click("summary:has-text('Timeout')")
    window.page.fill("#timeout", "600")
    window.page.click("button.primary")
    expect(window.page.locator("#pieces li")).to_have_count(3)
    expect(window.page.locator("#try .badge")).to_have_text("running")


def open_recording(window: Window) -> None:
    """A recording of one call, read to its end."""
    window.open("/wire?plugin=example.greeter")
    window.page.click("button:has-text('Record')")
    call = {"export": "example.greeter/greet", "input": {"name": "Ada"}}
    assert window.client.post("/api/v1/calls", json=call).is_success
    window.page.click("button:has-text('End the recording')")
    window.page.locator("a[href^='/recordings/']").first.click()
    expect(window.page.locator("ol.lines li").nth(3)).to_be_visible()


MADE: dict[str, Callable[[Window], None]] = {"/tries/{try_id}": open_try, "/recordings/{name}": open_recording}
"""Pages that a visit itself makes, by their routes."""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Showcase]:
    with showcase(tmp_path_factory.mktemp("showcase")) as shown:
        yield shown


@pytest.fixture(scope="module", params=LOOKS)
def window(request: pytest.FixtureRequest, browser: Browser, shown: Showcase) -> Iterator[Window]:
    with logged_in(browser, shown.server, **LOOKS[request.param]) as window:
        yield window


@exhaustive
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_its_window_and_has_no_findings_of_axe(window: Window, shown: Showcase, name: str) -> None:
    window.complaints.clear()
    window.open(shown.pages[name])
    check_looks(window, name)


@pytest.fixture(scope="module")
def clustered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Showcase]:
    with cluster_showcase(tmp_path_factory.mktemp("cluster")) as shown:
        yield shown


@exhaustive
@pytest.mark.parametrize("look", LOOKS)
def test_pages_with_nodes_fit_their_windows_and_have_no_findings_of_axe(
    browser: Browser, clustered: Showcase, look: str
) -> None:
    with logged_in(browser, clustered.server, **LOOKS[look]) as window:
        for name in CLUSTER_PAGES:
            window.open(clustered.pages[name])
            expect(window.page.locator("nav a[href='/nodes']")).to_have_count(1)
            assert re.search(r"\bn[12]\b", window.page.inner_text("main"))
            check_looks(window, name)


@exhaustive
@pytest.mark.parametrize("route", MADE)
def test_a_page_that_a_visit_makes_fits_its_window_and_has_no_findings_of_axe(window: Window, route: str) -> None:
    window.complaints.clear()
    MADE[route](window)
    check_looks(window, route)
    for opened in window.page.locator("ol.lines summary").all()[:3]:
        opened.click()
    assert findings(window) == []
    if route == "/tries/{try_id}":
        window.page.click("button:has-text('Cancel')")
        expect(window.page.locator("#try .badge")).to_have_text("cancelled")
        assert findings(window) == []


def check_looks(window: Window, name: str) -> None:
    assert window.page.title().endswith(" · plugbay")
    width = window.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert width <= 0, f"{name} is {width} pixels too wide"
    assert findings(window) == []
    assert window.complaints == []


@exhaustive
@pytest.mark.parametrize("name", PAGES)
def test_all_that_can_be_clicked_is_reached_by_tab(browser: Browser, shown: Showcase, name: str) -> None:
    with logged_in(browser, shown.server, **LOOKS["wide"]) as window:
        window.open(shown.pages[name])
        page = window.page
        count = page.evaluate(MARK_REACHABLE)
        assert count > 0
        for _ in range(3 * count + 10):
            page.keyboard.press("Tab")
            page.evaluate("document.activeElement.dataset.reached = 'yes'")
        missed = page.evaluate(
            "[...document.querySelectorAll('[data-reachable]:not([data-reached])')].map(e => e.outerHTML)"
        )
        assert missed == []


@exhaustive
def test_findings_of_axe_are_seen(window: Window, shown: Showcase) -> None:
    """The control: a field without a label."""
    window.open(shown.pages["plugins"])
    window.page.evaluate("document.querySelector('main').insertAdjacentHTML('beforeend', '<input type=text>')")
    assert [found.split(":")[0] for found in findings(window)] == ["label"]


def test_each_route_is_among_the_pages() -> None:
    """No page is left out: the path of each route that shows one matches a page of the showcase."""
    routes = [route for route in ROUTES if "GET" in (route.methods or ()) and not WITHOUT_PAGE.match(route.path)]
    paths = [path.partition("?")[0] for path in PAGES.values()]
    missing = {route.path for route in routes if not any(route.path_regex.match(path) for path in paths)}
    assert missing == set(MADE)


MARK_REACHABLE = """() => {
  const found = [...document.querySelectorAll('a[href], button, input, select, textarea, summary')]
    .filter((e) => e.type !== 'hidden' && !e.disabled && e.checkVisibility() && !e.closest('[tabindex="-1"]'));
  found.forEach((e) => { e.dataset.reachable = 'yes'; });
  return found.length;
}"""


def findings(window: Window) -> list[str]:
    """The violations that axe-core finds on the page: rule, help and elements."""
    page = window.page
    page.evaluate(f"() => {{ {AXE.read_text()} }}")
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{violation['id']}: {violation['help']}: {[node['html'] for node in violation['nodes']][:5]}"
        for violation in found["violations"]
    ]
