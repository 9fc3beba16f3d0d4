"""`Recordings`: recordings of the wire of the operator's plugins, in a private folder of the server.

Frames are redacted before they are written. Each file is bounded, and so is their number; a recording ends with its
button, with the server, or at its limit.
"""

from __future__ import annotations

import asyncio
import os
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from plugbay.host.host import Host
from plugbay.host.recording.recordings import HEADER_BYTES, SUFFIX, Recorder
from plugbay.link.recording import BadRecording, Recording, is_header, read
from plugbay.model.errors import PlugbayError
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.errors import conflict, not_found
from plugbay.server.domain.principal import Principal
from plugbay.store.database import Database

MAX_RECORDINGS = 100
"""Files in the folder; further recordings are refused until some are removed."""

MAX_LINES = 1_000
"""Lines of a recording that are read for a page."""

MAX_BYTES = 8 << 20
"""Bytes of them."""


class RecordingFile(msgspec.Struct, frozen=True):
    """A recording in the folder."""

    name: str
    plugin_id: str
    began_at: str
    size: int
    running: bool


class Recordings:
    """The recordings of one server."""

    def __init__(self, host: Host, database: Database, audit: Audit, folder: Path) -> None:
        self._host = host
        self._database = database
        self._audit = audit
        self._folder = folder
        self._running: dict[str, Recorder] = {}

    def is_running(self, plugin_id: str) -> bool:
        return plugin_id in self._running

    async def begin(self, caller: Principal, plugin_id: str) -> None:
        """Record a plugin from now on; raises `conflict` if it is recorded already or there are too many files."""
        self._require(plugin_id)
        if plugin_id in self._running:
            raise conflict("plugin.recording", f"{plugin_id} is being recorded already")
        if len(self.list()) >= MAX_RECORDINGS:
            raise conflict("plugin.recording", f"there are {MAX_RECORDINGS} recordings; remove some first")
        try:
            self._running[plugin_id] = self._host.taps.begin_recording(plugin_id, self._folder)
        except PlugbayError as error:
            raise conflict("plugin.recording", str(error)) from None
        await self._record(caller, "plugin.record", plugin_id, file=self._running[plugin_id].path.name)

    async def end(self, caller: Principal, plugin_id: str) -> None:
        """End the recording of a plugin; raises `conflict` if there is none."""
        recorder = self._running.pop(plugin_id, None)
        if recorder is None:
            raise conflict("plugin.recording", f"{plugin_id} is not being recorded")
        self._host.taps.end_recording(plugin_id, recorder)
        await self._record(caller, "plugin.record_end", plugin_id, file=recorder.path.name)

    async def remove(self, caller: Principal, name: str) -> None:
        """Remove a recording that has ended."""
        found = self.get(name)
        if found.running:
            raise conflict("plugin.recording", f"{name} is being written; end the recording first")
        (self._folder / name).unlink(missing_ok=True)
        await self._record(caller, "plugin.record_remove", found.plugin_id, file=name)

    def list(self, plugin_id: str | None = None) -> list[RecordingFile]:
        """The recordings, newest first; those of one plugin, if given."""
        try:
            names = sorted(name for name in os.listdir(self._folder) if name.endswith(SUFFIX))[: 2 * MAX_RECORDINGS]
        except OSError:
            return []
        found = [each for each in map(self._file, names) if each is not None]
        wanted = [each for each in found if plugin_id in (None, each.plugin_id)]
        return sorted(wanted, key=lambda each: (each.running, each.name), reverse=True)

    def get(self, name: str) -> RecordingFile:
        """One recording by the name of its file; raises `not_found`."""
        for each in self.list():
            if each.name == name:
                return each
        raise not_found("recording", name)

    async def read(self, name: str) -> Recording:
        """The first lines of a recording; raises `not_found` and `conflict`."""
        path = self._folder / self.get(name).name
        try:
            return await asyncio.to_thread(_read, path)
        except (OSError, BadRecording) as error:
            raise conflict("plugin.recording", f"{name} cannot be read: {error}") from None

    def _require(self, plugin_id: str) -> None:
        if plugin_id not in self._host.specs:
            raise not_found("plugin", plugin_id)

    def _file(self, name: str) -> RecordingFile | None:
        path = self._folder / name
        try:
            with path.open("rb") as file:
                line = file.readline(HEADER_BYTES)
            size = path.stat().st_size
            header = read([line]).header if is_header(line) else None
        except (OSError, BadRecording):
            return None
        if header is None:
            return None
        running = any(recorder.path == path for recorder in self._running.values())
        return RecordingFile(name, header.plugin_id, header.began_at, size, running)

    async def _record(self, caller: Principal, action: str, plugin_id: str, **details: Any) -> None:
        async with self._database.transaction() as tx:
            await self._audit.record(tx, caller, action, "plugin", plugin_id, **details)


def _read(path: Path) -> Recording:
    lines, size = [], 0
    with path.open("rb") as file:
        for line in islice(file, MAX_LINES):
            size += len(line)
            if size > MAX_BYTES:
                break
            lines.append(line)
    return read(lines)
