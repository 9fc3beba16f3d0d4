"""`Sessions`: who is logged in. A token, or a code that was made for one, becomes a session; the cookie is its key.

All of it is in memory: a restart ends every session. Owns how long, how many and how often. What the token behind a
session may do is asked of the gateway at every request, so a session ends with its token.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from plugbay.host.rate import TokenBucket
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.errors import too_many

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
        self._tries = TokenBucket(TRIES_A_SECOND, TRIES_AT_ONCE)

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
