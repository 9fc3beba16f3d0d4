"""`Reception`: everything one plugin may ask or tell the host, and what the host tells it unasked.

Owns who gets which answer: a service is there only when it is configured and granted, a topic only when the manifest's
allow-list has it. Knows operations, never a contract's method names; what a service does is the service's business.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from plugbay.host import policy
from plugbay.host.bus import Bus, BusEvent, Subscription
from plugbay.host.discretion import Discretion
from plugbay.host.journal import Journal
from plugbay.host.rate import Bucket
from plugbay.host.services.agent_memory import AgentMemory
from plugbay.host.services.llm.registry import LlmRegistry
from plugbay.host.services.stamps import new_uuid, utc_now
from plugbay.host.services.storage import PluginStorage
from plugbay.host.subjects import matches, subject_problem
from plugbay.link.link import Link
from plugbay.model.errors import CallFailed, Code, Failure, Origin
from plugbay.model.events import Noise
from plugbay.model.operations import (
    CompleteChat,
    DeleteStored,
    DeliverEvent,
    GetStored,
    ListStored,
    Publish,
    RecallMemory,
    SetStored,
    WriteLog,
)
from plugbay.model.spec import PluginSpec

if TYPE_CHECKING:
    from plugbay.model.operations import Operation

MAX_EVENT = 1_040_000
"""Bytes of one event as JSON: with the message around it, the most a plugin's SDK accepts in one line (1 MiB)."""


@dataclass(slots=True)
class Services:
    """What the plugins of one host share."""

    llm: LlmRegistry = field(default_factory=LlmRegistry)
    memory: AgentMemory | None = None
    storage: PluginStorage | None = None
    journal: Journal = field(default_factory=Journal)
    bus: Bus = field(init=False)

    def __post_init__(self) -> None:
        self.bus = Bus(report=lambda _, event, error: self.journal.note("host", "listener_failed", repr(error)))

    def tell(self, topic: str, source: str, payload: dict[str, Any]) -> None:
        """Put an event of the host's own on the bus."""
        event = BusEvent(id=new_uuid(), timestamp=utc_now(), topic=topic, source=source, payload=payload)
        self.bus.publish(event)


class Reception:
    """The host as one plugin sees it."""

    def __init__(
        self, spec: PluginSpec, granted: tuple[str, ...], services: Services, discretion: Discretion | None = None
    ) -> None:
        self._spec = spec
        self._granted = granted
        self._services = services
        self._discretion = discretion or Discretion(None)
        self._access = policy.access(spec, granted)
        self._bucket = None if spec.publish_rate is None else Bucket(spec.publish_rate, spec.publish_rate)
        self._subscription: Subscription | None = None

    # What the plugin asks and tells.

    async def answer(self, op: Operation, progress: Callable[[Any], None]) -> Any:
        """The value for what was asked, or a `Failure`."""
        try:
            answer = await self._answer(op, progress)
        except CallFailed as error:
            answer = error.failure
        if isinstance(answer, Failure):
            self._note("service_refused", f"{type(op).__name__}: {answer.message}")
        return answer

    async def _answer(self, op: Operation, progress: Callable[[Any], None]) -> Any:
        match op:
            case Publish():
                return self._publish(op)
            case RecallMemory():
                return self._may("memory.recall") or await self._recall(op)
            case CompleteChat():
                return self._may("llm.complete") or await self._services.llm.complete(op, progress)
            case WriteLog():
                return self._log(op)
            case GetStored() | SetStored() | DeleteStored() | ListStored():
                return await self._stored(op)
        return Failure(Code.NOT_FOUND, f"this host does not offer {type(op).__name__} to plugins")

    def notified(self, op: Operation) -> None:
        match op:
            case Publish() if self._bucket is not None and not self._bucket.take(time.monotonic()):
                self._note("publish_dropped", f"more than {self._spec.publish_rate:g} a second")
            case Publish():
                refusal = self._publish(op)
                if refusal is not None:
                    self._note("publish_refused", refusal.message)
            case WriteLog():
                self._log(op)

    def noise(self, event: Noise) -> None:
        excerpt = self._discretion.text(event.data.decode("utf-8", "backslashreplace"))[:200]
        self._note("noise", f"{event.why}: {excerpt}" if excerpt else event.why)

    def _publish(self, op: Publish) -> Failure | None:
        problem = subject_problem(op.topic)
        if problem is not None:
            return Failure(Code.INVALID_INPUT, f"cannot publish to {op.topic!r}: {problem}")
        if not any(matches(pattern, op.topic) for pattern in self._spec.publishes):
            allowed = ", ".join(self._spec.publishes) or "nothing"
            text = f"{op.topic!r} is outside this plugin's topics ({allowed})"
            return Failure(Code.CAPABILITY_NOT_ALLOWED, text, origin=Origin.POLICY)
        event = BusEvent.complete(op.topic, self._spec.id, op.event, new_id=new_uuid, now=utc_now)
        if isinstance(event, str):
            return Failure(Code.INVALID_INPUT, f"not an event: {event}")
        size = memoryview(event.raw()).nbytes
        if size > MAX_EVENT:
            return Failure(Code.FRAME_TOO_LARGE, f"the event has {size:,} bytes; at most {MAX_EVENT:,}")
        self._services.bus.publish(event)
        return None

    async def _stored(self, op: GetStored | SetStored | DeleteStored | ListStored) -> Any:
        kind = "storage_write" if isinstance(op, SetStored | DeleteStored) else "storage_read"
        if not any(access.kind == kind for access in self._access):
            text = f"{kind.replace('_', ' ')} access was not requested and granted"
            return Failure(Code.CAPABILITY_NOT_ALLOWED, text, origin=Origin.POLICY)
        storage, plugin_id = self._services.storage, self._spec.id
        if storage is None:
            return Failure(Code.UNAVAILABLE, "storage is not configured: set state_dir under [host] in plugbay.toml")
        match op:
            case GetStored():
                found, value = await storage.get(plugin_id, op.key)
                return {"found": found, "value": value}
            case SetStored():
                return await storage.set(plugin_id, op.key, op.value)
            case DeleteStored():
                return await storage.delete(plugin_id, op.key)
        return await storage.keys(plugin_id, op.prefix, op.limit)

    async def _recall(self, op: RecallMemory) -> Any:
        if self._services.memory is None:
            return Failure(Code.UNAVAILABLE, "memory is not configured: set [memory] path in plugbay.toml")
        entries = await self._services.memory.recall(op.agent_id, op.query, op.limit)
        return [entry.to_json() for entry in entries]

    def _may(self, capability: str) -> Failure | None:
        if capability in self._granted:
            return None
        hint = f"grant it with --grant {capability}, or with grants = [{capability!r}] in plugbay.toml"
        text = f"{capability} is not granted to {self._spec.id}; {hint}"
        return Failure(Code.CAPABILITY_NOT_ALLOWED, text, origin=Origin.POLICY)

    def _log(self, op: WriteLog) -> None:
        self._note(f"log.{op.level}", op.message)

    # What the host tells the plugin.

    def attach(self, link: Link) -> None:
        """From now on the plugin hears of the topics it subscribes to."""
        if self._spec.subscribes:
            self._subscription = self._services.bus.listen(self._spec.subscribes, lambda event: _deliver(link, event))

    def detach(self, link: Link) -> None:
        if self._subscription is not None:
            self._subscription.cancel()
            self._subscription = None
        if link.dropped:
            self._note("events_dropped", "it did not read its input in time, or could not have read them", link.dropped)

    def _note(self, kind: str, text: str, times: int = 1) -> None:
        self._services.journal.note(self._spec.id, kind, self._discretion.text(text), times)


def _deliver(link: Link, event: BusEvent) -> None:
    link.notify(DeliverEvent(event.topic, event.raw()))
