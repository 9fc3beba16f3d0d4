"""`Tap`: who is shown the bytes of a link, where they are read and written.

Owns the seam and nothing behind it: whoever taps cuts frames out of the bytes, later and elsewhere. A link that nobody
taps pays for one attribute test each way.
"""

from __future__ import annotations

from typing import Protocol


class Tap(Protocol):
    """Called in the link's loop, in the middle of a call: it must not block, raise or take long."""

    def sent(self, data: bytes) -> None:
        """Whole messages that are about to be written."""

    def received(self, data: bytes, pending: int) -> None:
        """What was just read; `pending` bytes of an unfinished message came before it."""
