"""`Relay`: what of a host's bus leaves it, and what comes in from others. Knows no broker and waits for nothing.

Owns the queue of what is to leave, the gate in front of what comes in, and that no event goes round in a circle. What
comes in is as untrusted as what a plugin says: it is bounded, read strictly, completed, and told to those who listen
here, each within the topics it may hear.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from plugbay.host.config.sections import BrokerConfig, is_own, topic_problem
from plugbay.host.events.bus import Bus, BusEvent, Subscription
from plugbay.host.events.subjects import matches
from plugbay.host.inbound.handler import MAX_EVENT
from plugbay.host.journal import Journal
from plugbay.host.rate import TokenBucket
from plugbay.host.stamps import new_uuid, utc_now
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import Malformed
from plugbay.wire.strict_json import Unencodable

WAITING = 1_024
"""Events that wait for the broker. The oldest is dropped for a new one: after an outage, what is new counts."""

WAITING_BYTES = 16 << 20
"""Of all that wait: a host gives no more memory than this to a broker that is away."""

EVENTS_PER_SECOND = 2_000.0
EVENT_BURST = 4_000.0
"""From all other hosts together. Each takes 50 to 130 us to be read and told here: of one core a quarter at most."""

MAX_SOURCE = 256
"""Characters of who published an event, as another host says it."""

HOST = "host"
"""Under whom the journal keeps these remarks."""

_CODEC = MsgspecCodec()


class Leaving(NamedTuple):
    """One event on its way out."""

    topic: str
    data: bytes


class Relay:
    """One host's bus, seen from outside."""

    def __init__(
        self, settings: BrokerConfig, bus: Bus, journal: Journal, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock`: seconds that never go back."""
        self._clock = clock
        self._topics = tuple(settings.topics)
        self._bus = bus
        self._journal = journal
        self._subscription: Subscription | None = None
        self._waiting: deque[Leaving] = deque()
        self._bytes = 0
        self._arriving: BusEvent | None = None
        """What is being told here now. It is the same object for every listener, so we know it when it comes to us."""
        self._bucket = TokenBucket(EVENTS_PER_SECOND, EVENT_BURST)
        self.wake: Callable[[], object] = lambda: None
        """Called when there is something to send."""
        self.sent = self.received = self.dropped = self.refused = 0

    def open(self) -> None:
        """From now on, what is published here under a shared topic waits to be sent."""
        self._subscription = self._bus.listen(self._topics, self._leave)

    def close(self) -> None:
        if self._subscription is not None:
            self._subscription.cancel()
            self._subscription = None

    # What leaves.

    def _leave(self, event: BusEvent) -> bool:
        if event is self._arriving or is_own(event.topic):
            return False
        problem = topic_problem(event.topic)
        if problem is not None:
            return self._kept(f"{event.topic!r} {problem}")
        try:
            data = bytes(event.raw())
        except Unencodable as error:  # an application may publish anything
            return self._kept(f"an event of {event.topic!r} has no JSON form: {error}")
        if len(data) > MAX_EVENT:
            return self._kept(f"an event of {event.topic!r} has {len(data):,} bytes; at most {MAX_EVENT:,}")
        self._waiting.append(Leaving(event.topic, data))
        self._bytes += len(data)
        while len(self._waiting) > WAITING or self._bytes > WAITING_BYTES:
            self._bytes -= len(self._waiting.popleft().data)
            self.lost("the broker is away or slow, and too many wait: the oldest was dropped")
        self.wake()
        return True

    def _kept(self, why: str) -> bool:
        """The event is told here and nowhere else."""
        self._journal.note(HOST, "event_not_shared", why)
        return False

    def take(self) -> Leaving | None:
        """The event that waits longest, not waiting any more."""
        if not self._waiting:
            return None
        leaving = self._waiting.popleft()
        self._bytes -= len(leaving.data)
        return leaving

    def lost(self, why: str) -> None:
        """An event that was to leave did not."""
        self.dropped += 1
        self._journal.note(HOST, "broker_event_dropped", why)

    # What comes in.

    def arrive(self, topic: str, data: bytes) -> None:
        """Somebody says that this happened elsewhere. Never raises."""
        event = self._read(topic, data)
        if isinstance(event, str):
            self.refuse(f"{topic[:100]!r}: {event}")
            return
        self.received += 1
        self._arriving = event
        try:
            self._bus.publish(event)
        finally:
            self._arriving = None

    def refuse(self, why: str) -> None:
        """Something came that is not told here."""
        self.refused += 1
        self._journal.note(HOST, "broker_event_refused", why)

    def _read(self, topic: str, data: bytes) -> BusEvent | str:
        """The event, or why it is none for us; the cheap questions first."""
        if not self._bucket.take(self._clock()):
            return f"more than {EVENTS_PER_SECOND:g} events a second"
        if len(data) > MAX_EVENT:
            return f"{len(data):,} bytes; at most {MAX_EVENT:,}"
        problem = topic_problem(topic)
        if problem is not None:
            return problem
        if not any(matches(pattern, topic) for pattern in self._topics):
            return "not a topic that is shared here"
        try:
            written = _CODEC.decode(data)
        except Malformed as error:
            return str(error)
        source = written.get("source", "") if isinstance(written, dict) else ""
        if not isinstance(source, str) or len(source) > MAX_SOURCE or not source.isprintable():
            return f"its source is no text of at most {MAX_SOURCE} characters"
        event = BusEvent.complete(topic, source or "broker", written, new_id=new_uuid, now=utc_now)
        if isinstance(event, BusEvent) and memoryview(event.raw()).nbytes > MAX_EVENT:
            return f"more than {MAX_EVENT:,} bytes as this host writes it"
        return event
