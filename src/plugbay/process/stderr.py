"""Drains the stderr of a child, keeps a bounded tail and writes a bounded log.

Splits into lines and removes control characters. Text on stderr is not an error.

The pipe is read from the moment the child exists. A host that forgets this blocks its plugins as soon as they have
written 64 KiB. A plugin that writes without end gets a fixed share of the loop, whatever its lines cost: reading is
followed by a rest of a multiple of its duration, in which the pipe slows the plugin down. Neither memory nor disk
grows with its output.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from plugbay.model.text import printable

if TYPE_CHECKING:
    import asyncio

KIB = 1024

READ_BYTES = 64 * KIB
"""The size of a Linux pipe: one read empties it. A user with many pipes gets smaller ones."""

READING_SECONDS = 0.001
REST_FACTOR = 3
"""A pipe that is full at each read is read for so long, and then left alone for so many times as long: a flood has a
quarter of the loop. Most floods end soon, and the plugin that writes one answers no call before it has written it."""

LINE_BYTES = 8 * KIB
"""Longer than any stack trace line; a longer line is cut and marked."""

RING_BYTES = 64 * KIB
RING_LINES = 200
"""Limits of the tail for an error report."""

FINAL_BYTES = 1024 * KIB
"""The largest a pipe can be without privileges: `drain_now` ends here even if something keeps writing."""

LOG_BYTES = 10 * 1024 * KIB
LOG_FILES = 3
"""Per plugin: the current file and three older ones, 40 MiB at most."""

LOG_RATE = 64 * KIB
LOG_BURST = 1024 * KIB
"""Bytes per second, and at once: a stack trace storm gets through, a flood does not fill the disk."""

LOG_RESUME = 16 * KIB
"""The budget that must be free before a flooded log continues: blocks of lines with a count between them, not single
lines with a count each."""

HELD_LINES = 100
"""The newest of the lines that came too fast, `LOG_RESUME` at most: they are written later, because the last words
before a silence say why."""

HELD_SECONDS = 1.0
"""Seconds until held lines are written if no other line follows them."""

NAME_BYTES = 200
"""A file name may have 255 bytes; this leaves room for `.log` and the number of a rotated file."""

HOST_TAG = "[plugbay]"
"""Of lines in a log that the host has written."""

CUT = "…"
"""Ends a line whose rest was dropped."""

_CUT = CUT.encode()
_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_LOG_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


def log_name(label: str) -> str:
    """A file name for a plugin id: no separators, no leading dot, and never the same for two ids."""
    raw = label.encode("utf-8", "surrogatepass")
    name = "".join(chr(byte) if byte in _SAFE else f"%{byte:02X}" for byte in raw)
    if name.startswith("."):
        name = "%2E" + name[1:]
    if len(name) > NAME_BYTES:
        digest = hashlib.blake2s(raw, digest_size=8).hexdigest()
        name = f"{name[: NAME_BYTES - len(digest) - 1]}~{digest}"
    return (name or "%") + ".log"


class RotatingLog:
    """One plugin's log file, shared by all its children. Nothing it meets on the disk ever raises.

    The file is opened for each write and closed again: a thousand idle plugins hold no descriptor, and a file
    that was moved away or a disk that was full needs no special care.
    """

    __slots__ = ("_allowance", "_clock", "_held", "_keep", "_max_bytes", "_owed", "_refilled", "dropped", "path")

    def __init__(
        self,
        path: Path,
        max_bytes: int = LOG_BYTES,
        keep: int = LOG_FILES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self.dropped = 0
        """Lines that are in no file: they came too fast, or the file could not be written."""
        self._max_bytes = max_bytes
        self._keep = keep
        self._clock = clock
        self._allowance = float(LOG_BURST)
        self._refilled = clock()
        self._owed = 0
        """Lines since the last written one: too many, or the file could not be written."""
        self._held: list[bytes] = []
        """The newest of them, as they will be written."""

    @property
    def is_behind(self) -> bool:
        """Whether lines wait to be written or to be counted in the file."""
        return self._owed > 0

    def write(self, lines: Sequence[bytes], tag: str = "") -> None:
        """Append raw lines within the rate, with time and `tag`; hold the newest of the others, and count the rest."""
        prefix = f"{_stamp()} {tag} " if tag else f"{_stamp()} "
        if not self.catch_up():
            self._drop(lines, prefix)
            return
        kept: list[bytes] = []
        for line in lines:
            text = _text(prefix, line)
            if len(text) > self._allowance:
                break
            self._allowance -= len(text)
            kept.append(text)
        if kept and not self._put(b"".join(kept)):
            kept.clear()
        self._drop(lines[len(kept) :], prefix)

    def catch_up(self) -> bool:
        """Write the held lines if the rate allows it; True if none waits any more."""
        self._refill()
        if not self._owed:
            return True
        return self._allowance >= LOG_RESUME and self._write_held()

    def conclude(self) -> None:
        """Write the held lines now; for the end of a child, after which no line may follow."""
        if self._owed:
            self._write_held()

    def _refill(self) -> None:
        now = self._clock()
        self._allowance = min(LOG_BURST, self._allowance + (now - self._refilled) * LOG_RATE)
        self._refilled = now

    def _write_held(self) -> bool:
        """Write how many lines are missing, and the newest ones behind it."""
        missing = self._owed - len(self._held)
        # The time of the line behind it: readers sort by time, and the held lines are older than this moment.
        at = self._held[0].partition(b" ")[0].decode() if self._held else _stamp()
        marker = f"{at} {HOST_TAG} {missing} lines dropped: too many, or the log could not be written\n"
        data = (marker.encode() if missing else b"") + b"".join(self._held)
        if not self._put(data):
            return False
        self._allowance -= len(data)
        self.dropped -= len(self._held)
        self._owed, self._held = 0, []
        return True

    def _drop(self, lines: Sequence[bytes], prefix: str) -> None:
        if not lines:
            return
        self.dropped += len(lines)
        self._owed += len(lines)
        newest = [*self._held, *(_text(prefix, line) for line in lines[-HELD_LINES:])][-HELD_LINES:]
        room = LOG_RESUME
        self._held = []
        for text in reversed(newest):
            room -= len(text)
            if room < 0:
                break
            self._held.insert(0, text)

    def _put(self, data: bytes, rotate: bool = True) -> bool:
        """Append to the file; False if that is not possible."""
        try:
            fd = os.open(self.path, _LOG_FLAGS, 0o600)
            try:
                full = self._is_full(fd, len(data))
                if not full:
                    os.write(fd, data)
            finally:
                os.close(fd)
            if full and rotate:
                self._rotate()
                return self._put(data, rotate=False)
        except OSError:
            return False
        return not full

    def _is_full(self, fd: int, more: int) -> bool:
        status = os.fstat(fd)
        return stat.S_ISREG(status.st_mode) and status.st_size > 0 and status.st_size + more > self._max_bytes

    def _rotate(self) -> None:
        for number in range(self._keep, 0, -1):
            older = self._numbered(number - 1)
            if number == 1 or older.exists():
                os.replace(older, self._numbered(number))
        if self._keep == 0:
            os.truncate(self.path, 0)

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path


class StderrDrain:
    """Reads one pipe for as long as it is open. Owns `fd`."""

    __slots__ = (
        "_arrivals",
        "_busy",
        "_cut",
        "_fd",
        "_full",
        "_held",
        "_late",
        "_lines",
        "_log",
        "_loop",
        "_partial",
        "_read_at",
        "_rest",
        "_tag",
        "_total",
        "clean",
        "copy",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, log: RotatingLog | None = None, tag: str = "") -> None:
        self._loop = loop
        self._fd = fd
        self._log = log
        self._tag = tag
        # Made with the first line: most children never write one, and an empty deque already holds 0.6 KiB.
        self._lines: deque[bytes] | None = None
        self._arrivals: deque[tuple[float, int]] | None = None
        """When lines arrived, on `monotonic`, and the number of lines before them. A chunk has at least one line."""
        self._total = 0
        self._read_at = 0.0
        """When the current read began, on `monotonic`."""
        self._held = 0
        self._partial = b""
        self._cut = False
        self._busy = 0.0
        """Seconds of reading since the last rest, or since the pipe was not full."""
        self._rest: asyncio.TimerHandle | None = None
        """The end of a pause; None while the pipe is being read."""
        self._late: asyncio.TimerHandle | None = None
        """Writes lines that the logs hold back."""
        self._full = min(_pipe_size(fd), READ_BYTES)
        """Bytes of a read that found the pipe full."""
        self.clean: Callable[[list[bytes]], list[bytes]] | None = None
        """Cleans lines before they are kept or written."""
        self.copy: RotatingLog | None = None
        """A second log for the same lines."""
        try:
            os.set_blocking(fd, False)
            loop.add_reader(fd, self._readable)
        except BaseException:
            os.close(fd)
            raise

    def tail(self, lines: int = 20, since: float | None = None) -> list[str]:
        """The last lines, oldest first, safe to print; an unfinished last line counts.

        With `since`, a time of `monotonic`, only lines that arrived from then on.
        """
        kept = list(self._lines or ())
        if since is not None:
            earlier = next((before for at, before in self._arrivals or () if at >= since), self._total)
            kept = kept[max(0, len(kept) - (self._total - earlier)) :]
        if self._partial:
            kept.append(self._finished())
        return [printable(line) for line in kept[-lines:]] if lines > 0 else []

    def copy_to(self, log: RotatingLog) -> None:
        """Write the kept lines, and all later ones, to this log as well."""
        self.copy = log
        if self._lines:
            log.write(list(self._lines), self._tag)
            self._write_later()

    def note(self, text: str) -> None:
        """Write a line of the host to the logs. It is not part of the tail, which is the child's own."""
        self._write([text.encode("utf-8", "backslashreplace")], HOST_TAG)

    def drain_now(self) -> None:
        """Read the pipe until it is empty, without waiting."""
        self._read_at = time.monotonic()
        taken = 0
        while taken < FINAL_BYTES:
            size = self._read()
            if size == 0:
                return
            taken += size

    def close(self) -> None:
        """Stop reading; the tail stays. A process that still writes into the pipe gets SIGPIPE."""
        if self._fd < 0:
            return
        if self._rest is not None:
            self._rest.cancel()
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._fd = -1
        if self._partial:
            self._keep([self._finished()])
            self._partial = b""
        for log in self._logs():
            log.conclude()
        if self._late is not None:
            self._late.cancel()

    def forget(self) -> None:
        """Give back the descriptor when the loop is gone."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _readable(self) -> None:
        self._read_at = began = time.monotonic()
        if self._read() < self._full:
            self._busy = 0.0
            return
        self._busy += time.monotonic() - began
        if self._busy >= READING_SECONDS:
            self._loop.remove_reader(self._fd)
            self._rest = self._loop.call_later(REST_FACTOR * self._busy, self._read_on)
            self._busy = 0.0

    def _read_on(self) -> None:
        self._rest = None
        self._loop.add_reader(self._fd, self._readable)

    def _read(self) -> int:
        """One bounded read; 0 when there is nothing to read now, or ever again."""
        if self._fd < 0:
            return 0
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        if not data:
            self.close()
            return 0
        self._split(data)
        return len(data)

    def _split(self, data: bytes) -> None:
        # Whole chunks first: a flood of short lines must not cost a call for each of them.
        lines = data.replace(b"\r\n", b"\n").split(b"\n")
        last = lines.pop()
        if lines:
            self._extend(lines[0])
            lines[0] = self._finished()
            self._partial, self._cut = b"", False
            if max(map(len, lines)) > LINE_BYTES:
                lines[1:] = map(_capped, lines[1:])
            self._keep(lines)
        self._extend(last)

    def _extend(self, piece: bytes) -> None:
        """Add to the unfinished line, up to its cap."""
        room = LINE_BYTES - len(self._partial)
        self._cut = self._cut or len(piece) > room
        if piece and room > 0:
            self._partial += piece[:room]

    def _finished(self) -> bytes:
        return self._partial + _CUT if self._cut else self._partial.removesuffix(b"\r")

    def _keep(self, lines: list[bytes]) -> None:
        if self.clean is not None:
            lines = self.clean(lines)
        self._write(lines, self._tag)
        if self._lines is None:
            self._lines = deque()
            self._arrivals = deque(maxlen=RING_LINES)
        assert self._arrivals is not None
        self._arrivals.append((self._read_at, self._total))
        self._total += len(lines)
        for line in lines[-RING_LINES:]:
            self._lines.append(line)
            self._held += len(line)
        while self._held > RING_BYTES or len(self._lines) > RING_LINES:
            self._held -= len(self._lines.popleft())

    def _logs(self) -> list[RotatingLog]:
        return [log for log in (self._log, self.copy) if log is not None]

    def _write(self, lines: list[bytes], tag: str) -> None:
        for log in self._logs():
            log.write(lines, tag)
        self._write_later()

    def _write_later(self) -> None:
        if self._late is None and self._fd >= 0 and any(log.is_behind for log in self._logs()):
            self._late = self._loop.call_later(HELD_SECONDS, self._catch_up)

    def _catch_up(self) -> None:
        self._late = None
        for log in self._logs():
            log.catch_up()
        self._write_later()


def _pipe_size(fd: int) -> int:
    """The capacity of a pipe, where the system tells it."""
    command = getattr(fcntl, "F_GETPIPE_SZ", None)
    try:
        return READ_BYTES if command is None else fcntl.fcntl(fd, command)
    except OSError:  # no pipe
        return READ_BYTES


def _capped(line: bytes) -> bytes:
    return line if len(line) <= LINE_BYTES else line[:LINE_BYTES] + _CUT


def _text(prefix: str, line: bytes) -> bytes:
    """A line as it is in the file."""
    return f"{prefix}{printable(line)}\n".encode("utf-8", "backslashreplace")


def _stamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
