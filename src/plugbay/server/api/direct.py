"""`direct`: handlers that are called without FastAPI, because its layers take longer than the handler.

    @router.post("/v1/plugin-invocations", …)
    @direct(bind)                        `bind` makes the arguments of the handler from the request
    async def invoke(…): …

FastAPI knows the route as well: it is in the OpenAPI document, and FastAPI handles requests that `bind` does not take.
The middleware answers errors, as it does for all routes.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from fastapi import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

Bind = Callable[[Request], Coroutine[Any, Any, tuple[Any, ...] | None]]
"""Makes the arguments of a handler."""
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


def direct(bind: Bind) -> Callable[[Endpoint], Endpoint]:
    """Mark a handler whose arguments `bind` makes.

    `bind` checks the permissions of the route. It returns None for a request with invalid fields: FastAPI reports what
    is wrong with it.
    """

    def mark(endpoint: Endpoint) -> Endpoint:
        endpoint.__dict__["bind"] = bind
        return endpoint

    return mark


class DirectRoutes:
    """The routes of handlers with this mark; their paths have no parameters."""

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        self._routes = {
            (method, route.path): (route, route.endpoint.__dict__["bind"])
            for route in routes
            if isinstance(route, Route) and "bind" in getattr(route.endpoint, "__dict__", {})
            for method in route.methods or ()
        }

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Answer the request; False if FastAPI has to. Requests with a query or an `Idempotency-Key` are FastAPI's."""
        found = self._routes.get((scope["method"], scope["path"]))
        if found is None or scope["query_string"] or any(name == b"idempotency-key" for name, _ in scope["headers"]):
            return False
        route, bind = found
        scope["route"] = route
        arguments = await bind(Request(scope, receive, send))
        if arguments is None:
            return False
        response: Response = await route.endpoint(*arguments)
        await response(scope, receive, send)
        return True
