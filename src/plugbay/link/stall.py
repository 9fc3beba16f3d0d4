"""`StallWatch`: notices a peer that has stopped reading. Armed only while bytes wait, so an idle link costs nothing."""

from __future__ import annotations

from collections.abc import Callable

from plugbay.link.deadlines import Deadlines
from plugbay.link.stream import ByteStream
from plugbay.model.errors import Code, Failure

WRITE_STALL = 10.0
"""Seconds a peer may leave our bytes unread before it counts as hung."""


class StallWatch:
    """Looks once per limit whether the peer has taken anything; reports it when it has not."""

    __slots__ = ("_deadlines", "_report", "_sent", "_stream")

    def __init__(self, stream: ByteStream, deadlines: Deadlines, report: Callable[[Failure], None]) -> None:
        self._stream = stream
        self._deadlines = deadlines
        self._report = report
        self._arm()

    def _arm(self) -> None:
        self._sent = self._stream.sent
        self._deadlines.add(WRITE_STALL, self, StallWatch._look)

    def stop(self) -> None:
        self._deadlines.discard(self)

    def _look(self) -> None:
        if self._stream.sent != self._sent:
            self._arm()
            return
        why = f"the plugin has not read its input for {WRITE_STALL:g} s"
        self._report(Failure(Code.TIMEOUT, why, detail={"unread_bytes": self._stream.buffered}))
