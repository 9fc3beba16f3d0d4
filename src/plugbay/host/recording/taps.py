"""Taps: the frames between the host and its plugins, live (`TapStream`) or in a recording (`recordings`).

`Taps` attaches a `LinkTap` to each instance of a tapped plugin. On the path of a call it only stores bytes and times;
framing and redaction happen in a later callback. A plugin without a tap costs one dictionary entry per process.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Protocol, Self

import msgspec

from plugbay.contracts.base import Role
from plugbay.contracts.frames import Piece
from plugbay.contracts.registry import CONTRACTS
from plugbay.host.recording.recordings import Recorder, record_file, record_in
from plugbay.host.recording.redaction import FrameRedactor, Redactor
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
"""Writes (plugin, kind, text) to the journal."""


class Listener(Protocol):
    """Receives the tapped items of one plugin."""

    @property
    def largest(self) -> int:
        """Bytes of a frame; a longer one is truncated."""

    def take(self, item: Item) -> None: ...

    def close(self) -> None: ...


class _Process(msgspec.Struct):
    """A process of a plugin and its tap, if there is one."""

    number: int
    link: Link
    child: Child
    redactor: Redactor
    tap: LinkTap | None = None


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
        self._processes: dict[str, list[_Process]] = {}
        self._numbers: dict[str, int] = {}
        self._recorded: set[str] = set()

    # Listeners.

    def open(self, plugin_id: str) -> TapStream:
        """All items of a plugin from now on; raises `CallFailed` if there is no such plugin."""
        stream = TapStream(lambda stream: self._leave(plugin_id, stream))
        self._join(self._spec(plugin_id), stream)
        return stream

    def record(self, plugin_id: str, file: str | Path) -> Recorder:
        """Record one plugin into this file until the host stops; raises `PlugbayError` if the file cannot be used."""
        spec = self._spec(plugin_id)
        recorder = record_file(Path(file).absolute(), spec, self._began)
        self._join(spec, recorder)
        return recorder

    def begin_recording(self, plugin_id: str, folder: Path) -> Recorder:
        """Record one plugin into a new file of this folder, until `end_recording` or until the host stops.

        Raises `PlugbayError` if the file cannot be made, and `CallFailed` if there is no such plugin.
        """
        spec = self._spec(plugin_id)
        recorder = record_in(folder, spec, self._began)
        self._join(spec, recorder)
        return recorder

    def end_recording(self, plugin_id: str, recorder: Recorder) -> None:
        """Write the rest of a recording and close it."""
        self._leave(plugin_id, recorder)
        recorder.close()

    def close(self) -> None:
        """Close all listeners: the host has stopped."""
        for plugin_id, listeners in self._listeners.items():
            for listener in list(listeners):
                if isinstance(listener, Recorder) and listener.problem:
                    self._note(plugin_id, "recording_incomplete", f"{listener.problem}; {listener.dropped} lines lost")
                listener.close()

    def _spec(self, plugin_id: str) -> PluginSpec:
        spec = self._specs.get(plugin_id)
        if spec is None:
            raise CallFailed(Failure(Code.NOT_FOUND, f"there is no plugin {plugin_id!r}"))
        return spec

    def _join(self, spec: PluginSpec, listener: Listener) -> None:
        self._listeners.setdefault(spec.id, []).append(listener)
        for process in self._processes.get(spec.id, ()):
            self._tap(spec, process, JOINED)

    def _leave(self, plugin_id: str, listener: Listener) -> None:
        """Remove a listener, after it got all items up to now."""
        here = self._processes.get(plugin_id, ())
        for process in here:
            if process.tap is not None:
                process.tap.flush()
        self._listeners[plugin_id].remove(listener)
        if not self._listeners[plugin_id]:
            for process in here:
                self._untap(process)

    # Processes.

    def attach(self, spec: PluginSpec, link: Link, child: Child, redactor: Redactor) -> None:
        """Register a new process, before the first byte is exchanged."""
        self._begin_recording(spec)
        number = self._numbers[spec.id] = self._numbers.get(spec.id, 0) + 1
        process = _Process(number, link, child, redactor)
        self._processes.setdefault(spec.id, []).append(process)
        child.on_exit(lambda status: self._exited(spec.id, process, status))
        if self._listeners.get(spec.id):
            self._tap(spec, process, SPAWN)

    def _begin_recording(self, spec: PluginSpec) -> None:
        if self._record is None or spec.id in self._recorded:
            return
        self._recorded.add(spec.id)
        try:
            self._join(spec, record_in(self._record, spec, self._began))
        except PlugbayError as error:
            self._note(spec.id, "recording_failed", str(error))

    def _exited(self, plugin_id: str, process: _Process, status: ExitStatus) -> None:
        self._processes[plugin_id].remove(process)
        if process.tap is not None:
            process.child.stderr.drain_now()
            process.tap.finish()
            facts = {"code": status.code, "signal": status.signal}
            self._emit(plugin_id, Happening(self._clock(), process.number, EXIT, facts))

    # Tapping.

    def _tap(self, spec: PluginSpec, process: _Process, event: str) -> None:
        if process.tap is not None:
            return
        redactor = FrameRedactor(process.redactor)
        process.tap = LinkTap(
            spec.contract, process.number, redactor, self._clock, lambda item: self._emit(spec.id, item)
        )
        self._emit(spec.id, Happening(self._clock(), process.number, event, {"pid": process.child.pid}))
        if event == SPAWN:
            process.tap.redact_stderr([line.encode() for line in process.child.stderr.tail()])  # written before it
        process.tap.attach(process.link, process.child)

    def _untap(self, process: _Process) -> None:
        process.tap = None
        process.link.tap(None)
        process.child.stderr.clean = process.redactor.redact_lines

    def _clock(self) -> float:
        return time.monotonic() - self._zero

    def _emit(self, plugin_id: str, item: Item) -> None:
        for listener in self._listeners.get(plugin_id, ()):
            listener.take(item.shortened(listener.largest) if isinstance(item, Frame) else item)


SHOWN_BYTES = 64 << 10
"""A longer frame is shown by its beginning, length and digest: it is a picture or a file."""

WAITING_ITEMS = 1024
WAITING_BYTES = 4 << 20
"""Maximum of queued items: some screens full, and at least sixty of the longest frames."""

LINE_WEIGHT = 256
"""Bytes that an item counts as, beside the size of its frame."""


class TapStream:
    """Items as an async iterator with a bounded queue: `with host.tap("weather") as frames:`.

    Iterate on the loop of the host, and close it. For a consumer that is too slow, the oldest items are dropped.
    """

    largest = SHOWN_BYTES

    def __init__(
        self, left: Callable[[TapStream], None], items: int = WAITING_ITEMS, most: int = WAITING_BYTES
    ) -> None:
        """`left` is called on close; at most `items` and `most` bytes are queued."""
        self.dropped = 0
        """Items dropped because the consumer was too slow."""
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
        """Stop tapping; queued items can still be taken. May be called twice."""
        if not self._over:
            self._over = True
            self._left(self)
            self._changed.set()

    def rest(self) -> list[Item]:
        """Take all queued items without waiting for more."""
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


class LinkTap:
    """Turns the bytes of one link, and the stderr of its process, into redacted items. Implements `link.tap.Tap`."""

    __slots__ = tuple("_backlog _clock _codec _emit _framings _in_step _link _loop _redactor _scheduled".split())

    def __init__(
        self,
        contract: str,
        link: int,
        redactor: FrameRedactor,
        clock: Callable[[], float],
        emit: Callable[[Item], None],
    ) -> None:
        """`link`: the number of the process."""
        self._link = link
        self._redactor = redactor
        self._clock = clock
        self._emit = emit
        self._codec = MsgspecCodec()
        self._loop = asyncio.get_running_loop()
        self._framings = {role: CONTRACTS[contract].framing_of(role) for role in (Role.HOST, Role.PLUGIN)}
        self._backlog: list[tuple[float, str, bytes]] = []
        self._scheduled = False
        self._in_step = False
        """Whether received bytes start at a frame boundary; a link may be tapped in the middle of a frame."""

    def attach(self, link: Link, child: Child) -> None:
        link.tap(self)
        child.stderr.clean = self.redact_stderr

    # On the path of a call: only stores.

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

    # In a later callback.

    def flush(self) -> None:
        """Frame, redact and emit the stored bytes."""
        self._scheduled = False
        backlog, self._backlog = self._backlog, []
        for t, direction, data in backlog:
            for piece in self._framings[direction].feed(data):
                self._emit_piece(t, direction, piece)

    def finish(self) -> None:
        """Emit the rest: the process is gone."""
        self.flush()
        rest = self._framings[Role.PLUGIN].eof()
        if rest is not None:
            self._emit_piece(self._clock(), Role.PLUGIN, rest)

    def redact_stderr(self, lines: list[bytes]) -> list[bytes]:
        """Redact and emit lines of stderr, after all bytes before them."""
        self.flush()
        redacted = list(map(self._redactor.redact_line, lines))
        for line in redacted:
            self._emit(StderrLine(self._clock(), self._link, printable(line)))
        return redacted

    def _emit_piece(self, t: float, direction: str, piece: Piece) -> None:
        body, problem = piece
        if not problem:
            try:
                value, redacted = self._redactor.redact_frame(self._codec.decode(body))
            except Malformed as error:
                problem = str(error)
            else:
                self._emit(Frame(t, self._link, direction, len(body), value, redacted=redacted))
                return
        raw = self._redactor.redact_line(body)
        self._emit(Frame(t, self._link, direction, len(body), None, raw, ("",) if raw != body else (), problem))
