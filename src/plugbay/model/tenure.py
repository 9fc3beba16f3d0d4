"""`Tenure`: what the holder of a lease may believe of it, by its own clock. Pure; the leases are in `store.leases`."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Standing(enum.Enum):
    """What a holder may believe of its lease, by its own clock."""

    HELD = "held"
    UNCERTAIN = "uncertain"
    """Another process may take it soon: begin nothing new."""
    OVER = "over"
    """Another process may have it."""


UNCERTAIN_SHARE, OVER_SHARE = 2 / 3, 5 / 6
"""Of the length of a lease, since the last renewal was asked for: 20 s and 25 s of 30 s. The rest is the margin for
clocks of another rate."""

RENEWALS = 6
"""Renewals in the length of a lease: every 5 s of 30 s."""


class Tenure(NamedTuple):
    """The last confirmed renewal, by the holder's own clock, which must not stop while the machine sleeps."""

    asked_at: float
    """When the renewal was asked for, not when it was confirmed: the database counts from in between."""
    seconds: float

    @property
    def over_at(self) -> float:
        """The time of the holder's clock at which nothing may be done for the lease any more."""
        return self.asked_at + self.seconds * OVER_SHARE

    def standing(self, now: float) -> Standing:
        """What the holder may believe at this time of its clock."""
        gone = now - self.asked_at
        if gone < self.seconds * UNCERTAIN_SHARE:
            return Standing.HELD
        return Standing.UNCERTAIN if gone < self.seconds * OVER_SHARE else Standing.OVER
