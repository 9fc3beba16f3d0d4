"""Every link of every page leads to a page, from the overview on, and every `#` names something on it."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from urllib.parse import urldefrag, urljoin, urlsplit

import httpx2

from tests.support.showcase import showcase
from tests.support.tiers import exhaustive

LINK = re.compile(r'<(?:a|link|script|img)\b[^>]*? (?:href|src)="([^"]+)"')
MOST = 2_000
"""Pages of a showcase; more would be a page with a new link on each view."""


def broken_links(start: list[str], get: Callable[[str], httpx2.Response], most: int = MOST) -> list[str]:
    """Follow all links within the site; return those that do not work, with the page that has them."""
    found: dict[str, httpx2.Response] = {}
    asked = [(path, "the start") for path in start]
    broken = []
    while asked:
        link, page = asked.pop()
        path, place = urldefrag(link)
        if path not in found:
            assert len(found) < most, "the pages do not come to an end"
            found[path] = get(path)
            asked += [(each, path) for each in links_of(path, found[path])]
        answer = found[path]
        if answer.status_code != 200:
            broken.append(f"{page}: {link} is {answer.status_code}")
        elif place and f'id="{place}"' not in answer.text:
            broken.append(f"{page}: {link} names nothing on its page")
    return broken


def links_of(path: str, page: httpx2.Response) -> list[str]:
    """The links of a page to pages of the same site."""
    if not page.headers.get("content-type", "").startswith("text/html"):
        return []
    targets = [urljoin(path, unescape(each)) for each in LINK.findall(page.text)]
    return [target for target in targets if not urlsplit(target).netloc]


@exhaustive
def test_every_link_works(tmp_path: Path) -> None:
    with showcase(tmp_path) as shown, shown.server.client() as visitor:
        link = visitor.post("/api/v1/dashboard-links").json()["url"]
        del visitor.headers["authorization"]
        visitor.follow_redirects = True
        visitor.get(link).raise_for_status()
        assert broken_links(list(shown.pages.values()), visitor.get) == []


def test_a_link_that_leads_nowhere_is_found() -> None:
    site = {
        "/": '<a href="/a?x=1&amp;y=2#here">a</a> <a class="b" href="b">b</a> <a href="https://elsewhere.example/">c</a>',
        "/a?x=1&y=2": '<h1 id="here">a</h1> <a href="/#there">start</a>',
        "/b": '<img alt="" src="/lost.png">',
    }
    html = {"content-type": "text/html; charset=utf-8"}

    def get(path: str) -> httpx2.Response:
        return httpx2.Response(200 if path in site else 404, headers=html, text=site.get(path, ""))

    lost, nothing = "/b: /lost.png is 404", "/a?x=1&y=2: /#there names nothing on its page"
    assert sorted(broken_links(["/"], get)) == [nothing, lost]
