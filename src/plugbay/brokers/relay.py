"""`Relay`: the queue of events that leave a host, and the checks on events that arrive. Independent of the broker.

Arriving events are as untrusted as those of plugins: rate and size are limited, JSON is parsed strictly, missing fields
are filled in. An event that arrived is never sent back, so events do not loop.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from plugbay.host.config.sections import BrokerConfig, is_own, topic_problem
from plugbay.host.events.bus import Bus, BusEvent, Subscription
from plugbay.host.journal import Journal
from plugbay.host.limits import TokenBucket
from plugbay.host.stamps import new_uuid, utc_now
from plugbay.model.gate import MAX_EVENT
from plugbay.model.topics import matches
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import Malformed
from plugbay.wire.strict_json import Unencodable

MAX_QUEUED = 1_024
"""Queued events. When the queue is full, the oldest is dropped: after an outage, new events matter more."""

MAX_QUEUED_BYTES = 16 << 20
"""Bytes of the queue."""

EVENTS_PER_SECOND = 2_000.0
EVENT_BURST = 4_000.0
"""From all other hosts together. Each event costs 50 to 130 us, so this is at most a quarter of one core."""

MAX_SOURCE = 256
"""Characters of the `source` of an arriving event."""

HOST = "host"
"""The journal entry that these notes belong to."""

_CODEC = MsgspecCodec()


class QueuedEvent(NamedTuple):
    """One queued event."""

    topic: str
    data: bytes


class Relay:
    """The relay of one host's bus."""

    def __init__(
        self, settings: BrokerConfig, bus: Bus, journal: Journal, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock`: monotonic seconds."""
        self._clock = clock
        self._topics = tuple(settings.topics)
        self._bus = bus
        self._journal = journal
        self._subscription: Subscription | None = None
        self._queue: deque[QueuedEvent] = deque()
        self._bytes = 0
        self._arriving: BusEvent | None = None
        """The arriving event that is being published. All listeners get the same object, so we recognise it."""
        self._bucket = TokenBucket(EVENTS_PER_SECOND, EVENT_BURST)
        self.wake: Callable[[], object] = lambda: None
        """Called when an event was queued."""
        self.sent = self.received = self.dropped = self.refused = 0

    def open(self) -> None:
        """Start queueing events with shared topics."""
        self._subscription = self._bus.listen(self._topics, self._enqueue)

    def close(self) -> None:
        if self._subscription is not None:
            self._subscription.cancel()
            self._subscription = None

    # Outgoing.

    def _enqueue(self, event: BusEvent) -> bool:
        if event is self._arriving or is_own(event.topic):
            return False
        problem = topic_problem(event.topic)
        if problem is not None:
            return self._not_shared(f"{event.topic!r} {problem}")
        try:
            data = bytes(event.raw())
        except Unencodable as error:  # an application may publish any object
            return self._not_shared(f"an event of {event.topic!r} has no JSON form: {error}")
        if len(data) > MAX_EVENT:
            return self._not_shared(f"an event of {event.topic!r} has {len(data):,} bytes; at most {MAX_EVENT:,}")
        self._queue.append(QueuedEvent(event.topic, data))
        self._bytes += len(data)
        while len(self._queue) > MAX_QUEUED or self._bytes > MAX_QUEUED_BYTES:
            self._bytes -= len(self._queue.popleft().data)
            self.drop("the broker is unavailable or slow, and the queue is full: the oldest event was dropped")
        self.wake()
        return True

    def _not_shared(self, why: str) -> bool:
        """Note why an event is not shared."""
        self._journal.note(HOST, "event_not_shared", why)
        return False

    def take(self) -> QueuedEvent | None:
        """Take the oldest event from the queue."""
        if not self._queue:
            return None
        leaving = self._queue.popleft()
        self._bytes -= len(leaving.data)
        return leaving

    def drop(self, why: str) -> None:
        """Count and note an outgoing event that was dropped."""
        self.dropped += 1
        self._journal.note(HOST, "broker_event_dropped", why)

    # Incoming.

    def receive(self, topic: str, data: bytes) -> None:
        """Publish an event of another host here, if it is valid. Never raises."""
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
        """Count and note an arriving event that was refused."""
        self.refused += 1
        self._journal.note(HOST, "broker_event_refused", why)

    def _read(self, topic: str, data: bytes) -> BusEvent | str:
        """The event, or why it is refused; cheap checks first."""
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
            return f"its source is not text of at most {MAX_SOURCE} characters"
        event = BusEvent.complete(topic, source or "broker", written, new_id=new_uuid, now=utc_now)
        if isinstance(event, BusEvent) and memoryview(event.raw()).nbytes > MAX_EVENT:
            return f"more than {MAX_EVENT:,} bytes as JSON"
        return event
