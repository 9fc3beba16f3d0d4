"""Tones of badges, from bad to off."""

from __future__ import annotations

import msgspec

BAD, WARN, GOOD, CALM, OFF = "bad", "warn", "good", "calm", "off"
"""Tones: broken, needs the operator, active, idle, off."""


RANKS = {BAD: 0, WARN: 1, GOOD: 2, CALM: 2, OFF: 3}
"""Problems first. Transient states do not reorder rows."""


class Badge(msgspec.Struct, frozen=True):
    """A label with a tone and a reason."""

    word: str
    tone: str
    why: str = ""
