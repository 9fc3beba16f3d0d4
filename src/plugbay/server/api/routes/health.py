"""Is it alive, is it ready, and what has it counted? The first two need no key."""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response
from pydantic import Field

from plugbay.server.api import metrics
from plugbay.server.api.caller import TheGateway, needs
from plugbay.server.api.idempotency import Router
from plugbay.server.api.models import Answer
from plugbay.server.domain.principal import HOST

router = Router(tags=["health"])


class Live(Answer):
    status: str


class Ready(Answer):
    ready: bool
    checks: dict[str, str] = Field(description="`ok` for each thing that is needed, or why it is not.")


@router.get("/livez")
async def livez() -> Live:
    """The process answers."""
    return Live(status="alive")


@router.get("/readyz", responses={503: {"model": Ready, "description": "Not yet, or not any more."}})
async def readyz(request: Request, response: Response, gateway: TheGateway) -> Ready:
    """Whether requests would be answered well, and if not, for want of what."""
    stopping = request.app.state.closing.is_set()
    checks = {**await gateway.checks(), "server": "stopping" if stopping else "ok"}
    ready = all(text == "ok" for text in checks.values())
    response.status_code = 200 if ready else 503
    return Ready(ready=ready, checks=checks)


@router.get("/metrics", response_class=Response, responses=metrics.TEXT, **needs(HOST))
async def get_metrics(gateway: TheGateway) -> Any:
    """For Prometheus."""
    return Response(metrics.rendered(gateway), media_type=metrics.MEDIA_TYPE)
