"""Coming in and going out: a one-time link, a token that was pasted, logging out.

Owns when a session begins and ends. A code is hidden from the log of requests, for it may still be good.
"""

from __future__ import annotations

from pydantic import Field
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from plugbay.server.api.caller import LONGEST_TOKEN, TheGateway, admitted, needs, token_of
from plugbay.server.api.idempotency import Router, shown_once
from plugbay.server.api.models import Answer
from plugbay.server.dashboard import rendering
from plugbay.server.dashboard.authentication import (
    AS_PERSON,
    CODE_SECONDS,
    Visit,
    cookie_name,
    dashboard_of,
    filled_form,
    is_own,
    keep_cookie,
    local_path,
    login_page,
    visitors,
)
from plugbay.server.domain.clock import stamp
from plugbay.server.domain.errors import GatewayError, unauthenticated

LINK_PATH = "/login/{code}"
"""What the log of requests has for every link."""


async def follow_link(request: Request) -> Response:
    """A one-time link. Only whoever types or opens it logs in, never a page that leads here or a program that looks."""
    code = request.path_params["code"]
    request.scope["path"] = LINK_PATH
    if not is_own(request.headers) or request.method == "HEAD":
        return rendering.page("again.html")
    dashboard = dashboard_of(request)
    dashboard.sessions.tried()
    token = dashboard.sessions.redeem(code)
    if token is None:
        return login_page(request, 401, "This link was used already, or it is too old.")
    return await _come_in(request, token, "/")


async def give_token(request: Request) -> Response:
    """A token that somebody has pasted."""
    form = await filled_form(request)
    dashboard_of(request).sessions.tried()
    token, goes_to = ("".join(form.get(name, ())[:1]).strip() for name in ("token", "goes_to"))
    try:
        if not token or len(token) > LONGEST_TOKEN:
            raise unauthenticated("auth.key_unknown", "this key is not known here")
        return await _come_in(request, token, local_path(goes_to))
    except GatewayError as error:
        if error.status != 401:
            raise
        return login_page(request, 401, f"{error.message[:1].upper()}{error.message[1:]}.")


async def _come_in(request: Request, token: str, goes_to: str) -> Response:
    """A session with the rights of this token; raises when it has none, and when it is a plugin's."""
    principal = await admitted(request, token)
    refusal = principal.lacks((AS_PERSON,))
    if refusal is not None:
        raise refusal
    sessions = dashboard_of(request).sessions
    sessions.end(request.cookies.get(cookie_name(request), ""))
    cookie, _ = sessions.begin(token)
    response = RedirectResponse(goes_to, 303, rendering.HEADERS)
    keep_cookie(request, response, cookie)
    return response


@visitors(AS_PERSON)
async def log_out(visit: Visit) -> Response:
    """The end of a session, on the server too."""
    name = cookie_name(visit.request)
    visit.dashboard.sessions.end(visit.request.cookies[name])
    response = RedirectResponse("/", 303, rendering.HEADERS)
    response.delete_cookie(name, path="/", httponly=True, samesite="strict")
    return response


async def show_asset(request: Request) -> Response:
    """A file that pages load; everybody may, for the page to log in needs them too."""
    return rendering.asset(request.path_params["name"]) or Response(status_code=404, headers=rendering.HEADERS)


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
