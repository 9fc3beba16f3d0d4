"""`Taps`: who sees the wire of which plugin, live or in a recording.

Owns which conversations there are and who wants to see them; a plugin that nobody taps costs an entry in a dictionary
for each of its processes. How bytes become frames is `wiretap`'s, how they wait `tap_stream`'s, how they are written
`recordings`'.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from plugbay.host.recording.frames import Redactor
from plugbay.host.recording.recordings import Recorder, record_file, record_in
from plugbay.host.recording.redaction import Discretion
from plugbay.host.recording.tap_stream import TapStream
from plugbay.host.recording.wiretap import Wiretap
from plugbay.link.link import Link
from plugbay.link.recording import EXIT, JOINED, SPAWN, Frame, Happening, Item
from plugbay.model.errors import CallFailed, Code, Failure, PlugbayError
from plugbay.model.spec import PluginSpec
from plugbay.process.child import Child
from plugbay.process.status import ExitStatus

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
