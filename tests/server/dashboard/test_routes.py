"""Which pages are public, and which methods change something."""

from __future__ import annotations

from pathlib import Path

from plugbay.server.app import ROUTERS
from plugbay.server.dashboard.authentication import CONTROL
from plugbay.server.dashboard.routes import ROUTES
from tests.support.dashboards import stranger_to
from tests.support.gateways import gateway_at
from tests.support.loops import Run


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
    publishers = {"/publishers", "/publishers/{key_id}:revoke"}
    assert changing - control - publishers == {"/login", "/logout", "/plugins/{plugin_id:path}:{operation}", "/export"}
    assert all(not {"GET", "POST"} <= set(route.methods or ()) for route in ROUTES)
