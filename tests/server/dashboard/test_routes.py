"""Which pages are public, and which methods change something."""

from __future__ import annotations

import re
from pathlib import Path

from plugbay.server.app import ROUTERS
from plugbay.server.dashboard.authentication import CONTROL
from plugbay.server.dashboard.routes import ROUTES
from plugbay.server.domain.settings import GatewaySettings
from tests.support.dashboards import stranger_to, visitor_of
from tests.support.gateways import gateway_at, make_org
from tests.support.loops import Run
from tests.support.packaged import Publisher, bind
from tests.support.tiers import exhaustive


def test_only_static_files_are_public(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, stranger_to(gateway) as visitor:
            for name in ("style.css", "script.js", "icon.svg"):
                found = await visitor.get(f"/static/{name}")
                assert found.status_code == 200 and found.headers["x-content-type-options"] == "nosniff"
            for name in ("door.py", "..%2fdoor.py", "style"):
                assert (await visitor.get(f"/static/{name}")).status_code == 404

    run(main)


def test_no_page_stands_where_the_api_is() -> None:
    pages = {(method, route.path) for route in ROUTES for method in route.methods or ()}
    assert len(pages) == sum(len(route.methods or ()) for route in ROUTES)
    api = {route.path.split("/")[1] for router in ROUTERS for route in router.routes}  # type: ignore[attr-defined]
    assert {path.split("/")[1] for _, path in pages}.isdisjoint(api)


def test_what_changes_something_is_never_a_link() -> None:
    changing = {route.path for route in ROUTES if "POST" in (route.methods or ())}
    control = {path for path in changing if path.startswith(CONTROL)}
    cluster = {"/nodes/{node}:{operation}"}
    operator = {"/publishers", "/publishers/{key_id}:revoke", "/servers", "/servers/{name}:remove"}
    assert changing - control - operator - cluster == {
        "/login",
        "/logout",
        "/plugins",
        "/plugins/{plugin_id:path}:{operation}",
        "/settings",
        "/wire",
        "/export",
        "/tries/{try_id}:cancel",
        "/screen",
        "/command",
    }
    assert all(not {"GET", "POST"} <= set(route.methods or ()) for route in ROUTES)


def test_every_page_of_the_control_plane_names_its_fields_and_repeats_no_id(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            await make_org(gateway)
            package = await Publisher(tmp_path, tmp_path).bring(gateway)
            binding = await bind(gateway, package)
            lists = [path for path in CONTROL if path != "/chains"]
            detail = [
                "/orgs/org_1",
                f"/packages/{package.id}",
                f"/bindings/{binding.id}",
                f"/bindings/{binding.id}?as=json",
            ]
            forms = [f"/bindings/new?package={package.id}&export=t", "/bindings/new", "/publishers", CARD]
            for path in (*lists, *detail, *forms, "/audit?verify=1"):
                page = await visitor.get(path)
                assert page.status_code == 200, path
                assert markup_problems(page.text) == [], path

    run(main)


CARD = "/install/thread-weave"

FIELDS = re.compile(r"<(?:input|select|textarea)\b[^>]*>")


def markup_problems(text: str) -> list[str]:
    """Ids that are there twice, labels without a field, fields without a label, and pages without one heading."""
    ids = re.findall(r'\sid="([^"]*)"', text)
    found = [f"twice: {id}" for id in ids if ids.count(id) > 1]
    found += [f"label of nothing: {id}" for id in re.findall(r'<label for="([^"]*)"', text) if id not in ids]
    found += [f"hint of nothing: {id}" for id in re.findall(r'aria-describedby="([^"]*)"', text) if id not in ids]
    labelled = set(re.findall(r'<label for="([^"]*)"', text))
    inside = " ".join(re.findall(r"<label\b.*?</label>", text, re.S))
    for tag in FIELDS.findall(text):
        id = next(iter(re.findall(r'\sid="([^"]*)"', tag)), "")
        if 'type="hidden"' not in tag and id not in labelled and tag not in inside:
            found.append(f"without a label: {tag}")
    return found + ([] if text.count("<h1") == 1 else ["not one heading"])


def test_problems_of_markup_are_found() -> None:
    own = '<label for="a">A</label><input id="a" aria-describedby="h"><p id="h"></p>'
    good = f'<h1>x</h1>{own}<label>B <input name="b"></label>'
    assert markup_problems(good) == []
    for bad in (
        '<p id="a"></p>',
        '<label for="z"></label>',
        '<select name="c">',
        '<i aria-describedby="q">',
        "<h1>y</h1>",
    ):
        assert markup_problems(good + bad), bad


JUNK = ("%ff%fe", "x" * 3_000, "'%22%25_%5C", "%F0%9F%8D%B5", "-1", "99999999999999999999", "%5B%7B")
QUERIES = (
    "search",
    "org",
    "project",
    "kind",
    "status",
    "binding",
    "since",
    "cursor",
    "after",
    "action",
    "subject",
    "as",
)

FORMS: tuple[dict[str, str], ...] = (
    {},
    {"confirm": "yes", "document": "{", "base": "{", "revision": "x", "part": "traffic", "traffic_percent": "\u0661"},
    {"confirm": "yes", "document": '{"scope": 1, "config": []}', "base": '{"config": 1}', "revision": "9" * 50},
    {"part": "settings", "config_json": "[" * 5_000, "policy:timeout_ms": "1e9", "package_version": "\u202e"},
    {"name": "x" * 5_000, "id": "..", "org": "../..", "role": "king", "expires": "9999-99-99", "source": "oci://"},
    {"publisher": "\u202e", "public_key": "-----BEGIN", "other_keys": "all", "consent": "yes", "digest": "\ud7ff"},
)


@exhaustive
def test_no_page_of_the_control_plane_breaks_whatever_is_sent_to_it(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        settings = GatewaySettings(tmp_path, requests_per_second=1e6, request_burst=1_000_000)
        async with gateway_at(sqlite_url, tmp_path, settings=settings) as gateway, visitor_of(gateway) as visitor:
            await make_org(gateway)
            package = await Publisher(tmp_path, tmp_path).bring(gateway)
            binding = await bind(gateway, package)
            known = {"org_id": "org_1", "package": package.id, "binding_id": binding.id, "card_id": "thread-weave"}
            pages = [route for route in ROUTES if route.path.startswith((*CONTROL, "/publishers"))]
            for route in pages:
                path = re.sub(r"{(\w+)}", lambda found: known.get(found[1], "none"), route.path)
                if "POST" in (route.methods or ()):
                    answers = [await visitor.post(path, form) for form in FORMS]
                else:
                    answers = [await visitor.get(f"{path}?{name}={junk}") for name in QUERIES[:4] for junk in JUNK]
                    answers += [await visitor.get(f"{path}?{name}={JUNK[at % 7]}") for at, name in enumerate(QUERIES)]
                assert [answer.status_code for answer in answers if answer.status_code >= 500] == [], path

    run(main)
