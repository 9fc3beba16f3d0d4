"""`create_app`: the FastAPI application of a gateway, with a complete OpenAPI document.

Lists the routers and adds what all routes share: errors, authentication, idempotency, middleware. Handlers are in
`api.routes`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.telemetry import TelemetryConfig

from plugbay import __version__
from plugbay.server.api import errors
from plugbay.server.api.caller import NEEDS, RateLimits
from plugbay.server.api.direct import DirectRoutes
from plugbay.server.api.idempotency import LONGEST_KEY, MUTATING, IdempotentRoute, Router
from plugbay.server.api.middleware import HttpMiddleware, HttpSettings
from plugbay.server.api.route_table import RouteTable
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
    nodes,
    orgs,
    packages,
    runs,
    screens,
    secrets,
    sessions,
    trust,
)
from plugbay.server.dashboard.authentication import Dashboard, answer_unknown_path
from plugbay.server.dashboard.pages import login
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
    trust.router,
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
    host.memory_router,
    host.records_router,
    nodes.router,
    screens.router,
    login.router,
)
"""In the order of the OpenAPI document; the first matching route wins."""

OWN_SPANS_ONLY = TelemetryConfig(tracing=False, metrics=False, logs=False, operation_spans=False, auto_configure=False)
"""FastAPI's own telemetry would export paths, bodies and exception messages; we export less."""

_KEY_PARAMETER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same request with the same key is carried out once.",
    "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY, "pattern": "^[!-~]([ -~]*[!-~])?$"},
}


def create_app(gateway: Gateway, *, settings: HttpSettings | None = None) -> FastAPI:
    """The application for a gateway."""
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
    app.state.closing = asyncio.Event()  # set when the server stops
    rate, burst = gateway.settings.requests_per_second, gateway.settings.request_burst
    app.state.rates = RateLimits(gateway.clock, rate, burst, gateway.count_gateways)
    app.state.dashboard = Dashboard(gateway)
    # Not `include_router`: it copies every route, which takes a third of a second.
    app.router.routes.extend(route for router in ROUTERS for route in router.routes)
    app.router.routes.extend(PAGES)
    app.router.middleware_stack = RouteTable(app.router)
    errors.install_error_handlers(app)
    app.add_exception_handler(404, answer_unknown_path)
    app.add_middleware(
        HttpMiddleware,
        settings=settings or HttpSettings(),
        meters=gateway.meters,
        clock=gateway.clock,
        direct=DirectRoutes(app.routes),
        spans=_spans(gateway),
    )
    _extend_openapi(app)
    return app


def _spans(gateway: Gateway) -> RequestSpans | None:
    """Request spans, only if the host traces calls; OpenTelemetry is not loaded otherwise."""
    if gateway.host.tracer is None:
        return None
    from plugbay.server.api.request_spans import RequestSpans

    return RequestSpans(gateway.host.tracer)


def _extend_openapi(app: FastAPI) -> None:
    """Add permissions and `Idempotency-Key` to the OpenAPI document."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = plain()
            components = document.setdefault("components", {})
            components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            schemas = {**components.get("schemas", {}), **errors.error_schemas()}
            components["schemas"] = dict(sorted(schemas.items()))
            for path in document["paths"].values():
                for method, operation in path.items():
                    _extend_operation(method, operation)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _extend_operation(method: str, operation: dict[str, Any]) -> None:
    if NEEDS in operation:
        operation["security"] = [{"key": []}]
    if method.upper() in MUTATING:
        operation.setdefault("parameters", []).append(_KEY_PARAMETER)


def routes_without_idempotency(app: FastAPI) -> list[str]:
    """Routes that change something and whose requests cannot be repeated: there should be none."""
    routes = [route for route in app.routes if isinstance(route, APIRoute)]
    return [
        route.path
        for route in routes
        if not MUTATING.isdisjoint(route.methods or ()) and not isinstance(route, IdempotentRoute)
    ]
