"""Refuses query parameters that a route does not declare: a misspelt filter must not return everything.

The known parameters are those of the handler's own signature and of its dependencies, so a new route needs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from plugbay.server.api.caller import NEEDS, authenticate
from plugbay.server.domain.errors import invalid

if TYPE_CHECKING:
    from fastapi.dependencies.models import Dependant

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def known_parameters(dependant: Dependant) -> list[str]:
    """The names of the query parameters of a handler and its dependencies."""
    names = {field.alias for field in dependant.query_params}
    for each in dependant.dependencies:
        names.update(known_parameters(each))
    return sorted(names)


def refuse_unknown_parameters(route: APIRoute, handler: Handler) -> Handler:
    """The handler for requests with known query parameters only."""
    known = known_parameters(route.dependant)
    has_caller = NEEDS in (route.openapi_extra or {})

    async def checked(request: Request) -> Response:
        query: bytes = request.scope["query_string"]
        if query:
            given = [name for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True)]
            unknown = next((name for name in given if name not in known), None)
            if unknown is not None:
                if has_caller:
                    await authenticate(request)
                have = f"it has {', '.join(known)}" if known else "it has none"
                text = f"this route has no query parameter {unknown!r:.80}; {have}"
                raise invalid("request.unknown_parameter", text, unknown[:80], known=known)
        return await handler(request)

    return checked
