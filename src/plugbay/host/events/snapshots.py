"""Snapshots: the last value of each topic, and notifications when it changes.

Owns the entries, one version counter for all topics, the order of deliveries and the memory limit of each publisher.
Publishing is synchronous, on one loop, never blocks and never fails because of a listener.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.gate import refuse_snapshot_size
from plugbay.model.sizes import MAX_PAYLOAD
from plugbay.model.topics import topic_problem

HOST = "host"
"""The publisher that is no plugin; no plugin may have this name."""


class Quotas(msgspec.Struct, frozen=True):
    """Limits of the stored snapshots. A publisher over its share is refused; the snapshots of others stay."""

    entry: int = MAX_PAYLOAD
    """Bytes of one entry."""
    topics: int = 256
    """Topics of one publisher; existing plugins have one to three."""
    share: int = 64 << 20
    """Bytes of one publisher: five entries of the largest size."""
    total: int = 512 << 20
    """Bytes of all publishers together."""


class Snapshot(NamedTuple):
    """The last value of a topic."""

    data: bytes
    version: int
    """One counter for all topics, from 1 on: a later publish has a larger one, with gaps within a topic."""
    publisher: str


Listener = Callable[[str, Snapshot], object]
"""Called with the topic and its new snapshot; must not block."""

Report = Callable[[Exception], object]
"""Called with the error of a listener that raised."""


class SnapshotSubscription:
    """One listener and its topics. Made by `Snapshots.listen`."""

    __slots__ = ("_snapshots", "active", "listener", "name", "topics")

    def __init__(self, snapshots: Snapshots, listener: Listener, name: str) -> None:
        self._snapshots = snapshots
        self.listener = listener
        self.name = name
        """A publisher of this name gets no notification of its own snapshots."""
        self.topics: set[str] = set()
        self.active = True

    def add(self, topic: str) -> None:
        """Add a topic, from its next publish on. Adding it twice has no effect."""
        if self.active:
            self.topics.add(topic)
            self._snapshots._listeners.setdefault(topic, {})[self] = None

    def cancel(self) -> None:
        """Get no further notifications, not even one that is being delivered. May be called twice."""
        self.active = False
        for topic in self.topics:
            listeners = self._snapshots._listeners[topic]
            del listeners[self]
            if not listeners:
                del self._snapshots._listeners[topic]
        self.topics.clear()


class Snapshots:
    """The last value of every topic of one host."""

    def __init__(self, report: Report | None = None, quotas: Quotas | None = None) -> None:
        self._report = report
        self._quotas = quotas or Quotas()
        self._entries: dict[str, Snapshot] = {}
        self._listeners: dict[str, dict[SnapshotSubscription, None]] = {}
        self._topics: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._undelivered: deque[tuple[str, Snapshot]] = deque()
        self._delivering = False
        self._version = 0

    def get(self, topic: str) -> Snapshot | None:
        """The last snapshot of this topic."""
        return self._entries.get(topic)

    def topics(self) -> list[str]:
        """Every topic with a snapshot."""
        return sorted(self._entries)

    def listen(self, topics: str | Iterable[str], listener: Listener, *, name: str = "") -> SnapshotSubscription:
        """Call `listener` with every publish to these topics from now on; existing snapshots are not repeated."""
        subscription = SnapshotSubscription(self, listener, name)
        for topic in (topics,) if isinstance(topics, str) else topics:
            subscription.add(topic)
        return subscription

    def publish(self, topic: str, data: bytes | bytearray, *, publisher: str = HOST) -> int:
        """Replace the snapshot of `topic` and notify its listeners; returns the new version.

        Raises `CallFailed` when it is refused; then no listener is notified. A publish by a listener is stored at once
        and delivered after the current one, so all listeners see all publishes in one order.
        """
        problem, size = topic_problem(topic), len(data)
        refusal = (
            Failure(Code.INVALID_INPUT, problem) if problem is not None else self._quota_failure(topic, size, publisher)
        )
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
        """Remove the snapshot of this topic, if there is one, without a notification."""
        entry = self._entries.pop(topic, None)
        if entry is not None:
            self._topics[entry.publisher] -= 1
            self._bytes[entry.publisher] -= len(entry.data)

    def _quota_failure(self, topic: str, size: int, publisher: str) -> Failure | None:
        quotas = self._quotas
        refusal = refuse_snapshot_size(size, quotas.entry)
        if refusal is not None:
            return refusal
        old = self._entries.get(topic)
        freed = 0 if old is None else len(old.data)
        own = old is not None and old.publisher == publisher
        if not own and self._topics[publisher] >= quotas.topics:
            return _exceeded("topics", f"{publisher} has published under {quotas.topics} topics already")
        share = self._bytes[publisher] - (freed if own else 0) + size
        if share > quotas.share:
            return _exceeded("share", f"with this, {publisher} would have {share:,} bytes of {quotas.share:,}")
        whole = self._bytes.total() - freed + size
        if whole > quotas.total:
            return _exceeded("total", f"with this, all snapshots would have {whole:,} bytes of {quotas.total:,}")
        return None

    def _deliver(self) -> None:
        self._delivering = True
        try:
            while self._undelivered:
                topic, snapshot = self._undelivered.popleft()
                self._notify_all(topic, snapshot)
        finally:
            self._delivering = False

    def _notify_all(self, topic: str, snapshot: Snapshot) -> None:
        for subscription in tuple(self._listeners.get(topic, ())):
            if subscription.active and subscription.name != snapshot.publisher:
                self._notify(subscription, topic, snapshot)

    def _notify(self, subscription: SnapshotSubscription, topic: str, snapshot: Snapshot) -> None:
        try:
            subscription.listener(topic, snapshot)
        except Exception as error:
            if self._report is not None:
                self._report(error)


def _exceeded(limit: str, text: str) -> Failure:
    return Failure(Code.OVERLOADED, f"no room for the snapshot: {text}", detail={"limit": limit})
