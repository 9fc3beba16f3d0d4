"""`Taps`: who sees the wire of which plugin, live or in a recording.

Owns which conversations there are and who wants to see them; a plugin that nobody taps costs an entry in a dictionary
for each of its processes. How bytes become frames is `wiretap`'s, how they wait `tap_stream`'s, how they are written
`recordings`'.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from plugbay.contracts.base import Role
from plugbay.host.recording.frame_redaction import Redactor
from plugbay.host.recording.recordings import Recorder, record_file, record_in
from plugbay.host.recording.redaction import Discretion
from plugbay.link.framings import Piece, framing_of
from plugbay.link.link import Link
from plugbay.link.recording import EXIT, JOINED, SPAWN, Frame, Happening, Item, StderrLine
from plugbay.model.errors import CallFailed, Code, Failure, PlugbayError
from plugbay.model.spec import PluginSpec
from plugbay.model.text import printable
from plugbay.process.child import Child
from plugbay.process.status import ExitStatus
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import Malformed

Note = Callable[[str, str, str], None]
"""(plugin, kind, text): for the journal."""


class Listener(Protocol):
    """Who gets what passes."""

    @property
    def largest(self) -> int:
        """Bytes of a frame; a longer one is cut."""

    def take(self, item: Item) -> None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class _Seated:
    """A process of a plugin, tapped or not."""

    number: int
    link: Link
    child: Child
    discretion: Discretion
    wire: Wiretap | None = None


class Taps:
    """All taps of one host."""

    def __init__(self, specs: Mapping[str, PluginSpec], record: str | Path | None, note: Note) -> None:
        """`record`: a folder for a recording of every plugin."""
        self._specs = specs
        self._record = None if record is None else Path(record).absolute()
        self._note = note
        self._began = time.time()
        self._zero = time.monotonic()
        self._listeners: dict[str, list[Listener]] = {}
        self._seated: dict[str, list[_Seated]] = {}
        self._numbers: dict[str, int] = {}
        self._recorded: set[str] = set()

    # For whoever wants to see.

    def open(self, plugin_id: str) -> TapStream:
        """Everything that passes from now on; raises `CallFailed` when there is no such plugin."""
        stream = TapStream(lambda stream: self._leave(plugin_id, stream))
        self._join(self._spec(plugin_id), stream)
        return stream

    def record(self, plugin_id: str, file: str | Path) -> Recorder:
        """Record one plugin into this file until the host stops; raises `PlugbayError` when that cannot be."""
        spec = self._spec(plugin_id)
        recorder = record_file(Path(file).absolute(), spec, self._began)
        self._join(spec, recorder)
        return recorder

    def close(self) -> None:
        """The host has stopped: nothing more will come."""
        for plugin_id, listeners in self._listeners.items():
            for listener in list(listeners):
                if isinstance(listener, Recorder) and listener.problem:
                    self._note(plugin_id, "recording_incomplete", f"{listener.problem}; {listener.dropped} lines lost")
                listener.close()

    def _spec(self, plugin_id: str) -> PluginSpec:
        spec = self._specs.get(plugin_id)
        if spec is None:
            raise CallFailed(Failure(Code.NOT_FOUND, f"no plugin is called {plugin_id!r}"))
        return spec

    def _join(self, spec: PluginSpec, listener: Listener) -> None:
        self._listeners.setdefault(spec.id, []).append(listener)
        for seated in self._seated.get(spec.id, ()):
            self._tap(spec, seated, JOINED)

    def _leave(self, plugin_id: str, stream: TapStream) -> None:
        """It still gets what has passed already."""
        here = self._seated.get(plugin_id, ())
        for seated in here:
            if seated.wire is not None:
                seated.wire.flush()
        self._listeners[plugin_id].remove(stream)
        if not self._listeners[plugin_id]:
            for seated in here:
                self._untap(seated)

    # For whoever starts processes.

    def seated(self, spec: PluginSpec, link: Link, child: Child, discretion: Discretion) -> None:
        """A process was born, and nothing has been said yet."""
        self._begin_recording(spec)
        number = self._numbers[spec.id] = self._numbers.get(spec.id, 0) + 1
        seated = _Seated(number, link, child, discretion)
        self._seated.setdefault(spec.id, []).append(seated)
        child.on_exit(lambda status: self._exited(spec.id, seated, status))
        if self._listeners.get(spec.id):
            self._tap(spec, seated, SPAWN)

    def _begin_recording(self, spec: PluginSpec) -> None:
        if self._record is None or spec.id in self._recorded:
            return
        self._recorded.add(spec.id)
        try:
            self._join(spec, record_in(self._record, spec, self._began))
        except PlugbayError as error:
            self._note(spec.id, "recording_failed", str(error))

    def _exited(self, plugin_id: str, seated: _Seated, status: ExitStatus) -> None:
        self._seated[plugin_id].remove(seated)
        if seated.wire is not None:
            seated.child.stderr.drain_now()
            seated.wire.ended()
            facts = {"code": status.code, "signal": status.signal}
            self._tell(plugin_id, Happening(self._clock(), seated.number, EXIT, facts))

    # What passes.

    def _tap(self, spec: PluginSpec, seated: _Seated, event: str) -> None:
        if seated.wire is not None:
            return
        redactor = Redactor(seated.discretion)
        seated.wire = Wiretap(
            spec.contract, seated.number, redactor, self._clock, lambda item: self._tell(spec.id, item)
        )
        self._tell(spec.id, Happening(self._clock(), seated.number, event, {"pid": seated.child.pid}))
        if event == SPAWN:
            for line in seated.child.stderr.tail():  # what it wrote before anybody could listen
                seated.wire.line(line.encode())
        seated.wire.attach(seated.link, seated.child)

    def _untap(self, seated: _Seated) -> None:
        seated.wire = None
        seated.link.tap(None)
        seated.child.stderr.clean = seated.discretion.line

    def _clock(self) -> float:
        return time.monotonic() - self._zero

    def _tell(self, plugin_id: str, item: Item) -> None:
        for listener in self._listeners.get(plugin_id, ()):
            listener.take(item.shortened(listener.largest) if isinstance(item, Frame) else item)


SHOWN_BYTES = 64 << 10
"""A longer frame is shown by its beginning, its length and its digest: pictures and files are not read on a screen."""

WAITING_ITEMS = 1024
WAITING_BYTES = 4 << 20
"""What waits to be taken: some screens full, and at least sixty of the longest frames."""

LINE_WEIGHT = 256
"""Bytes that everything but a frame counts as."""


class TapStream:
    """Iterate over it on the host's own loop, and close it: `with host.tap("weather") as frames:`."""

    largest = SHOWN_BYTES

    def __init__(
        self, left: Callable[[TapStream], None], items: int = WAITING_ITEMS, most: int = WAITING_BYTES
    ) -> None:
        """`left`: told when nobody wants more; `items` and `most` bytes may wait."""
        self.dropped = 0
        """Items that were lost because nobody took them in time."""
        self._left = left
        self._items = items
        self._most = most
        self._waiting: deque[Item] = deque()
        self._weight = 0
        self._over = False
        self._changed = asyncio.Event()

    def take(self, item: Item) -> None:
        self._waiting.append(item)
        self._weight += _weight(item)
        while len(self._waiting) > self._items or self._weight > self._most:
            self._weight -= _weight(self._waiting.popleft())
            self.dropped += 1
        self._changed.set()

    def close(self) -> None:
        """Nothing more comes; what waits can still be taken. May be called twice."""
        if not self._over:
            self._over = True
            self._left(self)
            self._changed.set()

    def rest(self) -> list[Item]:
        """Take everything that waits, without waiting for more."""
        items, self._weight = list(self._waiting), 0
        self._waiting.clear()
        return items

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __aiter__(self) -> AsyncIterator[Item]:
        return self

    async def __anext__(self) -> Item:
        while not self._waiting:
            if self._over:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        item = self._waiting.popleft()
        self._weight -= _weight(item)
        return item


def _weight(item: Item) -> int:
    return LINE_WEIGHT + (item.size if isinstance(item, Frame) and not item.cut else 0)


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
