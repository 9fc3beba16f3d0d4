"""The table of routes leads where the router's own routes lead, tried one after the other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter
from starlette.routing import BaseRoute, Match, Route

from plugbay.server.api.route_table import RouteTable
from plugbay.server.app import create_app
from tests.support.gateways import gateway_at
from tests.support.loops import Run


def first_match(routes: list[BaseRoute], method: str, path: str) -> BaseRoute:
    scope = {"type": "http", "method": method, "path": path}
    return next(route for route in routes if route.matches(dict(scope))[0] == Match.FULL)


def test_every_path_without_parameters_leads_to_the_first_route_that_matches(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            router = create_app(gateway).router
            handled: list[BaseRoute] = []

            async def handle(self: Route, scope: Any, receive: Any, send: Any) -> None:
                assert scope["router"] is router and scope["path_params"] == {}
                handled.append(self)

            for kind in {type(route) for route in router.routes if isinstance(route, Route)}:
                monkeypatch.setattr(kind, "handle", handle)
            literal = [route for route in router.routes if isinstance(route, Route) and "{" not in route.path]
            assert len(literal) > 60
            table = RouteTable(router)
            monkeypatch.setattr(router, "app", None)  # the table asks it for none of these
            for route in literal:
                for method in route.methods or ():
                    await table({"type": "http", "method": method, "path": route.path}, None, None)  # type: ignore[arg-type]
                    assert handled.pop() is first_match(router.routes, method, route.path), (method, route.path)

    run(main)


@pytest.mark.parametrize(
    ("method", "path", "more", "found"),
    [
        ("GET", "/a", {}, "literal"),
        ("GET", "/b", {}, "any"),
        ("GET", "/c/d", {}, "any of c"),
        ("DELETE", "/a", {}, "any"),
        ("GET", "/root/a", {"root_path": "/root"}, "literal"),
        ("POST", "/b", {}, "405"),
    ],
)
def test_an_earlier_route_with_parameters_and_another_method_or_prefix_count_as_in_the_router(
    method: str, path: str, more: dict[str, str], found: str
) -> None:
    def answering(name: str) -> Any:
        async def endpoint(scope: Any, receive: Any, send: Any) -> None:
            await send(name)

        return endpoint

    async def main(use_table: bool) -> list[Any]:
        router = APIRouter()
        for name, at, methods in (
            ("literal", "/a", ["GET"]),
            ("any of c", "/c/{id}", ["GET"]),
            ("shadowed", "/c/d", ["GET"]),
            ("any", "/{id}", ["GET", "DELETE"]),
        ):
            route = Route(at, answering(name), methods=methods)
            route.app = answering(name)
            router.routes.append(route)
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message if isinstance(message, str) else str(message.get("status", "")))

        app = RouteTable(router) if use_table else router.app
        await app({"type": "http", "method": method, "path": path, "headers": [], **more}, None, send)  # type: ignore[arg-type]
        return sent

    with_table, without = asyncio.run(main(True)), asyncio.run(main(False))
    assert with_table == without and with_table[0] == found
