"""`Grace`: cancels one call but keeps its caller waiting, because an answer in time still counts.

The peer is told once why the call is cancelled, and has some seconds to answer all the same. The holder of a call's
`Grace` may cancel it; the link does so at the deadline.
"""

from __future__ import annotations

from collections.abc import Callable

from plugbay.model.errors import Code, Failure

DEADLINE = "deadline_exceeded"
"""The reason that the link itself gives."""


class Grace:
    """The calling off of one call. For one call only."""

    __slots__ = ("_tell", "over", "reason", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._tell: Callable[[], None] | None = None
        self.reason = ""
        """What the peer was told; empty while the call is wanted."""
        self.over = False
        """Whether the time went by without an answer."""

    @property
    def asked(self) -> bool:
        """Whether the peer has been asked and has not answered yet."""
        return self._tell is not None

    def cancel(self, reason: str) -> bool:
        """Tell the peer; False when there is nobody to tell: not asked yet, answered, or told already."""
        if self._tell is None or self.reason:
            return False
        self.reason = reason
        self._tell()
        return True

    # For the link.

    def begin(self, tell: Callable[[], None]) -> None:
        self._tell = tell

    def end(self) -> None:
        self._tell = None

    def ignored(self) -> Failure:
        """The time went by without an answer."""
        self.over = True
        text = f"it was told to stop ({self.reason}) and did not answer within {self.seconds:g} s"
        return Failure(Code.TIMEOUT if self.reason == DEADLINE else Code.CANCELLED, text)
