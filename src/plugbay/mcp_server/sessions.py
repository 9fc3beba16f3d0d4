"""Clients over HTTP: sessions of the handshake era, and single requests of the modern one.

Owns which of a client's connections a message goes out on, how long somebody who says nothing is remembered, and how
many there are at most. Refuses to know headers and statuses.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Any

import msgspec

from plugbay.mcp_server.bridge import Bridge
from plugbay.mcp_server.conversation import ANSWER_SECONDS
from plugbay.mcp_server.exchange import Exchange, frames, is_answer

MAX_SESSIONS = 128
"""Sessions at a time; the one that was idle for longest gives way to a new one."""

IDLE_SECONDS = 1800.0
"""After which a session that nobody uses is over; its client is told so with its next request, and begins anew."""

MAX_PARKED = 64
"""Requests of the modern era that wait for their clients to come back with answers; the oldest gives way."""

ID_BYTES = 32
"""Random bytes of a session's id, which is as good as a password."""


class Session:
    """One client of the handshake era."""

    def __init__(self, bridge: Bridge, now: float) -> None:
        self.id = secrets.token_urlsafe(ID_BYTES)
        self.used = now
        self.mail = Exchange(0, lossy=True)
        """What belongs to no request of the client's: it is read by whoever opens a stream for it."""
        self.is_read = False
        """Whether somebody has that stream open."""
        self.open = 0
        """Requests that are being answered."""
        self._bridge = bridge
        self.conversation = bridge.converse(self)

    @property
    def is_idle(self) -> bool:
        return not self.open and not self.is_read

    def close(self) -> None:
        self._bridge.leave(self.conversation)
        self.conversation.close()
        self.mail.end()

    def read_again(self) -> Exchange:
        """A fresh stream for what belongs to no request; what waits already is on it."""
        self.mail = self.mail.continued()
        return self.mail

    # The conversation's transport.

    def has_room(self, origin: Any) -> bool:
        return not isinstance(origin, Exchange) or origin.has_room

    def send(self, data: bytes, origin: Any) -> None:
        """What is about a request goes back with it; if its client has left, only what is no answer is kept."""
        direct = origin if isinstance(origin, Exchange) and not (origin.over or origin.gone) else None
        for frame in frames(data):
            if direct is not None:
                direct.push(frame)
            elif not is_answer(frame):
                self.mail.push(frame)

    def unanswered(self, origin: Any) -> None:
        if isinstance(origin, Exchange):
            origin.drop()


class Solo:
    """One request of the modern era, with those that bring the answers it asked for."""

    def __init__(self, bridge: Bridge, exchange: Exchange) -> None:
        self.exchange = exchange
        self.state: str | None = None
        """What the client has to bring to go on, after it was asked something."""
        self.parked_at = 0.0
        self._bridge = bridge
        self.conversation = bridge.converse(self)

    def close(self) -> None:
        self._bridge.leave(self.conversation)
        self.conversation.close()
        self.exchange.end()

    # The conversation's transport.

    def has_room(self, origin: Any) -> bool:
        return self.exchange.has_room

    def send(self, data: bytes, origin: Any) -> None:
        for frame in frames(data):
            self.state = _state(frame) if is_answer(frame) else self.state
            self.exchange.push(frame)

    def unanswered(self, origin: Any) -> None:
        self.exchange.drop()


class _Asking(msgspec.Struct):
    resultType: str = ""  # noqa: N815  # as it stands on the wire
    requestState: str | None = None  # noqa: N815


class _Answer(msgspec.Struct):
    result: _Asking | None = None


_read_state = msgspec.json.Decoder(_Answer).decode


def _state(frame: bytes) -> str | None:
    """What has to come back with the answers, where an answer is a question."""
    if frame.find(b'"input_required"') < 0:
        return None
    result = _read_state(frame).result
    return result.requestState if result is not None and result.resultType == "input_required" else None


class Clients:
    """Everybody who is connected."""

    def __init__(self, bridge: Bridge, clock: Callable[[], float] = time.monotonic) -> None:
        self._bridge = bridge
        self._clock = clock
        self._sessions: dict[str, Session] = {}
        self._solos: set[Solo] = set()
        """Requests that are being answered."""
        self._parked: dict[str, Solo] = {}

    def close(self) -> None:
        """Let everybody go."""
        everybody: list[Session | Solo] = [*self._sessions.values(), *self._solos, *self._parked.values()]
        self._sessions.clear()
        self._parked.clear()
        for client in everybody:
            client.close()

    # Sessions.

    def new_session(self) -> Session | None:
        """A session for a client that introduces itself; None when there are too many that are not idle."""
        self._sweep()
        if len(self._sessions) >= MAX_SESSIONS:
            idle = [session for session in self._sessions.values() if session.is_idle]
            if not idle:
                return None
            self.end_session(min(idle, key=lambda session: session.used))
        session = Session(self._bridge, self._clock())
        self._sessions[session.id] = session
        return session

    def session(self, id: str) -> Session | None:
        """The session of this id, which is being used; None when it is over or never was."""
        self._sweep()
        session = self._sessions.get(id)
        if session is not None:
            session.used = self._clock()
        return session

    def end_session(self, session: Session) -> None:
        """The client, or its time, is over."""
        self._sessions.pop(session.id, None)
        session.close()

    def _sweep(self) -> None:
        now = self._clock()
        for session in list(self._sessions.values()):
            if session.is_idle and now - session.used > IDLE_SECONDS:
                self.end_session(session)

    # Requests that go on later.

    def solo(self, state: Any, exchange: Exchange) -> Solo:
        """The request that goes on with this state, or a new one."""
        solo = self._parked.pop(state, None) if isinstance(state, str) else None
        if solo is None:
            solo = Solo(self._bridge, exchange)
        solo.exchange, solo.state = exchange, None
        self._solos.add(solo)
        return solo

    def finished(self, solo: Solo) -> None:
        """The exchange is over; where the client was asked something, the request waits for it to come back."""
        self._solos.discard(solo)
        now = self._clock()
        for state in [state for state, other in self._parked.items() if now - other.parked_at > ANSWER_SECONDS]:
            self._parked.pop(state).close()
        if solo.state is None or solo.exchange.gone:
            solo.close()
            return
        solo.parked_at = now
        self._parked[solo.state] = solo
        while len(self._parked) > MAX_PARKED:
            self._parked.pop(next(iter(self._parked))).close()
