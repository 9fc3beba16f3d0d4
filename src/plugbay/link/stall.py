"""`StallWatch`: what to do about a peer that has stopped reading: hear no more of its questions, then give it up.

Armed only while bytes wait, so an idle link costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from plugbay.link.deadlines import Deadlines
from plugbay.link.stream import ByteStream
from plugbay.model.errors import Code, Failure

WRITE_STALL = 10.0
"""Seconds a peer may leave our bytes unread before it counts as hung."""

MAX_UNREAD = 16 << 20
"""Bytes waiting for a peer, past which it is not read any more either: answers are never dropped, so whoever only asks
has to wait. Twice what calls alone may fill, because a peer that does one thing at a time must get its answers out."""


class StallWatch:
    """Looks once per limit whether the peer has taken anything; reports it when it has not."""

    __slots__ = ("_deadlines", "_muted", "_report", "_sent", "_stream")

    def __init__(self, stream: ByteStream, deadlines: Deadlines, report: Callable[[Failure], None]) -> None:
        self._stream = stream
        self._deadlines = deadlines
        self._report = report
        self._muted = False
        self._arm()

    def _arm(self) -> None:
        self._sent = self._stream.sent
        self._deadlines.add(WRITE_STALL, self, StallWatch._look)

    def written(self) -> None:
        """More bytes wait now."""
        if self._stream.buffered > MAX_UNREAD and not self._muted:
            self._muted = True
            self._stream.pause()

    def stop(self) -> None:
        """The peer has read everything, or is gone."""
        self._deadlines.discard(self)
        if self._muted:
            self._stream.read_on()

    def _look(self) -> None:
        if self._stream.sent != self._sent:
            self._arm()
            return
        why = f"the plugin has not read its input for {WRITE_STALL:g} s"
        self._report(Failure(Code.TIMEOUT, why, detail={"unread_bytes": self._stream.buffered}))
