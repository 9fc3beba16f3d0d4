"""Sessions, cookies and form protection of the dashboard.

    @require_session(HOST)
    async def plugins(visit: Visit) -> Response: ...

A session is a random cookie and the digest of a token. The token is checked at every request (`Keys.principal_of`,
`Principal.lacks`), so a session ends with its token. A restart does not end it (`session_file`); several gateways have
it in common (`shared_logins`). Forms need the session's form key and our own origin.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec.structs import replace
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from plugbay.host.limits import TokenBucket
from plugbay.mcp_server.http_checks import media_type
from plugbay.model.guarded import Guarded
from plugbay.server.api.caller import LONGEST_TOKEN, admit_principal
from plugbay.server.api.errors import as_gateway_error, error_response
from plugbay.server.dashboard import rendering
from plugbay.server.dashboard.history import HistoryLoader
from plugbay.server.dashboard.loader import PluginLoader
from plugbay.server.dashboard.session_file import FILE_NAME, SessionFile, StoredSession
from plugbay.server.dashboard.shared_logins import SharedLink, SharedLogins, SharedSession
from plugbay.server.dashboard.tries import Tries
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.credentials import digest_of
from plugbay.server.domain.errors import GatewayError, denied, full_disk, invalid, too_many, unprocessable
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.principal import HOST, Principal
from plugbay.store.failures import StoreUnavailable

CODE_SECONDS = 600.0
"""Seconds for which a one-time link is valid."""

MAX_CODES = 16
"""Unused links; the oldest is dropped."""

SESSION_SECONDS = 12 * 3600.0
"""Seconds of a session: a working day. Use does not extend it, so an unattended browser is locked overnight."""

MAX_SESSIONS = 64
"""Sessions at a time; the oldest is dropped."""

MAX_UNSHOWN = 16
"""New keys of one session that no page has shown yet; the oldest is dropped."""

LOGIN_BURST, LOGINS_PER_SECOND = 20, 0.5
"""Login attempts of all visitors together: a person needs one; guessing 16 bytes needs far more."""

CODE_BYTES, SECRET_BYTES = 16, 32
"""Random bytes of a code and of a cookie: a code lives for minutes, and its link should fit into a line."""

Secret = Callable[[int], str]
"""Creates a text of so many random bytes; tests pass their own."""


class Notice(msgspec.Struct, frozen=True):
    """The result of the last action, shown on the next page."""

    tone: str
    text: str
    hint: str = ""


class Session(Guarded, msgspec.Struct):
    """One logged-in browser."""

    HIDDEN = ("token", "form_key", "unshown", "stored")
    token: bytes
    """The digest of the token whose rights it has."""
    form_key: str
    """In every form; pages of other sites cannot know it. It is made from the cookie."""
    ends: float
    notice: Notice | None = None
    unshown: OrderedDict[str, str] = msgspec.field(default_factory=OrderedDict)
    """New keys by their id, until the page of the key has shown them."""
    stored: SharedSession | None = None
    """As other gateways know it."""

    def to_shared(self) -> SharedSession:
        """As other gateways should know it."""
        notice = None if self.notice is None else (self.notice.tone, self.notice.text, self.notice.hint)
        return SharedSession(self.token, notice, dict(self.unshown))

    def update(self, shared: SharedSession, ends: float) -> None:
        """Another gateway has changed it."""
        self.stored, self.token, self.ends = shared, shared.token, ends
        self.notice = None if shared.notice is None else Notice(*shared.notice)
        self.unshown = OrderedDict(shared.unshown)

    def take_notice(self) -> Notice | None:
        """Return the notice and clear it."""
        notice, self.notice = self.notice, None
        return notice

    def show_later(self, id: str, secret: str) -> None:
        """Keep a secret for the page that shows it once."""
        self.unshown[id] = secret
        while len(self.unshown) > MAX_UNSHOWN:
            self.unshown.popitem(last=False)


class Sessions:
    """All sessions of one server, and the codes for new ones."""

    def __init__(
        self,
        clock: Clock,
        secret: Secret = secrets.token_urlsafe,
        file: SessionFile | None = None,
        shared: SharedLogins | None = None,
    ) -> None:
        """`shared` has the logins of all gateways; without it, `file` keeps those of one server."""
        self._clock = clock
        self._secret = secret
        self._file = file
        self._shared = shared
        self._ended: list[bytes] = []
        """Sessions whose end other gateways do not know yet."""
        self._saving = asyncio.Lock()
        self._codes: OrderedDict[bytes, tuple[str, float]] = OrderedDict()
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()
        self._tries = TokenBucket(LOGINS_PER_SECOND, LOGIN_BURST)
        for stored in () if file is None else file.read():
            self._restore(stored)

    def create_code(self, token: str) -> str:
        """Create a code that logs in once with the rights of this token."""
        code = self._secret(CODE_BYTES)
        self._codes[_secret_digest(code)] = (token, self._clock.monotonic() + CODE_SECONDS)
        while len(self._codes) > MAX_CODES:
            self._codes.popitem(last=False)
        return code

    async def share_code(self, code: str, token: str) -> None:
        """Let every gateway accept this code, and forget it here: it is used once."""
        if self._shared is not None:
            digest = _secret_digest(code)
            self._codes.pop(digest, None)
            await self._shared.put(digest, SharedLink(token), self._clock.now() + CODE_SECONDS)

    async def fetch_code(self, code: str) -> None:
        """Take a code that a gateway made, for `redeem`."""
        if self._shared is not None:
            digest = _secret_digest(code)
            found = await self._shared.take(digest, SharedLink)
            if found is not None:
                self._codes[digest] = (found[0].token, self._clock.monotonic() + found[1] - self._clock.now())

    def redeem(self, code: str) -> str | None:
        """The token of a code, which is used up by this; None if it is unknown or expired."""
        given, found = _secret_digest(code), None
        for digest in self._codes:  # compare all, so that timing reveals nothing
            if hmac.compare_digest(digest, given):
                found = digest
        if found is None:
            return None
        token, ends = self._codes.pop(found)
        return token if self._clock.monotonic() < ends else None

    def count_attempt(self) -> None:
        """Count an attempt to log in; raises when there are too many."""
        if not self._tries.take(self._clock.monotonic()):
            raise too_many("too many login attempts", retry_after=1 / LOGINS_PER_SECOND)

    def begin(self, token: str) -> tuple[str, Session]:
        """Start a session; returns its cookie and the session."""
        cookie = self._secret(SECRET_BYTES)
        session = Session(digest_of(token), _form_key(cookie), self._clock.monotonic() + SESSION_SECONDS)
        self._add(_secret_digest(cookie), session)
        return cookie, session

    def _restore(self, stored: StoredSession) -> None:
        """Continue a session; never for longer than a new one, whatever the clock of the machine says."""
        left = min(stored.ends - self._clock.now(), SESSION_SECONDS)
        if left > 0:
            self._add(stored.cookie, Session(stored.token, "", self._clock.monotonic() + left))

    def _add(self, digest: bytes, session: Session) -> None:
        self._sessions[digest] = session
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)

    async def fetch(self, cookie: str) -> None:
        """Have a session here as the gateway left it that served it last, for `find`."""
        if self._shared is None:
            return
        digest = _secret_digest(cookie)
        found = await self._shared.find(digest, SharedSession)
        if found is None:
            self._sessions.pop(digest, None)
            return
        shared, ends_at = found
        ends = self._clock.monotonic() + ends_at - self._clock.now()
        session = self._sessions.get(digest)
        if session is None:
            session = Session(shared.token, "", ends)
            self._add(digest, session)
        session.update(shared, ends)

    def find(self, cookie: str) -> Session | None:
        """The session of a cookie; None if there is none or it has expired."""
        session = self._sessions.get(_secret_digest(cookie))
        if session is not None and self._clock.monotonic() >= session.ends:
            self.end(cookie)
            return None
        if session is not None and not session.form_key:
            session.form_key = _form_key(cookie)
        return session

    def end(self, cookie: str) -> None:
        """End a session; idempotent."""
        digest = _secret_digest(cookie)
        self._sessions.pop(digest, None)
        if self._shared is not None and cookie:
            self._ended.append(digest)

    async def save(self) -> None:
        """Keep the sessions of now for the next start of the server, or for other gateways."""
        if self._shared is not None:
            while self._ended:
                await self._shared.remove(self._ended.pop())
            for digest, session in list(self._sessions.items()):
                if session.stored is None:
                    await self._share(digest, session, self._shared)
            return
        if self._file is None:
            return
        async with self._saving:
            ahead = self._clock.now() - self._clock.monotonic()
            kept = [StoredSession(digest, each.token, each.ends + ahead) for digest, each in self._sessions.items()]
            await asyncio.to_thread(self._file.write, kept)

    async def keep(self, cookie: str, session: Session) -> None:
        """Keep what this request has changed in a session, for the gateway that serves the next one."""
        digest = _secret_digest(cookie)
        changed = session.stored is not None and session.stored != session.to_shared()
        if self._shared is not None and changed and digest in self._sessions:
            await self._share(digest, session, self._shared)

    async def _share(self, digest: bytes, session: Session, shared: SharedLogins) -> None:
        session.stored = session.to_shared()
        await shared.put(digest, session.stored, session.ends - self._clock.monotonic() + self._clock.now())


def _secret_digest(secret: str) -> bytes:
    """The stored digest of a code or a cookie."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _form_key(cookie: str) -> str:
    """Tells nothing of the cookie, and needs no place in a file."""
    return hmac.new(cookie.encode("utf-8", "surrogatepass"), b"form key", "sha256").hexdigest()


FORM = "application/x-www-form-urlencoded"
FORM_KEY = "form_key"

MAX_FORM_FIELDS = 500
"""Fields of one form: ours have less than 50, plus a list of capabilities."""

ANY_PERSON = "viewer"
"""The lowest role; plugins with delegated tokens have no role and see no pages."""


class Dashboard:
    """State shared by all pages of one server."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        file = SessionFile(gateway.settings.data / FILE_NAME)
        shared = None
        if gateway.membership is not None:
            shared = SharedLogins(gateway.database, gateway.secrets.keyring, gateway.clock)
        self.sessions = Sessions(gateway.clock, file=None if shared else file, shared=shared)
        self.loader = PluginLoader(gateway)
        self.history = HistoryLoader(gateway)
        self.tries = Tries(gateway.host, gateway.clock)
        self.streams = 0
        """Open live streams."""

    async def link(self, url: str, token: str) -> str:
        """A one-time login link with the rights of this token."""
        code = self.sessions.create_code(token)
        await self.sessions.share_code(code, token)
        return f"{url.rstrip('/')}/login/{code}"


class Visit(msgspec.Struct, frozen=True):
    """One request of a logged-in user."""

    request: Request
    dashboard: Dashboard
    session: Session
    principal: Principal
    form: Mapping[str, tuple[str, ...]]
    """Form fields by name; empty unless the request is a POST."""

    @property
    def gateway(self) -> Gateway:
        return self.dashboard.gateway

    @property
    def now(self) -> float:
        return self.gateway.clock.now()

    def query(self, name: str, most: int = 500) -> str:
        """A query parameter; empty if missing."""
        return self.request.query_params.get(name, "")[:most]

    def field(self, name: str) -> str:
        """The first value of a form field; empty if missing."""
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
            in_cluster=self.gateway.cluster.exists,
            may=self.principal.has_role,
            form_key=self.session.form_key,
            notice=notice or self.session.take_notice(),
        )

    def redirect(self, path: str, notice: Notice | None = None) -> Response:
        """Redirect to another page, which shows the notice."""
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
    """The cookie name contains the port: browsers send cookies to every port of a host."""
    return f"plugbay_{request.url.port or request.url.scheme}"


def set_session_cookie(request: Request, response: Response, cookie: str) -> None:
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


def require_session(need: str, *, live: bool = False) -> Callable[[Handler], Endpoint]:
    """Decorator: serve the page to sessions with this permission; others get the login page or an error.

    `live`: for streams that only our script requests.
    """

    def decorate(handler: Handler) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            visit = await admit_visit(request, need)
            if visit is None:
                return login_page(request, 401)
            if live and not is_same_origin(request.headers):
                raise denied("auth.origin_denied", "only pages of this server may open this stream")
            if request.method == "POST":
                visit = replace(visit, form=await read_form(request))
                check_form_key(visit)
            response = await handler(visit)
            await keep_session(visit)
            return response

        return endpoint

    return decorate


async def keep_session(visit: Visit) -> None:
    """Keep what this visit has changed in its session."""
    await visit.dashboard.sessions.keep(visit.request.cookies.get(cookie_name(visit.request), ""), visit.session)


async def admit_visit(request: Request, need: str) -> Visit | None:
    """The visit of a session with this permission, before its form is read; None without a session."""
    dashboard = dashboard_of(request)
    session, principal = await _find_session(request, dashboard)
    if session is None or principal is None:
        return None
    refusal = principal.lacks((need,))
    if refusal is not None:
        raise refusal
    return Visit(request, dashboard, session, principal, {})


async def _find_session(request: Request, dashboard: Dashboard) -> tuple[Session | None, Principal | None]:
    """The session of the request and its owner. A session whose token became invalid is ended."""
    cookie = request.cookies.get(cookie_name(request), "")
    if cookie:
        await dashboard.sessions.fetch(cookie)
    session = dashboard.sessions.find(cookie) if cookie else None
    if session is None:
        return None, None
    try:
        return session, admit_principal(request, await dashboard.gateway.keys.principal_of(session.token))
    except GatewayError as error:
        if error.status != 401:
            raise
        dashboard.sessions.end(cookie)
        await dashboard.sessions.save()
        return None, None


async def require_token_again(visit: Visit) -> None:
    """Raises unless the form has the token of the operator: a stolen session is not enough for what follows."""
    token = visit.field("token").strip()
    visit.dashboard.sessions.count_attempt()
    try:
        owner = await visit.gateway.authenticate(token) if 0 < len(token) <= LONGEST_TOKEN else None
    except GatewayError as error:
        if error.status != 401:
            raise
        owner = None
    if owner is None or owner.lacks((HOST,)) is not None:
        text = "this is not the operator token; plugbay serve prints the path of its file when it starts"
        raise unprocessable("auth.token_denied", text, "token")


def check_form_key(visit: Visit) -> None:
    """Raises unless the form has the key of the session."""
    given = visit.field(FORM_KEY).encode("utf-8", "surrogatepass")
    if not hmac.compare_digest(given, visit.session.form_key.encode()):
        raise denied("auth.form_denied", "this form belongs to another session; load the page again")


def is_same_origin(headers: Headers) -> bool:
    """Whether the request comes from a page of this server, or from no page. Another port is another origin."""
    if "origin" in headers:
        return _netloc(headers["origin"]) == headers.get("host", "").lower()
    return headers.get("sec-fetch-site", "none") in ("same-origin", "none")


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def check_form_origin(request: Request) -> None:
    """Raises unless a page of this server has sent the form."""
    named = "origin" in request.headers or "sec-fetch-site" in request.headers
    if not named or not is_same_origin(request.headers):
        raise denied("auth.origin_denied", "only pages of this server may send this form")


async def read_form(request: Request) -> dict[str, tuple[str, ...]]:
    """The fields of a submitted form; raises for other origins and other content types."""
    check_form_origin(request)
    if media_type(request.headers.get("content-type", "")) != FORM:
        raise invalid("request.invalid", f"a form must be sent as {FORM}")
    try:
        text = (await request.body()).decode("utf-8", "replace")
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS, errors="replace")
    except ValueError:
        raise invalid("request.invalid", f"a form has at most {MAX_FORM_FIELDS} fields") from None
    if any("\0" in part for pair in pairs for part in pair):
        raise invalid("request.invalid", "the form contains U+0000, which cannot be stored")
    names = dict.fromkeys(name for name, _ in pairs)
    return {name: tuple(value for each, value in pairs if each == name) for name in names}


# Login and error pages.


def login_page(request: Request, status: int, problem: str = "") -> Response:
    """The login page."""
    asked = request.url.path if request.method in ("GET", "HEAD") else "/"
    ended = not problem and cookie_name(request) in request.cookies
    return rendering.page("login.html", status, problem=problem, ended=ended, goes_to=local_path(asked))


_CONTROL = (
    "orgs keys packages bindings secrets invocations deliveries",
    "sessions chains runs harnesses compactions audit install",
)
CONTROL = tuple(f"/{name}" for name in " ".join(_CONTROL).split())
"""Pages of the control plane."""

PAGES = ("/plugins", "/calls", "/events", "/publishers", "/servers", *CONTROL)
"""Paths to which a login leads back."""


def local_path(path: str) -> str:
    """A path of a page on this server, else `/`. Never another site."""
    return path if path.startswith(PAGES) and "\\" not in path else "/"


def with_error_pages(endpoint: Endpoint) -> Endpoint:
    """Answer errors as pages; unexpected exceptions go to the middleware."""

    async def handle(request: Request) -> Response:
        try:
            return await endpoint(request)
        except (GatewayError, StoreUnavailable, HTTPException) as error:
            return error_page(as_gateway_error(error))
        except OSError as error:
            full = full_disk(error)
            if full is None:
                raise
            return error_page(full)

    return handle


API_PATHS = ("/v1/", "/api/", "/mcp", "/openapi.json", "/metrics", "/healthz", "/readyz")
"""Paths of programs, which read JSON also where they accept pages."""


async def answer_unknown_path(request: Request, error: Exception) -> Response:
    """The answer for a path without a route: a page for a browser, JSON for a program."""
    is_browser = "text/html" in request.headers.get("accept", "") and not request.url.path.startswith(API_PATHS)
    refusal = as_gateway_error(error)
    return error_page(refusal) if is_browser else error_response(refusal)


def error_page(error: GatewayError) -> Response:
    """An error as a page."""
    answer = rendering.page("error.html", error.status, error=error)
    if error.retry_after is not None:
        answer.headers["retry-after"] = str(max(1, round(error.retry_after)))
    return answer
