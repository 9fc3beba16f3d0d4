"""`SnapshotDesk`: the snapshots as one process of one plugin sees them, behind the gate of its topics.

Owns which topics the process hears of and for how long: those of its manifest from its greeting on, those it asks for
from then on, each once, all of them until the process goes. Knows no wire and no manifest format.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plugbay.host.authorization.gates import covers_topic, refused
from plugbay.host.events.snapshots import UI_STATE, Snapshot, Snapshots, SnapshotSubscription, topic_problem
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.spec import Access, PluginSpec
from plugbay.model.topics import HOST_ONLY

CAPABILITY = "event_bus"
"""What has to be granted, whichever topic it is about."""

MAX_SUBSCRIPTIONS = 256
"""Topics one process can ask to hear of."""

Deliver = Callable[[str, bytes], object]
"""Sends a topic and its data to the process."""


class SnapshotDesk:
    """One process's share of the snapshots. Refusals are values, except from `publish`, whose caller drops them."""

    def __init__(self, spec: PluginSpec, access: tuple[Access, ...], snapshots: Snapshots) -> None:
        self._spec = spec
        self._access = access
        self._snapshots = snapshots
        self._own = f"{UI_STATE}/{spec.id}"
        self._subscription: SnapshotSubscription | None = None

    def open(self, deliver: Deliver) -> None:
        """The process is there, and may ask to hear of topics before its greeting is over."""

        def tell(topic: str, snapshot: Snapshot) -> None:
            deliver(topic, snapshot.data)

        self._subscription = self._snapshots.listen((), tell, name=self._spec.id)

    def arm(self) -> list[str]:
        """Its greeting is over: it hears of the topics of its manifest. Those that were not granted are returned."""
        ungranted = [topic for topic in self._spec.snapshots if not covers_topic(self._access, topic)]
        if self._subscription is not None:
            for topic in set(self._spec.snapshots).difference(ungranted):
                self._subscription.add(self._place(topic))
        return ungranted

    def close(self) -> None:
        """The process goes, and with it what it asked for and what it said of its screens. May be called twice."""
        if self._subscription is not None:
            self._subscription.cancel()
            self._subscription = None
            self._snapshots.erase(self._own)

    @property
    def keeps_alive(self) -> bool:
        """Whether it waits for publishes, so that it is not idle although nobody asks it anything."""
        heard = set() if self._subscription is None else self._subscription.topics
        return bool(heard - {self._place(topic) for topic in self._spec.latest_state})

    def get(self, topic: str) -> dict[str, Any] | Failure:
        """What is kept under the topic."""
        refusal = self._closed_to(topic)
        if refusal is not None:
            return refusal
        found = self._snapshots.get(self._place(topic))
        return {"data": None, "version": 0} if found is None else {"data": found.data, "version": found.version}

    def subscribe(self, topic: str) -> Failure | None:
        """Hear of the topic, from the next publish on."""
        problem = topic_problem(topic)
        refusal = self._closed_to(topic) if problem is None else Failure(Code.INVALID_INPUT, problem)
        if refusal is not None:
            return refusal
        if self._subscription is None:
            return Failure(Code.CANCELLED, "the plugin is about to leave and hears of nothing more")
        if len(self._subscription.topics | {topic}) > MAX_SUBSCRIPTIONS:
            return Failure(Code.OVERLOADED, f"it hears of {MAX_SUBSCRIPTIONS} topics already")
        self._subscription.add(self._place(topic))
        return None

    def publish(self, topic: str, data: bytes) -> None:
        """Keep and tell; raises `CallFailed` when that is refused."""
        refusal = self._closed_to(topic)
        place = self._place(topic)
        if refusal is None and topic.startswith(HOST_ONLY):
            refusal = refused(CAPABILITY, f"only the host publishes under {topic}")
        if refusal is None and place.startswith(f"{UI_STATE}/") and (place != self._own or self._subscription is None):
            refusal = refused(CAPABILITY, f"{topic} belongs to another plugin, or to a process that is gone")
        if refusal is not None:
            raise CallFailed(refusal)
        self._snapshots.publish(place, data, publisher=self._spec.id)

    def _place(self, topic: str) -> str:
        """Where a topic is kept: each plugin has a place of its own for what it says of its screens."""
        return self._own if topic == UI_STATE else topic

    def _closed_to(self, topic: str) -> Failure | None:
        if covers_topic(self._access, topic):
            return None
        return refused(CAPABILITY, f"{CAPABILITY} is not granted to {self._spec.id} for the topic {topic[:100]!r}")
