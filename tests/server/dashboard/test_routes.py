"""Which page is where."""

from __future__ import annotations

from plugbay.server.app import ROUTERS
from plugbay.server.dashboard.routes import ROUTES


def test_no_page_stands_where_the_api_is() -> None:
    pages = {(method, route.path) for route in ROUTES for method in route.methods or ()}
    assert len(pages) == sum(len(route.methods or ()) for route in ROUTES)
    api = {route.path.split("/")[1] for router in ROUTERS for route in router.routes}  # type: ignore[attr-defined]
    assert {path.split("/")[1] for _, path in pages}.isdisjoint(api)


def test_what_changes_something_is_never_a_link() -> None:
    changing = {route.path for route in ROUTES if "POST" in (route.methods or ())}
    assert changing == {"/login", "/logout", "/plugins/{plugin_id:path}:{operation}", "/export"}
    assert all(not {"GET", "POST"} <= set(route.methods or ()) for route in ROUTES)
