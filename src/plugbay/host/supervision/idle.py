"""`IdleWatch`: when a child that nobody uses may go. One deadline that moves, looked at only when it is due.

Decides when to look; whoever owns the child says whether it is needed, and acts. What counts as use is the owner's
business too.
"""

from __future__ import annotations

from collections.abc import Callable

from plugbay.link.deadlines import Deadlines

SHOWN_SECONDS = 30.0
"""How long a screen counts as shown after it was last asked for: nobody's picture goes away under their eyes."""


class IdleWatch:
    """Calls `reap` when a child has not been used for `seconds` and is not `needed` either."""

    __slots__ = ("_deadlines", "_needed", "_now", "_reap", "_seconds", "_until")

    def __init__(
        self,
        deadlines: Deadlines,
        now: Callable[[], float],
        seconds: float,
        needed: Callable[[], bool],
        reap: Callable[[], None],
    ) -> None:
        self._deadlines = deadlines
        self._seconds = seconds
        self._needed = needed
        self._reap = reap
        self._now = now
        self._until = now() + seconds
        self._look_in(seconds)

    def used(self) -> None:
        """Somebody used it: its time begins again."""
        until = self._now() + self._seconds
        if until > self._until:
            self._until = until

    def shown(self) -> None:
        """Somebody looks at it: that is a use, and lasts a while however short its time is."""
        self._until = max(self._until, self._now() + max(self._seconds, SHOWN_SECONDS))

    def stop(self) -> None:
        self._deadlines.discard(self)

    def _look_in(self, seconds: float) -> None:
        self._deadlines.add(seconds, self, IdleWatch._look)

    def _look(self) -> None:
        left = self._until - self._now()
        if left > 0:
            self._look_in(left)
        elif self._needed():
            self._look_in(self._seconds)
        else:
            self._reap()
