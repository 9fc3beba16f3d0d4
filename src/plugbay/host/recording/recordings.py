"""`Recorder`: writes the tapped items of one plugin into a file, one line each.

The file is private (0600), never larger than its limit, and appended to with one write per line, so that it survives a
crash of the host. A full disk only ends the recording. `link.recording` defines the lines; items are already redacted.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from datetime import UTC, datetime
from pathlib import Path

from plugbay.contracts.registry import CONTRACTS
from plugbay.link.recording import Frame, Header, Item, encode, is_header
from plugbay.model.errors import PlugbayError
from plugbay.model.spec import PluginSpec
from plugbay.process.stderr import log_name

MAX_RECORDING = 256 << 20
"""Bytes of a recording: hours of an ordinary plugin, without filling a disk."""

MAX_FRAME = 4 << 20
"""Bytes of a frame that is recorded whole. A longer one is truncated, marked so, and cannot be replayed."""

HEADER_BYTES = 65_536
"""Maximum size of the first line."""

END_ROOM = 256
"""Bytes reserved for the last line."""

SUFFIX = ".jsonl"

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


class Recorder:
    """A recording in progress. Once it is open, errors of the disk are kept in `problem` and never raised."""

    largest = MAX_FRAME

    def __init__(self, path: Path, header: Header, *, most: int = MAX_RECORDING) -> None:
        """Raises `PlugbayError` if the file cannot be created."""
        self.path = path
        self.frames = self.redactions = self.dropped = 0
        self.problem = ""
        """Why recording has stopped; empty while it goes on."""
        self._left = most - END_ROOM
        try:
            self._fd = os.open(path, _FLAGS, 0o600)
        except OSError as error:
            raise PlugbayError(f"cannot record to {path}: {error.strerror}") from None
        self._write(encode(header))

    def take(self, item: Item) -> None:
        line = encode(item)
        if self.problem or len(line) > self._left:
            self.problem = self.problem or f"the recording has reached its limit; later frames are not in {self.path}"
            self.dropped += 1
            return
        self._write(line)
        if isinstance(item, Frame):
            self.frames += 1
            self.redactions += len(item.redacted)

    def close(self) -> None:
        """Write the last line with the counts. May be called twice."""
        if self._fd < 0:
            return
        counts = {"frames": self.frames, "redactions": self.redactions, "dropped": self.dropped}
        self._left += END_ROOM
        self._write(encode({"ended_at": rfc3339_ms(time.time()), **counts}))
        os.close(self._fd)
        self._fd = -1

    def _write(self, line: bytes) -> None:
        self._left -= len(line)
        try:
            written = os.write(self._fd, line)
        except OSError as error:
            self.problem = f"cannot write to {self.path}: {error.strerror}"
            self.dropped += 1
            return
        if written < len(line):  # the disk is full: nothing may follow an incomplete line
            self.problem = f"cannot write to {self.path}: the disk is full"
            self.dropped += 1


def record_file(path: Path, spec: PluginSpec, began: float) -> Recorder:
    """A recorder for this file. Replaces an older recording, but refuses to replace any other file."""
    if path.is_symlink() or (path.exists() and not _is_recording(path)):
        raise PlugbayError(f"{path} exists and is not a recording; choose another file")
    path.unlink(missing_ok=True)
    return Recorder(path, header_of(spec, began))


def record_in(folder: Path, spec: PluginSpec, began: float) -> Recorder:
    """A recorder for a new file in this folder, named after the plugin."""
    name = log_name(spec.id).removesuffix(".log")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise PlugbayError(f"cannot record in {folder}: {error.strerror}") from None
    number = 1
    while (path := folder / f"{name}{'' if number == 1 else f'.{number}'}{SUFFIX}").exists():
        number += 1
    return Recorder(path, header_of(spec, began))


def header_of(spec: PluginSpec, began: float) -> Header:
    """`began`: the epoch seconds at time zero of the frames."""
    return Header(spec.contract, spec.id, spec.version, _digest(spec), rfc3339_ms(began))


def rfc3339_ms(epoch_seconds: float) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    return datetime.fromtimestamp(epoch_seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _digest(spec: PluginSpec) -> str:
    """The digest of the manifest; empty if there is no readable one."""
    for name in CONTRACTS[spec.contract].manifest_files:
        try:
            return f"sha256:{hashlib.sha256((spec.root / name).read_bytes()).hexdigest()}"
        except OSError:
            continue
    return ""


def _is_recording(path: Path) -> bool:
    if not stat.S_ISREG(path.stat().st_mode):
        return False
    with path.open("rb") as file:
        return is_header(file.readline(HEADER_BYTES))
