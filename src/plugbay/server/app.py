"""`create_app`: the whole HTTP surface of a gateway, and an OpenAPI document that is true.

Owns which routers there are and what all routes have in common. What a route does is in `routes`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.telemetry import TelemetryConfig

from plugbay import __version__
from plugbay.server.api import errors
from plugbay.server.api.caller import NEEDS, Rates
from plugbay.server.api.idempotency import LONGEST_KEY, MUTATING, Once, Router
from plugbay.server.api.middleware import Edge, EdgeSettings
from plugbay.server.api.routes import (
    bindings,
    compactions,
    deliveries,
    harnesses,
    health,
    host,
    invocations,
    keys,
    marketplace,
    orgs,
    packages,
    runs,
    secrets,
    sessions,
)
from plugbay.server.dashboard import login
from plugbay.server.dashboard.authentication import Dashboard
from plugbay.server.dashboard.routes import ROUTES as PAGES
from plugbay.server.domain.gateway import Gateway

if TYPE_CHECKING:
    from plugbay.server.api.request_spans import RequestSpans

ROUTERS: tuple[Router, ...] = (
    health.router,
    orgs.router,
    keys.router,
    packages.router,
    bindings.router,
    packages.exports_router,
    secrets.router,
    invocations.router,
    marketplace.router,
    sessions.router,
    sessions.chains_router,
    runs.router,
    compactions.router,
    harnesses.router,
    deliveries.router,
    host.router,
    host.records_router,
    login.router,
)
"""In the order of the document; of two routes that match, the first is taken."""

STRAIGHT = {("POST", invocations.INVOKE): invocations.straight}
"""What answers these without FastAPI, as long as there is nothing unusual about them."""

OWN_SPANS_ONLY = TelemetryConfig(tracing=False, metrics=False, logs=False, operation_spans=False, auto_configure=False)
"""FastAPI would tell a collector paths, what it makes of bodies, and messages of exceptions; we say less ourselves."""

_KEY_PARAMETER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same request with the same key is carried out once.",
    "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY, "pattern": "^[!-~]+$"},
}


def create_app(gateway: Gateway, *, settings: EdgeSettings | None = None) -> FastAPI:
    """The application for a gateway that was started, or soon will be."""
    app = FastAPI(
        title="plugbay",
        version=__version__,
        summary="Plugins of AI agents: packages, bindings, invocations, conversations.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=OWN_SPANS_ONLY,
    )
    app.state.gateway = gateway
    app.state.closing = asyncio.Event()  # set when the server is about to stop
    app.state.rates = Rates(gateway.clock, gateway.settings.requests_per_second, gateway.settings.request_burst)
    app.state.dashboard = Dashboard(gateway)
    # Not `include_router`: it would make every route anew for this application, which takes a third of a second.
    app.router.routes.extend(route for router in ROUTERS for route in router.routes)
    app.router.routes.extend(PAGES)
    errors.install(app)
    app.add_middleware(
        Edge,
        settings=settings or EdgeSettings(),
        meters=gateway.meters,
        clock=gateway.clock,
        straight=STRAIGHT,
        spans=_spans(gateway),
    )
    _say_more(app)
    return app


def _spans(gateway: Gateway) -> RequestSpans | None:
    """Requests are spans where the host's calls are; OpenTelemetry is loaded for nobody else."""
    if gateway.host.tracer is None:
        return None
    from plugbay.server.api.request_spans import RequestSpans

    return RequestSpans(gateway.host.tracer)


def _say_more(app: FastAPI) -> None:
    """What FastAPI cannot know: who may ask, and that requests can be repeated."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = plain()
            document.setdefault("components", {})["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            for path in document["paths"].values():
                for method, operation in path.items():
                    _extend(method, operation)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _extend(method: str, operation: dict[str, Any]) -> None:
    if NEEDS in operation:
        operation["security"] = [{"key": []}]
    if method.upper() in MUTATING:
        operation.setdefault("parameters", []).append(_KEY_PARAMETER)


def unrepeatable(app: FastAPI) -> list[str]:
    """Routes that change something and whose requests cannot be repeated: there should be none."""
    routes = [route for route in app.routes if isinstance(route, APIRoute)]
    return [
        route.path for route in routes if not MUTATING.isdisjoint(route.methods or ()) and not isinstance(route, Once)
    ]
