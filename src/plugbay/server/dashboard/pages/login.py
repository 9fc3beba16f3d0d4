"""Login and logout, and the API route that makes a login link."""

from __future__ import annotations

from pydantic import Field
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from plugbay.server.api.caller import LONGEST_TOKEN, TheGateway, admit, bearer_token, needs
from plugbay.server.api.idempotency import Router, shown_once
from plugbay.server.api.models import Answer
from plugbay.server.dashboard import rendering
from plugbay.server.dashboard.authentication import (
    ANY_PERSON,
    CODE_SECONDS,
    Visit,
    cookie_name,
    dashboard_of,
    is_same_origin,
    local_path,
    login_page,
    read_form,
    require_session,
    set_session_cookie,
)
from plugbay.server.domain.clock import stamp
from plugbay.server.domain.errors import GatewayError, unauthenticated


async def follow_link(request: Request) -> Response:
    """Log in with a one-time link. Ignores other sites, prefetches and HEAD requests, which must not use it up."""
    code = request.path_params["code"]
    if not is_same_origin(request.headers) or request.method == "HEAD":
        return rendering.page("again.html")
    dashboard = dashboard_of(request)
    dashboard.sessions.count_attempt()
    await dashboard.sessions.fetch_code(code)
    token = dashboard.sessions.redeem(code)
    if token is None:
        return login_page(request, 401, "This link was already used, or it has expired.")
    return await _start_session(request, token, "/")


async def log_in_with_token(request: Request) -> Response:
    """Log in with a pasted token."""
    form = await read_form(request)
    dashboard_of(request).sessions.count_attempt()
    token, goes_to = ("".join(form.get(name, ())[:1]).strip() for name in ("token", "goes_to"))
    try:
        if not token or len(token) > LONGEST_TOKEN:
            raise unauthenticated("auth.key_unknown", "this key is unknown")
        return await _start_session(request, token, local_path(goes_to))
    except GatewayError as error:
        if error.status != 401:
            raise
        return login_page(request, 401, f"{error.message[:1].upper()}{error.message[1:]}.")


async def _start_session(request: Request, token: str, goes_to: str) -> Response:
    """Start a session with the rights of this token; raises for invalid tokens and for plugins."""
    principal = await admit(request, token)
    refusal = principal.lacks((ANY_PERSON,))
    if refusal is not None:
        raise refusal
    sessions = dashboard_of(request).sessions
    sessions.end(request.cookies.get(cookie_name(request), ""))
    cookie, _ = sessions.begin(token)
    await sessions.save()
    response = RedirectResponse(goes_to, 303, rendering.HEADERS)
    set_session_cookie(request, response, cookie)
    return response


@require_session(ANY_PERSON)
async def log_out(visit: Visit) -> Response:
    """End the session on the server and delete the cookie."""
    name = cookie_name(visit.request)
    visit.dashboard.sessions.end(visit.request.cookies[name])
    await visit.dashboard.sessions.save()
    response = RedirectResponse("/", 303, rendering.HEADERS)
    response.delete_cookie(name, path="/", httponly=True, samesite="strict")
    return response


router = Router(tags=["dashboard"])


class LinkOut(Answer):
    url: str | None = Field(description="Logs a browser in, once; null when the answer is a repetition.")
    expires_at: str


@router.post("/api/v1/dashboard-links", status_code=201, **needs("viewer"))
@shown_once("url")
async def create_dashboard_link(request: Request, gateway: TheGateway) -> LinkOut:
    """A link that logs a browser into the dashboard once, with the rights of the caller's key."""
    url = await dashboard_of(request).link(str(request.base_url), bearer_token(request))
    return LinkOut(url=url, expires_at=stamp(gateway.clock.now() + CODE_SECONDS))
