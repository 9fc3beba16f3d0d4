"""The event bus of one host: publishers name a subject, subscribers a pattern.

Each subscriber gets each event at most once; streams are bounded. Publishing is synchronous, on one loop, never blocks
and never fails because of a subscriber. Permissions are checked elsewhere.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import force_setattr

from plugbay.host.stamps import as_utc, is_uuid
from plugbay.model.topics import ANY, REST, subject_problem
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import Unencodable

DEPTH = 64
"""Events that wait for a slow consumer; the same number that a plugin's outgoing queue holds."""

CACHED_TOPICS = 4_096
"""Topics whose subscribers are cached. Each takes at most 4 KiB, so a flood of new topics costs the host 16 MiB."""

_CODEC = MsgspecCodec()

T = TypeVar("T", bound=Hashable)


class BusEvent(msgspec.Struct, frozen=True, eq=False):
    """One event, the same for every subscriber."""

    id: str
    """A UUID."""
    timestamp: str
    """RFC 3339, UTC."""
    topic: str
    source: str
    payload: Any
    session_id: str | None = None
    correlation_id: str | None = None
    metadata: Mapping[str, Any] | None = None
    _raw: msgspec.Raw | None = None
    """Its JSON; not part of a comparison."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BusEvent) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]  # a payload is anything

    @classmethod
    def complete(
        cls, topic: str, source: str, event: object, *, new_id: Callable[[], str], now: Callable[[], str]
    ) -> BusEvent | str:
        """The full event for a published one, or why it is refused.

        All fields are optional. Missing or malformed ones are generated or dropped; topic and source always come from
        the host. A complete event can be encoded as JSON.
        """
        problem = subject_problem(topic)
        if problem is not None:
            return problem
        if not isinstance(event, Mapping):
            return f"an event is an object, not {type(event).__name__}"
        written_id, session_id = event.get("id"), event.get("session_id")
        correlation_id, metadata = event.get("correlation_id"), event.get("metadata")
        complete = cls(
            written_id if is_uuid(written_id) else new_id(),
            as_utc(event.get("timestamp")) or now(),
            topic,
            source,
            event.get("payload"),
            session_id if is_uuid(session_id) else None,
            correlation_id if isinstance(correlation_id, str) else None,
            metadata if isinstance(metadata, Mapping) else None,
        )
        try:
            complete.raw()
        except Unencodable as error:
            return str(error)
        return complete

    def to_json(self) -> dict[str, Any]:
        """The full shape: six fields always, the two others when they are set."""
        shape = {
            "id": self.id,
            "timestamp": self.timestamp,
            "topic": self.topic,
            "source": self.source,
            "session_id": self.session_id,
            "payload": self.payload,
        }
        if self.correlation_id is not None:
            shape["correlation_id"] = self.correlation_id
        if self.metadata is not None:
            shape["metadata"] = self.metadata
        return shape

    def raw(self) -> msgspec.Raw:
        """The JSON of the full shape, encoded once however many subscribers send it on; raises `Unencodable`."""
        if self._raw is None:
            force_setattr(self, "_raw", _CODEC.dump(self.to_json()))
        return self._raw  # type: ignore[return-value]  # set one line above


Listener = Callable[[BusEvent], bool | None]
"""Called with each event. Returns False when it dropped it; must not block."""

Report = Callable[["Subscription", BusEvent, Exception], object]
"""Called with the error of a listener that raised."""


class Subscription:
    """One listener and its patterns. Made by `Bus.listen`."""

    __slots__ = ("_bus", "active", "failures", "listener", "number", "patterns")

    def __init__(self, bus: Bus, number: int, patterns: tuple[str, ...], listener: Listener) -> None:
        self._bus = bus
        self.number = number
        self.patterns = patterns
        self.listener = listener
        self.active = True
        self.failures = 0
        """How often the listener raised."""

    def cancel(self) -> None:
        """Get no further events, not even one that is being delivered. May be called twice."""
        if self.active:
            self.active = False
            self._bus._forget(self)


class Stream:
    """Events in order of arrival, for `async for`, on the loop it was made on. Made by `Bus.subscribe`.

    At most `depth` events wait; further ones are dropped and counted. After `close` it yields the waiting events and
    ends.
    """

    __slots__ = ("_depth", "_subscription", "_waiting", "_wake", "dropped")

    def __init__(self, bus: Bus, patterns: tuple[str, ...], depth: int) -> None:
        if depth < 1:
            raise ValueError(f"a stream holds at least one event, not {depth}")
        self._depth = depth
        self._waiting: deque[BusEvent] = deque()
        self._wake = asyncio.Event()
        self._subscription = bus.listen(patterns, self._push)
        self.dropped = 0

    def _push(self, event: BusEvent) -> bool:
        if len(self._waiting) >= self._depth:
            self.dropped += 1
            return False
        self._waiting.append(event)
        self._wake.set()
        return True

    def close(self) -> None:
        self._subscription.cancel()
        self._wake.set()

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> BusEvent:
        while not self._waiting:
            if not self._subscription.active:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        return self._waiting.popleft()


class _Node(Generic[T]):
    """A node in the tree of patterns, one segment per level."""

    __slots__ = ("below", "ends", "rests")

    def __init__(self) -> None:
        self.below: dict[str, _Node[T]] = {}
        self.ends: set[T] = set()
        self.rests: set[T] = set()

    def is_empty(self) -> bool:
        return not (self.below or self.ends or self.rests)


class SubjectIndex(Generic[T]):
    """Values by pattern. A lookup takes time by the length of the subject, not by the number of patterns."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, pattern: str, value: T) -> None:
        """Add `value` under `pattern`. Adding it twice has no effect."""
        node = self._root
        for segment in _segments(pattern):
            if segment == REST:
                node.rests.add(value)
                return
            node = node.below.setdefault(segment, _Node())
        if node is not self._root:
            node.ends.add(value)

    def remove(self, pattern: str, value: T) -> None:
        """Remove `value` from `pattern`, if it is there."""
        path: list[tuple[_Node[T], str]] = []
        node = self._root
        for segment in _segments(pattern):
            if segment == REST:
                node.rests.discard(value)
                break
            below = node.below.get(segment)
            if below is None:
                return
            path.append((node, segment))
            node = below
        else:
            node.ends.discard(value)
        for above, segment in reversed(path):
            if above.below[segment].is_empty():
                del above.below[segment]

    def find(self, subject: str) -> set[T]:
        """Every value with a pattern that matches `subject`."""
        found: set[T] = set()
        nodes = [self._root]
        for segment in _segments(subject):
            keys = {segment, ANY}
            for node in nodes:
                found |= node.rests
            nodes = [node.below[key] for node in nodes for key in keys if key in node.below]
        for node in nodes:
            found |= node.ends
        return found

    def is_empty(self) -> bool:
        return self._root.is_empty()


def _segments(text: str) -> list[str]:
    """The segments of a pattern or topic; none when one of them is empty."""
    segments = text.split(".")
    return segments if all(segments) else []


class Bus:
    """Publish and subscribe inside one process."""

    def __init__(self, report: Report | None = None) -> None:
        self._report = report
        self._index: SubjectIndex[Subscription] = SubjectIndex()
        self._cache: dict[str, tuple[Subscription, ...]] = {}
        self._made = 0

    def listen(self, patterns: Iterable[str], listener: Listener) -> Subscription:
        """Call `listener` with every event from now on whose topic matches a pattern: once, even when several match.

        A single pattern may be given as a string.
        """
        wanted = (patterns,) if isinstance(patterns, str) else tuple(patterns)
        self._made += 1
        subscription = Subscription(self, self._made, wanted, listener)
        for pattern in wanted:
            self._index.add(pattern, subscription)
        self._cache.clear()
        return subscription

    def subscribe(self, *patterns: str, depth: int = DEPTH) -> Stream:
        """A stream of the events whose topic matches a pattern."""
        return Stream(self, patterns, depth)

    def publish(self, event: BusEvent) -> int:
        """Deliver `event` to every subscriber, in the order of subscription; returns how many took it.

        Events that a listener publishes are delivered before it returns. Subscriptions made meanwhile get the next one.
        """
        subscriptions = self._cache.get(event.topic)
        if subscriptions is None:
            subscriptions = self._find(event.topic)
        taken = 0
        for subscription in subscriptions:
            if subscription.active:
                taken += self._deliver(subscription, event)
        return taken

    def _deliver(self, subscription: Subscription, event: BusEvent) -> bool:
        try:
            return subscription.listener(event) is not False
        except Exception as error:
            subscription.failures += 1
            if self._report is not None:
                self._report(subscription, event, error)
            return False

    def _find(self, topic: str) -> tuple[Subscription, ...]:
        found = tuple(sorted(self._index.find(topic), key=lambda subscription: subscription.number))
        if len(self._cache) >= CACHED_TOPICS:
            self._cache.clear()
        self._cache[topic] = found
        return found

    def _forget(self, subscription: Subscription) -> None:
        for pattern in subscription.patterns:
            self._index.remove(pattern, subscription)
        self._cache.clear()
