"""`Wiretap`: the way from the bytes of one conversation to frames that may be shown.

Bytes are kept where they pass, with the time, and nothing else is done there. A moment later, off the path of the call,
they are cut by the contract's own framing and rid of secrets. Refuses to know who wants the frames and what they mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from plugbay.contracts.base import Role
from plugbay.host.recording.frames import Redactor
from plugbay.link.framings import Piece, framing_of
from plugbay.link.link import Link
from plugbay.link.recording import Frame, Item, StderrLine
from plugbay.model.text import printable
from plugbay.process.child import Child
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import Malformed


class Wiretap:
    """Taps one link from now on: a `link.tap.Tap`, and what its process writes to stderr."""

    __slots__ = tuple("_backlog _clock _codec _emit _framings _in_step _link _loop _redactor _scheduled".split())

    def __init__(
        self,
        contract: str,
        link: int,
        redactor: Redactor,
        clock: Callable[[], float],
        emit: Callable[[Item], None],
    ) -> None:
        """`link`: the number of the conversation."""
        self._link = link
        self._redactor = redactor
        self._clock = clock
        self._emit = emit
        self._codec = MsgspecCodec()
        self._loop = asyncio.get_running_loop()
        self._framings = {role: framing_of(contract, role) for role in (Role.HOST, Role.PLUGIN)}
        self._backlog: list[tuple[float, str, bytes]] = []
        self._scheduled = False
        self._in_step = False
        """Whether what is read begins where a message begins; a link may be tapped in the middle of one."""

    def attach(self, link: Link, child: Child) -> None:
        link.tap(self)
        child.stderr.clean = self.line

    # Where the bytes pass.

    def sent(self, data: bytes) -> None:
        self._keep(Role.HOST, data)

    def received(self, data: bytes, pending: int) -> None:
        self._in_step = self._in_step or not pending
        if self._in_step:
            self._keep(Role.PLUGIN, data)

    def _keep(self, direction: str, data: bytes) -> None:
        self._backlog.append((self._clock(), direction, data))
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self.flush)

    # A moment later.

    def flush(self) -> None:
        """Cut, redact and pass on what was kept."""
        self._scheduled = False
        backlog, self._backlog = self._backlog, []
        for t, direction, data in backlog:
            for piece in self._framings[direction].feed(data):
                self._pass(t, direction, piece)

    def ended(self) -> None:
        """The process is gone: no more bytes will come."""
        self.flush()
        rest = self._framings[Role.PLUGIN].eof()
        if rest is not None:
            self._pass(self._clock(), Role.PLUGIN, rest)

    def line(self, said: bytes) -> bytes:
        """A line of stderr as it may be kept, after everything that was said before it."""
        self.flush()
        told = self._redactor.line(said)
        self._emit(StderrLine(self._clock(), self._link, printable(told)))
        return told

    def _pass(self, t: float, direction: str, piece: Piece) -> None:
        body, problem = piece
        if not problem:
            try:
                value, redacted = self._redactor.value(self._codec.decode(body))
            except Malformed as error:
                problem = str(error)
            else:
                self._emit(Frame(t, self._link, direction, len(body), value, redacted=redacted))
                return
        raw = self._redactor.line(body)
        self._emit(Frame(t, self._link, direction, len(body), None, raw, ("",) if raw != body else (), problem))
