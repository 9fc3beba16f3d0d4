"""`Rates`: how often each caller may ask. Remembers those that asked last, as many as it has room for."""

from __future__ import annotations

from collections import OrderedDict

from plugbay.host.rate import TokenBucket
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.errors import too_many
from plugbay.server.domain.principal import Principal

MAX_CALLERS = 10_000
"""Callers remembered; one that is forgotten begins with a full bucket."""


class Rates:
    """A bucket for each caller."""

    def __init__(self, clock: Clock, per_second: float, burst: float) -> None:
        self._clock = clock
        self._per_second = per_second
        self._burst = burst
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def take(self, principal: Principal) -> None:
        """One request more; raises when those are too many."""
        bucket = self._buckets.get(principal.id)
        if bucket is None:
            bucket = self._buckets[principal.id] = TokenBucket(self._per_second, self._burst)
        self._buckets.move_to_end(principal.id)
        while len(self._buckets) > MAX_CALLERS:
            self._buckets.popitem(last=False)
        if not bucket.take(self._clock.monotonic()):
            text = f"more than {self._per_second:g} requests a second"
            raise too_many(text, retry_after=1 / self._per_second)
