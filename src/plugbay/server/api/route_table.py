"""`RouteTable`: finds the route of a path without parameters in a dict, and leaves other paths to the router.

A router tries its routes one after the other, a few microseconds each, and a server has more than a hundred. The result
is the same: the table is filled by asking the router's own routes, in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fastapi import APIRouter
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send


class RouteTable:
    """The routes that a router has now, as an ASGI application."""

    def __init__(self, router: APIRouter) -> None:
        self._router = router
        self._routes = dict(_find_literal(router.routes))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request; one with another method or a path prefix too, as the router does."""
        route = None if scope.get("root_path") else self._routes.get((scope.get("method"), scope.get("path")))
        if route is None:
            return await self._router.app(scope, receive, send)
        scope["router"] = self._router
        scope.update(route.matches(scope)[1])
        await route.handle(scope, receive, send)


def _find_literal(routes: Sequence[BaseRoute]) -> Iterator[tuple[tuple[str | None, str | None], BaseRoute]]:
    """The first route that serves each method and path of the routes without parameters."""
    for route in routes:
        if isinstance(route, Route) and not route.param_convertors:
            for method in route.methods or ():
                scope = {"type": "http", "method": method, "path": route.path}
                yield (
                    (method, route.path),
                    next(each for each in routes if each.matches(dict(scope))[0] == Match.FULL),
                )
