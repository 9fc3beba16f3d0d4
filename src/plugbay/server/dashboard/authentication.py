"""Who comes in: a visitor with a session, and a request that one of our own pages made.

    @visitors(HOST)
    async def plugins(visit: Visit) -> Response: ...

Owns the cookie, what is asked of every form, and that errors are pages too. What the token behind a session may do is
asked where the API asks it (`caller.admitted`, `Principal.lacks`), at every request.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from plugbay.host.rate import Bucket
from plugbay.server.api.caller import admitted
from plugbay.server.api.errors import as_gateway_error
from plugbay.server.api.middleware import media_type
from plugbay.server.dashboard import rendering
from plugbay.server.dashboard.loader import Looks
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.errors import GatewayError, denied, invalid, too_many
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.principal import HOST, Principal
from plugbay.store.failures import StoreUnavailable

CODE_SECONDS = 600.0
"""That a one-time link is good for: from a terminal to a browser, with something in between."""

MAX_CODES = 16
"""Links that wait to be opened; the oldest gives way."""

SESSION_SECONDS = 12 * 3600.0
"""A working day. Sessions are not made longer by being used: a browser that is left open is locked overnight."""

MAX_SESSIONS = 64
"""Browsers at a time; the one that logged in first gives way."""

TRIES_AT_ONCE, TRIES_A_SECOND = 20, 0.5
"""To log in, by link or by token, all visitors together: a person needs one, and guessing 16 bytes needs more."""

CODE_BYTES, SECRET_BYTES = 16, 32
"""Random ones, of a code and of a cookie: a code lives for minutes, and its link should fit into a line."""

Secret = Callable[[int], str]
"""Makes a text of so many random bytes; passed in where a test wants to know it beforehand."""


@dataclass(frozen=True, slots=True)
class Notice:
    """What came of the last thing that somebody did, for the next page they see."""

    tone: str
    text: str
    hint: str = ""


@dataclass(slots=True)
class Session:
    """One browser that is logged in."""

    token: str = field(repr=False)
    """Whose rights it has. Never on a page."""
    form_key: str = field(repr=False)
    """In every form: a page of somebody else's cannot know it."""
    ends: float
    notice: Notice | None = None

    def take_notice(self) -> Notice | None:
        """What is to be told, once."""
        notice, self.notice = self.notice, None
        return notice


class Sessions:
    """All sessions of one server, and the codes that will become some."""

    def __init__(self, clock: Clock, secret: Secret = secrets.token_urlsafe) -> None:
        self._clock = clock
        self._secret = secret
        self._codes: OrderedDict[bytes, tuple[str, float]] = OrderedDict()
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()
        self._tries = Bucket(TRIES_A_SECOND, TRIES_AT_ONCE)

    def invite(self, token: str) -> str:
        """A code that logs in with the rights of this token: once, and soon."""
        code = self._secret(CODE_BYTES)
        self._codes[_digest(code)] = (token, self._clock.monotonic() + CODE_SECONDS)
        while len(self._codes) > MAX_CODES:
            self._codes.popitem(last=False)
        return code

    def redeem(self, code: str) -> str | None:
        """The token behind a code, which is of no use from now on; None when it is of none already."""
        given, found = _digest(code), None
        for digest in self._codes:  # all of them, however the first compare: nobody learns from how long it takes
            if hmac.compare_digest(digest, given):
                found = digest
        if found is None:
            return None
        token, ends = self._codes.pop(found)
        return token if self._clock.monotonic() < ends else None

    def tried(self) -> None:
        """Somebody tries to log in; raises when that happens too often."""
        if not self._tries.take(self._clock.monotonic()):
            raise too_many("too many tries to log in", retry_after=1 / TRIES_A_SECOND)

    def begin(self, token: str) -> tuple[str, Session]:
        """A new session, and the cookie that opens it."""
        cookie = self._secret(SECRET_BYTES)
        session = Session(token, self._secret(SECRET_BYTES), self._clock.monotonic() + SESSION_SECONDS)
        self._sessions[_digest(cookie)] = session
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return cookie, session

    def find(self, cookie: str) -> Session | None:
        """The session that a cookie opens; None when there is none, or none any more."""
        session = self._sessions.get(_digest(cookie))
        if session is not None and self._clock.monotonic() >= session.ends:
            self.end(cookie)
            return None
        return session

    def end(self, cookie: str) -> None:
        """Log out. Doing so twice changes nothing."""
        self._sessions.pop(_digest(cookie), None)


def _digest(secret: str) -> bytes:
    """What is kept of a code or a cookie; anything a browser sends has one."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


FORM = "application/x-www-form-urlencoded"
FORM_KEY = "form_key"

MAX_FORM_FIELDS = 500
"""Of one form: ours have less than 50, and a list of capabilities."""

AS_PERSON = "viewer"
"""The least role: whoever has none is a plugin with a token of its own, and sees no pages."""


class Dashboard:
    """What all pages of one server share."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.sessions = Sessions(gateway.clock)
        self.looks = Looks(gateway)
        self.streams = 0
        """Pages that are kept fresh."""

    def link(self, url: str, token: str) -> str:
        """An address of this server at `url` that logs in once, with the rights of this token."""
        return f"{url.rstrip('/')}/login/{self.sessions.invite(token)}"


@dataclass(frozen=True, slots=True)
class Visit:
    """One request of somebody who is logged in."""

    request: Request
    dashboard: Dashboard
    session: Session
    principal: Principal
    form: Mapping[str, tuple[str, ...]]
    """What was filled in, by name; empty unless something is to be done."""

    @property
    def gateway(self) -> Gateway:
        return self.dashboard.gateway

    @property
    def now(self) -> float:
        return self.gateway.clock.now()

    def asked(self, name: str, most: int = 500) -> str:
        """A parameter of the address; empty where there is none."""
        return self.request.query_params.get(name, "")[:most]

    def filled(self, name: str) -> str:
        """What was filled in under a name; empty where nothing was."""
        return next(iter(self.form.get(name, ())), "")

    def page(self, template: str, status: int = 200, notice: Notice | None = None, **values: Any) -> Response:
        """A page for this visitor."""
        return rendering.page(
            template,
            status,
            **values,
            now=self.now,
            here=self.request.url.path,
            is_operator=self.principal.lacks((HOST,)) is None,
            form_key=self.session.form_key,
            notice=notice or self.session.take_notice(),
        )

    def go(self, path: str, notice: Notice | None = None) -> Response:
        """To another page, where the notice is told."""
        self.session.notice = notice
        return RedirectResponse(path, 303, rendering.HEADERS)


Handler = Callable[[Visit], Awaitable[Response]]
Endpoint = Callable[[Request], Awaitable[Response]]


def dashboard_of(request: Request) -> Dashboard:
    dashboard = request.app.state.dashboard
    assert isinstance(dashboard, Dashboard)
    return dashboard


# The cookie.


def cookie_name(request: Request) -> str:
    """Browsers send a cookie to every port of a machine, so two servers of one need two names."""
    return f"plugbay_{request.url.port or request.url.scheme}"


def keep_cookie(request: Request, response: Response, cookie: str) -> None:
    response.set_cookie(
        cookie_name(request),
        cookie,
        max_age=round(SESSION_SECONDS),
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


# The guards.


def visitors(need: str, *, live: bool = False) -> Callable[[Handler], Endpoint]:
    """A page for whoever has this right; others are shown where to log in, or told what they lack.

    `live` is for what only our script asks for, never a person.
    """

    def guarded(handler: Handler) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            dashboard = dashboard_of(request)
            session, principal = await _known(request, dashboard)
            if session is None or principal is None:
                return login_page(request, 401)
            refusal = principal.lacks((need,))
            if refusal is not None:
                raise refusal
            if live and not is_own(request.headers):
                raise denied("auth.origin_denied", "only a page of this server may listen")
            form = await filled_form(request) if request.method == "POST" else {}
            if request.method == "POST" and not _has_key(form, session):
                raise denied("auth.form_denied", "this form is not of this session; load the page again")
            return await handler(Visit(request, dashboard, session, principal, form))

        return endpoint

    return guarded


async def _known(request: Request, dashboard: Dashboard) -> tuple[Session | None, Principal | None]:
    """Whose cookie it is. A session whose token is of no use any more is over."""
    cookie = request.cookies.get(cookie_name(request), "")
    session = dashboard.sessions.find(cookie) if cookie else None
    if session is None:
        return None, None
    try:
        return session, await admitted(request, session.token)
    except GatewayError as error:
        if error.status != 401:
            raise
        dashboard.sessions.end(cookie)
        return None, None


def _has_key(form: Mapping[str, tuple[str, ...]], session: Session) -> bool:
    given = next(iter(form.get(FORM_KEY, ())), "")
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), session.form_key.encode())


def is_own(headers: Headers) -> bool:
    """Whether a page of this very server asks, or no page at all. Another port of this machine is somebody else."""
    if "origin" in headers:
        return _netloc(headers["origin"]) == headers.get("host", "").lower()
    return headers.get("sec-fetch-site", "none") in ("same-origin", "none")


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


async def filled_form(request: Request) -> dict[str, tuple[str, ...]]:
    """What a page of ours sends; raises for what another sends, and for what is no form."""
    named = "origin" in request.headers or "sec-fetch-site" in request.headers
    if not named or not is_own(request.headers):
        raise denied("auth.origin_denied", "only a page of this server may ask for this")
    if media_type(request.headers) != FORM:
        raise invalid("request.invalid", f"a form is sent as {FORM}")
    try:
        text = (await request.body()).decode("utf-8", "replace")
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS, errors="replace")
    except ValueError:
        raise invalid("request.invalid", f"a form has {MAX_FORM_FIELDS} fields at most") from None
    names = dict.fromkeys(name for name, _ in pairs)
    return {name: tuple(value for each, value in pairs if each == name) for name in names}


# Pages for those who are not in, and for what went wrong.


def login_page(request: Request, status: int, problem: str = "") -> Response:
    """Where a token can be given, and how to get a link instead."""
    asked = request.url.path if request.method in ("GET", "HEAD") else "/"
    return rendering.page("login.html", status, problem=problem, goes_to=local_path(asked))


def local_path(path: str) -> str:
    """A path of a page on this server; the first page where it is none. Never a way to another site."""
    return path if path.startswith(("/plugins/", "/calls", "/events", "/orgs")) and "\\" not in path else "/"


def with_error_pages(endpoint: Endpoint) -> Endpoint:
    """What goes wrong on the way to a page is a page as well; a bug stays one, for the edge to log."""

    async def told(request: Request) -> Response:
        try:
            return await endpoint(request)
        except (GatewayError, StoreUnavailable, HTTPException) as error:
            return error_page(as_gateway_error(error))

    return told


def error_page(error: GatewayError) -> Response:
    """An error as a page."""
    answer = rendering.page("error.html", error.status, error=error)
    if error.retry_after is not None:
        answer.headers["retry-after"] = str(max(1, round(error.retry_after)))
    return answer
