"""One-time links into the dashboard, for whoever has a key: `plugbay dashboard` asks for one."""

from __future__ import annotations

from fastapi import Request
from pydantic import Field

from plugbay.server.api.caller import TheGateway, needs, token_of
from plugbay.server.api.idempotency import Router, shown_once
from plugbay.server.api.models import Answer
from plugbay.server.dashboard.door import dashboard_of
from plugbay.server.dashboard.sessions import CODE_SECONDS
from plugbay.server.domain.clock import stamp

router = Router(tags=["dashboard"])


class LinkOut(Answer):
    url: str | None = Field(description="Logs a browser in, once; null when the answer is a repetition.")
    expires_at: str


@router.post("/api/v1/dashboard-links", status_code=201, **needs("viewer"))
@shown_once("url")
async def create_dashboard_link(request: Request, gateway: TheGateway) -> LinkOut:
    """A link that logs a browser into the dashboard once, with the rights of the caller's key."""
    url = dashboard_of(request).link(str(request.base_url), token_of(request))
    return LinkOut(url=url, expires_at=stamp(gateway.clock.now() + CODE_SECONDS))
