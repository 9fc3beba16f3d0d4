"""`Incoming`: pauses and resumes reading, and bounds a frame that has begun and does not end.

A contract's machine limits the length of a frame, and some machines skip a longer line up to its end. This module
bounds a frame without an end, in bytes and in time, for every contract. A peer whose unasked bytes keep the loop busy
is read with rests, so that the other peers have their turns.
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

RESTS = 3
"""Times as long as the loop was busy with a peer's unasked bytes, it is not read: it has a quarter of the loop."""

LONGEST_REST = 0.1
"""Seconds."""

HINT = "a plugin writes each message whole and flushes it, and writes nothing else to stdout"


class Incoming:
    """The input of one link. A timer runs only while a frame is there in part."""

    __slots__ = ("_deadlines", "_fail", "_over", "_paused", "_resting", "_stream", "pending")

    def __init__(self, stream: ByteStream, deadlines: Deadlines, fail: Callable[[Failure], None]) -> None:
        self._stream = stream
        self._deadlines = deadlines
        self._fail = fail
        self._over = self._paused = self._resting = False
        self.pending = 0
        """Bytes of the frame that is under way; 0 between two frames."""

    def read(self, size: int, pending: int) -> None:
        """`size` bytes were read, and `pending` bytes of a frame without an end are there now."""
        same = self.pending > 0 and pending == self.pending + size
        self.pending = pending
        if pending > MAX_UNENDED:
            text = f"the plugin wrote more than {MAX_UNENDED:,} bytes of one message without an end"
            self._fail(Failure(Code.FRAME_TOO_LARGE, text, origin=Origin.PLUGIN, detail={"hint": HINT}))
        elif not same or pending // FRAME_STEP > (pending - size) // FRAME_STEP:
            self._begin()

    def pause(self) -> None:
        """Do not read the peer for a while; the time for its frame stands still."""
        self._paused = True
        self._stop_reading()

    def read_on(self) -> None:
        """Read it again; a frame that is there in part has its full time."""
        self._paused = False
        self._go_on()

    def rest(self, busy: float) -> None:
        """Its bytes kept the loop busy for so many seconds, and were no answer: read it again after a rest."""
        if not self._resting:
            self._resting = True
            self._stop_reading()
            self._deadlines.add(min(RESTS * busy, LONGEST_REST), self.wake, _call)

    def wake(self) -> None:
        """End the rest, if there is one."""
        if self._resting:
            self._deadlines.discard(self.wake)
            self._resting = False
            self._go_on()

    def end(self) -> None:
        """Never read it again."""
        self._over = True
        self._deadlines.discard(self.wake)
        self.pause()

    def _stop_reading(self) -> None:
        self._deadlines.discard(self)
        self._stream.pause()

    def _go_on(self) -> None:
        if not (self._over or self._paused or self._resting):
            self._begin()
            self._stream.read_on()

    def _begin(self) -> None:
        if self.pending:
            self._deadlines.add(FRAME_SECONDS, self, Incoming._late)
        else:
            self._deadlines.discard(self)

    def _late(self) -> None:
        text = f"the plugin did not end a message within {FRAME_SECONDS:g} s, of which {self.pending:,} bytes came"
        self._fail(Failure(Code.TIMEOUT, text, origin=Origin.PLUGIN, detail={"hint": HINT}))


def _call(wake: Callable[[], None]) -> None:
    wake()
