"""`Reception`: everything one plugin may ask or tell the host, and what the host tells it unasked.

Owns who gets which answer: a service is there only when it is configured and granted, a topic only when the manifest's
allow-list has it. The one switch for all operations; what is behind it, a service or a desk, does one thing each. Knows
operations, never a contract's method names.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from plugbay.host.authorization import gates, policy
from plugbay.host.events.bus import Bus, BusEvent, Subscription
from plugbay.host.events.snapshots import Snapshots
from plugbay.host.events.subjects import matches, subject_problem
from plugbay.host.inbound.log_lines import LogDesk
from plugbay.host.inbound.questions import Question, Questions, answer
from plugbay.host.inbound.snapshots import SnapshotDesk
from plugbay.host.journal import Journal
from plugbay.host.rate import Bucket
from plugbay.host.recording.redaction import Discretion
from plugbay.host.services.actions import Actions
from plugbay.host.services.files import Files, Outside
from plugbay.host.services.llm.registry import LlmRegistry
from plugbay.host.services.memory import AgentMemory
from plugbay.host.services.network import Fetcher
from plugbay.host.services.storage import PluginStorage
from plugbay.host.stamps import new_uuid, utc_now
from plugbay.link.link import Link
from plugbay.model.errors import CallFailed, Code, Failure, Origin
from plugbay.model.events import Noise
from plugbay.model.operations import (
    AskUser,
    ChangeResource,
    CompleteChat,
    DeleteStored,
    DeliverEvent,
    DeliverSnapshot,
    FetchUrl,
    GetSnapshot,
    GetStored,
    InvokeAction,
    ListRoots,
    ListStored,
    OfferExports,
    Publish,
    PublishSnapshot,
    ReadFile,
    ReadFolder,
    RecallMemory,
    SetStored,
    SubscribeSnapshot,
    WriteLog,
)
from plugbay.model.protected import Protected
from plugbay.model.spec import PluginSpec

if TYPE_CHECKING:
    from plugbay.model.operations import Operation

MAX_EVENT = 1_040_000
"""Bytes of one event as JSON: with the message around it, the most a plugin's SDK accepts in one line (1 MiB)."""

LARGE_AT_ONCE = 4
"""Files read at the same time for one plugin, and pages fetched: each answer may have 16 MiB."""

SNAPSHOTS_PER_SECOND = 500.0
SNAPSHOT_BURST = 1000.0
"""Publishes of one process; a data set of 2 GB in chunks goes through at once, a loop without end does not."""


CHANGES_PER_SECOND = 50.0
CHANGE_BURST = 200.0
"""Of what one process keeps, told without being asked; what is written all the time is looked at later."""

OFFERS_PER_SECOND = 0.5
OFFER_BURST = 5.0
"""Of one process: the largest offer, of 10,000 tools, takes a second to be judged, and no other plugin waits for it."""

LEVEL_WORDS = {"notice": "info", "warning": "warn", **dict.fromkeys(("critical", "alert", "emergency"), "error")}
"""Syslog's words, which some contracts use, for our levels."""

RESOURCE_CHANGED = "plugin.resource.changed"
"""The topic of the event that what a plugin keeps under an address is not what it was."""


@dataclass(slots=True)
class Services:
    """What the plugins of one host share."""

    llm: LlmRegistry = field(default_factory=LlmRegistry)
    memory: AgentMemory | None = None
    storage: PluginStorage | None = None
    journal: Journal = field(default_factory=Journal)
    files: Files = field(default_factory=Files)
    network: Fetcher = field(default_factory=Fetcher)
    actions: Actions = field(default_factory=Actions)
    delivered: Callable[[str], object] | None = None
    """Told the id of each plugin that a snapshot is sent to."""
    questions: Questions | None = None
    """Puts what plugins ask to a person; None: there is none."""
    offered: Callable[[str, Any], object] | None = None
    """Told the id of each plugin that offers something else from now on, and all that it offers."""
    bus: Bus = field(init=False)
    snapshots: Snapshots = field(init=False)

    def __post_init__(self) -> None:
        self.bus = Bus(report=lambda _, event, error: self._listener_failed(error))
        self.snapshots = Snapshots(self._listener_failed)

    def _listener_failed(self, error: Exception) -> None:
        self.journal.note("host", "listener_failed", repr(error))

    def tell(self, topic: str, source: str, payload: dict[str, Any]) -> None:
        """Put an event of the host's own on the bus."""
        event = BusEvent(id=new_uuid(), timestamp=utc_now(), topic=topic, source=source, payload=payload)
        self.bus.publish(event)


class Reception:
    """The host as one plugin sees it."""

    def __init__(
        self,
        spec: PluginSpec,
        granted: tuple[str, ...],
        services: Services,
        discretion: Discretion | None = None,
        log_level: str = "info",
        roots: Sequence[Mapping[str, str]] = (),
        protected: Protected | None = None,
    ) -> None:
        """`roots`: the folders that the work is about, as `ListRoots` is answered where that is granted."""
        self._protected = protected or Protected()
        self._roots = roots
        self._spec = spec
        self._granted = granted
        self._services = services
        self._discretion = discretion or Discretion(None)
        self._access = policy.access(spec, granted)
        self._bucket = None if spec.publish_rate is None else Bucket(spec.publish_rate, spec.publish_rate)
        self._link: Link | None = None
        self._subscription: Subscription | None = None
        self._snapshots = SnapshotDesk(spec, self._access, services.snapshots)
        self._snapshot_bucket = Bucket(SNAPSHOTS_PER_SECOND, SNAPSHOT_BURST)
        self._change_bucket = Bucket(CHANGES_PER_SECOND, CHANGE_BURST)
        self._offer_bucket = Bucket(OFFERS_PER_SECOND, OFFER_BURST)
        self._offer: Mapping[str, Any] | None = None
        """What the plugin offers, as long as nobody has looked at it."""
        self._next_look: asyncio.TimerHandle | None = None
        self._log = LogDesk(log_level, self._note)
        self._reading = asyncio.Semaphore(LARGE_AT_ONCE)
        self._fetching = asyncio.Semaphore(LARGE_AT_ONCE)

    @property
    def keeps_alive(self) -> bool:
        """Whether the plugin waits for something that may come at any time."""
        return self._snapshots.keeps_alive

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
            case RecallMemory() | CompleteChat() | AskUser() | ListRoots():
                return await self._granted_service(op, progress)
            case WriteLog():
                return self._logged(op)
            case GetStored() | SetStored() | DeleteStored() | ListStored():
                return await self._stored(op)
            case GetSnapshot() | SubscribeSnapshot():
                return self._snapshot(op)
            case InvokeAction():
                return await self._invoke(op)
            case ReadFile() | ReadFolder():
                return await self._read(op)
            case FetchUrl():
                return await self._fetch(op)
        text = f"this host does not offer {type(op).__name__} to plugins"
        return Failure(Code.NOT_FOUND, text, detail={"absent": True})

    async def _granted_service(
        self, op: RecallMemory | CompleteChat | AskUser | ListRoots, progress: Callable[[Any], None]
    ) -> Any:
        """What the contract lets any plugin ask for, if the operator has granted it to this one."""
        match op:
            case RecallMemory():
                return self._may("memory.recall") or await self._recall(op)
            case CompleteChat():
                return self._may(self._chats) or await self._services.llm.complete(op, progress)
            case AskUser():
                question = Question(self._spec.id, op.message, op.schema, op.url, op.during)
                return self._may("elicitation") or await answer(self._services.questions, question)
        return self._may("roots") or [dict(root) for root in self._roots]

    def notified(self, op: Operation) -> None:
        match op:
            case Publish() if self._bucket is not None and not self._bucket.take(time.monotonic()):
                self._note("publish_dropped", f"more than {self._spec.publish_rate:g} a second")
            case Publish():
                refusal = self._publish(op)
                if refusal is not None:
                    self._note("publish_refused", refusal.message)
            case PublishSnapshot():
                self._publish_snapshot(op)
            case WriteLog():
                self._logged(op)
            case OfferExports() | ChangeResource():
                self._changed(op)

    def _logged(self, op: WriteLog) -> None:
        self._log.write(WriteLog(LEVEL_WORDS.get(op.level, op.level), op.message, op.fields))

    def _changed(self, op: OfferExports | ChangeResource) -> None:
        """The plugin says that what it offers, or keeps, is not what it was."""
        if isinstance(op, OfferExports):
            self._offer = op.offer
            if self._next_look is None:
                self._look_at_offer()
        elif not self._change_bucket.take(time.monotonic()):
            self._note("change_dropped", f"more than {CHANGES_PER_SECOND:g} changes a second")
        else:
            payload = {"plugin_id": self._spec.id, "uri": op.uri}
            self._services.tell(RESOURCE_CHANGED, self._spec.id, payload)

    def _look_at_offer(self) -> None:
        """The newest offer is never lost: who missed it would go on with what is no longer offered."""
        self._next_look = None
        if self._offer is None or self._services.offered is None:
            return
        if self._offer_bucket.take(time.monotonic()):
            offer, self._offer = self._offer, None
            self._services.offered(self._spec.id, offer)
        else:
            self._note("change_delayed", "what it offers changes all the time")
            # A little later than the next one is due: timers may be a millisecond early, and would have to wait again.
            self._next_look = asyncio.get_running_loop().call_later(1 / OFFERS_PER_SECOND + 0.05, self._look_at_offer)

    @property
    def _chats(self) -> str:
        """The capability to ask language models, in the words of the plugin's contract."""
        return "sampling" if "sampling" in self._spec.optional_capabilities else "llm.complete"

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

    def _publish_snapshot(self, op: PublishSnapshot) -> None:
        if not self._snapshot_bucket.take(time.monotonic()):
            self._note("publish_dropped", f"more than {SNAPSHOTS_PER_SECOND:g} snapshots a second")
            return
        try:
            self._snapshots.publish(op.topic, op.data)
        except CallFailed as error:
            self._note("publish_refused", error.failure.message)

    def _snapshot(self, op: GetSnapshot | SubscribeSnapshot) -> Any:
        if isinstance(op, SubscribeSnapshot):
            return self._snapshots.subscribe(op.topic)
        return self._unread() or self._snapshots.get(op.topic)

    async def _invoke(self, op: InvokeAction) -> bytes:
        actions, may_spawn = self._services.actions, gates.may_spawn(self._access)
        return await actions.invoke(self._spec.id, op.action, op.data, op.timeout_ms, may_spawn=may_spawn)

    async def _fetch(self, op: FetchUrl) -> Any:
        async with self._fetching:
            return self._unread() or await self._services.network.fetch(op, self._access)

    async def _read(self, op: ReadFile | ReadFolder) -> Any:
        files = self._services.files
        look = files.read if isinstance(op, ReadFile) else files.entries
        try:
            async with self._reading:
                return self._unread() or await look(op.path, gates.read_roots(self._access), self._protected)
        except Outside as error:
            return self._outside(op.path, error)

    def _unread(self) -> Failure | None:
        """Why nothing large is fetched for a plugin now: the host would have to keep it until the plugin reads."""
        if self._link is None or self._link.has_room:
            return None
        return Failure(Code.OVERLOADED, "the plugin has not read the answers it was given yet", retryable=True)

    def _outside(self, path: str, error: Outside) -> Failure:
        missing = gates.closing(self._spec.access, path, os.path.expanduser("~"))
        if error.entry is not None:
            where = f"{path} is" if error.entry.path == path else f"{path} lies in"
            return gates.refused(missing, f"{where} {error.entry.what}, which no grant opens")
        return gates.refused(missing, f"{path} is outside of what is granted to {self._spec.id}")

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

    # What the host tells the plugin.

    def meet(self, link: Link) -> None:
        """The process is there. It may ask to hear of snapshots before its greeting is over."""
        self._link = link
        self._snapshots.open(lambda topic, data: self._deliver(link, DeliverSnapshot(topic, data)))

    def attach(self) -> None:
        """From now on the plugin hears of the topics its manifest subscribes to."""
        link = self._link
        if self._spec.subscribes and link is not None:
            self._subscription = self._services.bus.listen(
                self._spec.subscribes, lambda event: link.notify(DeliverEvent(event.topic, event.raw()))
            )
        for topic in self._snapshots.arm():
            self._note("subscription_refused", f"its manifest subscribes to {topic}; event_bus is not granted for that")

    def detach(self) -> None:
        """The process goes, and hears of nothing more. May be called twice."""
        link, self._link = self._link, None
        self._offer = None
        if self._next_look is not None:
            self._next_look.cancel()
            self._next_look = None
        if self._subscription is not None:
            self._subscription.cancel()
            self._subscription = None
        self._snapshots.close()
        if link is not None and link.dropped:
            self._note("events_dropped", "it did not read its input in time, or could not have read them", link.dropped)
        if link is not None and link.urgent_dropped:
            self._note("keys_dropped", "it did not read its input in time", link.urgent_dropped)

    def _deliver(self, link: Link, op: DeliverSnapshot) -> None:
        link.notify(op)
        if self._services.delivered is not None:
            self._services.delivered(self._spec.id)

    def _note(self, kind: str, text: str, times: int = 1, *, level: str = "warn") -> None:
        self._services.journal.note(self._spec.id, kind, self._discretion.text(text), times, level=level)
