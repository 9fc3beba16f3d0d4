"""`Incoming`: pauses and resumes reading, and bounds a frame that has begun and does not end.

A contract's machine limits the length of a frame, and some machines skip a longer line up to its end. This module
bounds a frame without an end, in bytes and in time, for every contract.
"""

from __future__ import annotations

from collections.abc import Callable

from plugbay.link.deadlines import Deadlines
from plugbay.link.stream import ByteStream
from plugbay.model.errors import Code, Failure, Origin

MAX_UNENDED = 256 << 20
"""Bytes of a frame without an end: more than a plugin sends by mistake, so that a line that is too long can be skipped,
and read in a fraction of a second."""

FRAME_SECONDS = 10.0
"""For each `FRAME_STEP` bytes of a frame, while the peer is read: a long frame that keeps coming is not late."""

FRAME_STEP = 16 << 20
"""As long as the longest message of a contract."""

HINT = "a plugin writes each message whole and flushes it, and writes nothing else to stdout"


class Incoming:
    """The input of one link. A timer runs only while a frame is there in part."""

    __slots__ = ("_deadlines", "_fail", "_over", "_stream", "pending")

    def __init__(self, stream: ByteStream, deadlines: Deadlines, fail: Callable[[Failure], None]) -> None:
        self._stream = stream
        self._deadlines = deadlines
        self._fail = fail
        self._over = False
        self.pending = 0
        """Bytes of the frame that is under way; 0 between two frames."""

    def read(self, size: int, pending: int) -> None:
        """`size` bytes were read, and `pending` bytes of a frame without an end are there now."""
        same = self.pending > 0 and pending == self.pending + size
        self.pending = pending
        if pending > MAX_UNENDED:
            text = f"the plugin wrote more than {MAX_UNENDED:,} bytes of one message and did not end it"
            self._fail(Failure(Code.FRAME_TOO_LARGE, text, origin=Origin.PLUGIN, detail={"hint": HINT}))
        elif not same or pending // FRAME_STEP > (pending - size) // FRAME_STEP:
            self._begin()

    def pause(self) -> None:
        """Do not read the peer for a while; the time for its frame stands still."""
        self._deadlines.discard(self)
        self._stream.pause()

    def read_on(self) -> None:
        """Read it again; a frame that is there in part has its full time."""
        if not self._over:
            self._begin()
            self._stream.read_on()

    def end(self) -> None:
        """Never read it again."""
        self._over = True
        self.pause()

    def _begin(self) -> None:
        if self.pending:
            self._deadlines.add(FRAME_SECONDS, self, Incoming._late)
        else:
            self._deadlines.discard(self)

    def _late(self) -> None:
        text = f"the plugin did not end a message within {FRAME_SECONDS:g} s, of which {self.pending:,} bytes came"
        self._fail(Failure(Code.TIMEOUT, text, origin=Origin.PLUGIN, detail={"hint": HINT}))
