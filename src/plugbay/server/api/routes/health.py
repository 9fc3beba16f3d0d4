"""Liveness, readiness and Prometheus metrics. The first two need no key."""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response
from pydantic import Field

from plugbay.server.api.caller import TheGateway, needs
from plugbay.server.api.idempotency import Router
from plugbay.server.api.models import Answer
from plugbay.server.domain.principal import HOST

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

METRICS_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"description": "Text of Prometheus.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}

router = Router(tags=["health"])


class Live(Answer):
    status: str


class Ready(Answer):
    ready: bool
    checks: dict[str, str] = Field(description="`ok` for each check, or the problem.")


@router.get("/livez")
async def livez() -> Live:
    """The process answers."""
    return Live(status="alive")


@router.get(
    "/readyz", responses={503: {"model": Ready, "description": "The server is starting, stopping or not healthy."}}
)
async def readyz(request: Request, response: Response, gateway: TheGateway) -> Ready:
    """Whether the server is ready, and which checks fail."""
    stopping = request.app.state.closing.is_set()
    checks = {**await gateway.checks(), "server": "stopping" if stopping else "ok"}
    ready = all(text == "ok" for text in checks.values())
    response.status_code = 200 if ready else 503
    return Ready(ready=ready, checks=checks)


@router.get("/metrics", response_class=Response, responses=METRICS_RESPONSE, **needs(HOST))
async def get_metrics(gateway: TheGateway) -> Any:
    """For Prometheus."""
    from plugbay.server.api.metrics import render_metrics

    return Response(render_metrics(gateway), media_type=METRICS_TYPE)
