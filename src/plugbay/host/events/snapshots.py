"""Snapshots: what was last published under each topic, and who is told when that changes.

Owns the entries, the one counter of their versions, the order of deliveries and how much of the host's memory a
publisher may take. Knows nothing of links, of grants and of what the bytes mean. Lives on one loop; publishing is
synchronous, never blocks and never fails because of a listener.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.sizes import MAX_PAYLOAD

HOST = "host"
"""The publisher that is no plugin; no plugin may have this name."""

UI_STATE = "ui.state"
"""What a plugin publishes here is kept under `ui.state/<plugin>`, for as long as its process lives."""

MAX_TOPIC = 256
"""Characters of a topic: it is a name."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is kept. A plugin that has used up its share is refused; what others have published stays."""

    entry: int = MAX_PAYLOAD
    """Bytes of one entry."""
    topics: int = 256
    """Topics of one publisher; the plugins that exist publish under one to three."""
    share: int = 64 << 20
    """Bytes of one publisher: five entries of the largest size."""
    total: int = 512 << 20
    """Bytes of all publishers together."""


class Snapshot(NamedTuple):
    """What was last published under a topic."""

    data: bytes
    version: int
    """One counter for all topics, from 1 on: a later publish has a larger one, with gaps within a topic."""
    publisher: str


Listener = Callable[[str, Snapshot], object]
"""Called with each topic and what was published under it; must not block."""

Report = Callable[[Exception], object]
"""Told about a listener that raised."""


class SnapshotSubscription:
    """One listener and its topics. Made by `Snapshots.listen`."""

    __slots__ = ("_snapshots", "active", "listener", "name", "topics")

    def __init__(self, snapshots: Snapshots, listener: Listener, name: str) -> None:
        self._snapshots = snapshots
        self.listener = listener
        self.name = name
        """A publisher of this name is not told of what it publishes itself."""
        self.topics: set[str] = set()
        self.active = True

    def add(self, topic: str) -> None:
        """Hear of this topic too, from the next publish on; once, however often it is added."""
        if self.active:
            self.topics.add(topic)
            self._snapshots._listeners.setdefault(topic, {})[self] = None

    def cancel(self) -> None:
        """Hear nothing more, not even of a publish that is being delivered. May be called twice."""
        self.active = False
        for topic in self.topics:
            listeners = self._snapshots._listeners[topic]
            del listeners[self]
            if not listeners:
                del self._snapshots._listeners[topic]
        self.topics.clear()


class Snapshots:
    """The last value of every topic of one host."""

    def __init__(self, report: Report | None = None, bounds: Bounds | None = None) -> None:
        self._report = report
        self._bounds = bounds or Bounds()
        self._entries: dict[str, Snapshot] = {}
        self._listeners: dict[str, dict[SnapshotSubscription, None]] = {}
        self._topics: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._undelivered: deque[tuple[str, Snapshot]] = deque()
        self._delivering = False
        self._version = 0

    def get(self, topic: str) -> Snapshot | None:
        """What was last published under this topic."""
        return self._entries.get(topic)

    def topics(self) -> list[str]:
        """Every topic that something is kept under."""
        return sorted(self._entries)

    def listen(self, topics: str | Iterable[str], listener: Listener, *, name: str = "") -> SnapshotSubscription:
        """Call `listener` with every publish under these topics from now on; what is there already is not repeated."""
        subscription = SnapshotSubscription(self, listener, name)
        for topic in (topics,) if isinstance(topics, str) else topics:
            subscription.add(topic)
        return subscription

    def publish(self, topic: str, data: bytes | bytearray, *, publisher: str = HOST) -> int:
        """Keep `data` under `topic` in place of what is there and tell whoever listens; the version it got.

        Raises `CallFailed` when it is not kept, and then nobody is told. What a listener publishes is kept at once and
        delivered after what it was told of, so everybody hears all publishes in one order.
        """
        problem, size = topic_problem(topic), len(data)
        refusal = Failure(Code.INVALID_INPUT, problem) if problem is not None else self._no_room(topic, size, publisher)
        if refusal is not None:
            raise CallFailed(refusal)
        self._version += 1
        self.erase(topic)
        self._entries[topic] = snapshot = Snapshot(bytes(data), self._version, publisher)
        self._topics[publisher] += 1
        self._bytes[publisher] += size
        self._undelivered.append((topic, snapshot))
        if not self._delivering:
            self._deliver()
        return snapshot.version

    def erase(self, topic: str) -> None:
        """Forget what is kept under this topic, if anything is; nobody is told."""
        entry = self._entries.pop(topic, None)
        if entry is not None:
            self._topics[entry.publisher] -= 1
            self._bytes[entry.publisher] -= len(entry.data)

    def _no_room(self, topic: str, size: int, publisher: str) -> Failure | None:
        bounds = self._bounds
        if size > bounds.entry:
            text = f"the snapshot has {size:,} bytes; at most {bounds.entry:,} fit one message"
            return Failure(Code.FRAME_TOO_LARGE, text, detail={"limit": "entry"})
        old = self._entries.get(topic)
        freed = 0 if old is None else len(old.data)
        own = old is not None and old.publisher == publisher
        if not own and self._topics[publisher] >= bounds.topics:
            return _full("topics", f"{publisher} has published under {bounds.topics} topics already")
        share = self._bytes[publisher] - (freed if own else 0) + size
        if share > bounds.share:
            return _full("share", f"with this, {publisher} would have {share:,} bytes of {bounds.share:,}")
        whole = self._bytes.total() - freed + size
        if whole > bounds.total:
            return _full("total", f"with this, all snapshots would have {whole:,} bytes of {bounds.total:,}")
        return None

    def _deliver(self) -> None:
        self._delivering = True
        try:
            while self._undelivered:
                topic, snapshot = self._undelivered.popleft()
                self._fan_out(topic, snapshot)
        finally:
            self._delivering = False

    def _fan_out(self, topic: str, snapshot: Snapshot) -> None:
        for subscription in tuple(self._listeners.get(topic, ())):
            if subscription.active and subscription.name != snapshot.publisher:
                self._tell(subscription, topic, snapshot)

    def _tell(self, subscription: SnapshotSubscription, topic: str, snapshot: Snapshot) -> None:
        try:
            subscription.listener(topic, snapshot)
        except Exception as error:
            if self._report is not None:
                self._report(error)


def topic_problem(topic: str) -> str | None:
    """Why nothing can be published under this; None when it can."""
    if not topic:
        return "a topic must not be empty"
    if len(topic) > MAX_TOPIC:
        return f"a topic has at most {MAX_TOPIC} characters"
    return None if topic.isprintable() else "a topic has printable characters only"


def _full(limit: str, text: str) -> Failure:
    return Failure(Code.OVERLOADED, f"no room for the snapshot: {text}", detail={"limit": limit})
