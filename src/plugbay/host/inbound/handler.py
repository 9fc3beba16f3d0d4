"""`InboundHandler`: handles the requests and notifications of one instance, and delivers events to it.

Each request and notification passes the gate (`model.gate`) before a service sees it. Works with operations, never with
a contract's method names.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from plugbay.host.events.bus import Bus, BusEvent, Subscription
from plugbay.host.events.snapshots import Snapshot, Snapshots, SnapshotSubscription
from plugbay.host.inbound.questions import AskClient, Question, Questions, ask_user
from plugbay.host.journal import LEVELS, OWN_LINE, Journal
from plugbay.host.limits import SlidingWindow, TokenBucket
from plugbay.host.nesting import CAUSE, Cause
from plugbay.host.recording.redaction import Redactor
from plugbay.host.services.actions import Actions
from plugbay.host.services.files import Files, Outside
from plugbay.host.services.llm.registry import LlmRegistry
from plugbay.host.services.memory import AgentMemory
from plugbay.host.services.network import Fetcher
from plugbay.host.services.storage import Storage
from plugbay.host.stamps import new_uuid, utc_now
from plugbay.link.link import Link
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.events import Noise
from plugbay.model.gate import Gate, covers_topic, may_spawn, refuse_event_size, refuse_subscription
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
from plugbay.model.topics import UI_STATE
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import Unencodable

if TYPE_CHECKING:
    from plugbay.model.operations import Operation

LARGE_AT_ONCE = 4
"""Concurrent file reads of one instance, and concurrent fetches: each answer may have 16 MiB."""

SNAPSHOTS_PER_SECOND = 500.0
SNAPSHOT_BURST = 1000.0
"""Snapshot publishes of one instance: enough for 2 GB in chunks at once, too little for an endless loop."""

CHANGES_PER_SECOND = 50.0
CHANGE_BURST = 200.0
"""Resource change notifications of one instance; excess ones are dropped."""

OFFERS_PER_SECOND = 0.5
OFFER_BURST = 5.0
"""Changes of exports of one instance: the largest list, of 10,000 tools, takes a second to check, and blocks others."""

NESTING = (CompleteChat, RecallMemory, InvokeAction)
"""Requests that the host may answer by a call of a plugin: its models, its vectors, its actions."""

ACTING = frozenset({"channel", "screen"})
"""Exports of plugins that act on messages and keys. They ask for reasons of their own while they work on calls, so the
end of a call is not the end of their requests; neither is it for plugins that hear events."""

LEVEL_WORDS = {"notice": "info", "warning": "warn", **dict.fromkeys(("critical", "alert", "emergency"), "error")}
"""Syslog levels, which some contracts use, and ours."""

RESOURCE_CHANGED = "plugin.resource.changed"
"""Topic of the event that a resource of a plugin has changed."""


ELSEWHERE = (GetStored, SetStored, DeleteStored, ListStored, RecallMemory, CompleteChat, InvokeAction)
"""Requests whose effects and secrets must not depend on the machine on which the plugin runs."""


class AskElsewhere(Protocol):
    """Answers a request of a plugin, which the gate has allowed, at another host."""

    async def __call__(self, plugin_id: str, op: Operation, progress: Callable[[Any], None], /) -> Any:
        """The answer, or a `Failure`."""
        ...


class Services(msgspec.Struct):
    """The services that the plugins of one host share."""

    llm: LlmRegistry = msgspec.field(default_factory=LlmRegistry)
    memory: AgentMemory | None = None
    storage: Storage | None = None
    journal: Journal = msgspec.field(default_factory=Journal)
    files: Files = msgspec.field(default_factory=Files)
    network: Fetcher = msgspec.field(default_factory=Fetcher)
    actions: Actions = msgspec.field(default_factory=Actions)
    delivered: Callable[[str], object] | None = None
    """Called with the id of each plugin that a snapshot is sent to."""
    questions: Questions | None = None
    """Asks the user on behalf of plugins; None: questions are declined."""
    ask_client: AskClient | None = None
    """Asks the client of a hosted MCP server for a model's reply or for roots, before the host answers."""
    elsewhere: AskElsewhere | None = None
    """Answers the requests in `ELSEWHERE`, if another host does that for this one."""
    offered: Callable[[str, Any], object] | None = None
    """Called with the id of a plugin whose exports have changed, and its new exports."""
    bus: Bus = None  # type: ignore[assignment]  # both are made with the services
    snapshots: Snapshots = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self.bus = Bus(report=lambda _, event, error: self._listener_failed(error))
        self.snapshots = Snapshots(self._listener_failed)

    def _listener_failed(self, error: Exception) -> None:
        self.journal.note("host", "listener_failed", repr(error))

    def publish_event(self, topic: str, source: str, payload: Any, session_id: str | None = None) -> BusEvent:
        """Publish an event of the host itself on the bus; returns the event."""
        event = BusEvent(new_uuid(), utc_now(), topic, source, payload, session_id)
        self.bus.publish(event)
        return event


class InboundHandler:
    """The host's side of one instance: its requests, notifications, events and log."""

    def __init__(
        self,
        spec: PluginSpec,
        granted: tuple[str, ...],
        services: Services,
        redactor: Redactor | None = None,
        log_level: str = "info",
        roots: Sequence[Mapping[str, str]] = (),
        protected: Protected | None = None,
        opened: Sequence[str] = (),
    ) -> None:
        """`roots`: the project folders, the answer to `ListRoots` if that is granted; `opened`: private and loopback
        `address:port`s that the plugin may reach.
        """
        self._opened = opened
        self._protected = protected or Protected()
        self._roots = roots
        self._spec = spec
        self._gate = Gate(spec, granted)
        self._services = services
        self._redactor = redactor or Redactor(None)
        self._published = None if spec.publish_rate is None else SlidingWindow(spec.publish_rate)
        self._link: Link | None = None
        self._subscription: Subscription | None = None
        self._snapshots = SnapshotAccess(spec, self._gate, services.snapshots)
        self._snapshot_bucket = TokenBucket(SNAPSHOTS_PER_SECOND, SNAPSHOT_BURST)
        self._change_bucket = TokenBucket(CHANGES_PER_SECOND, CHANGE_BURST)
        self._offer_bucket = TokenBucket(OFFERS_PER_SECOND, OFFER_BURST)
        self._offer: Mapping[str, Any] | None = None
        """The newest exports of the plugin that `Services.offered` has not got yet."""
        self._offer_timer: asyncio.TimerHandle | None = None
        self._log = LogWriter(log_level, self._note)
        self.on_published: Callable[[], object] | None = None
        """Called after each snapshot that the plugin has published."""
        self._causes: list[Cause] = []
        """Of the calls that it works on because another plugin asked the host."""
        self._acts_alone = bool(spec.subscribes or spec.snapshots or any(e.kind in ACTING for e in spec.exports))
        self._reading = asyncio.Semaphore(LARGE_AT_ONCE)
        self._fetching = asyncio.Semaphore(LARGE_AT_ONCE)

    @property
    def keeps_alive(self) -> bool:
        """Whether the plugin waits for snapshots that may come at any time."""
        return self._snapshots.keeps_alive

    # Requests and notifications of the plugin.

    async def handle_request(self, op: Operation, progress: Callable[[Any], None]) -> Any:
        """The answer to a request, or a `Failure`."""
        answering = CAUSE.set(self._cause() if isinstance(op, NESTING) else None)
        try:
            answer = self._gate.refuse(op) or await self._dispatch(op, progress)
        except CallFailed as error:
            answer = error.failure
        finally:
            CAUSE.reset(answering)
        if isinstance(answer, Failure):
            self._note("service_refused", f"{type(op).__name__}: {answer.message}")
        return answer

    @contextmanager
    def nested(self, cause: Cause) -> Iterator[None]:
        """The plugin works on a call with this cause."""
        self._causes.append(cause)
        try:
            yield
        finally:
            self._causes.remove(cause)

    def _cause(self) -> Cause:
        """The cause of the calls that a request of the plugin leads to."""
        until = None if self._link is None else self._link.open_until
        if self._causes:
            deepest = max(self._causes, key=lambda cause: (cause.depth, cause.spent.calls))
            return Cause(deepest.depth, deepest.until if self._acts_alone else until, deepest.spent)
        return Cause(0 if until is None else 1, None if self._acts_alone else until)

    async def _dispatch(self, op: Operation, progress: Callable[[Any], None]) -> Any:
        if self._services.elsewhere is not None and isinstance(op, ELSEWHERE):
            return await self._services.elsewhere(self._spec.id, op, progress)
        match op:
            case Publish():
                return self._publish(op)
            case RecallMemory() | CompleteChat() | AskUser() | ListRoots():
                return await self._ask_agent(op, progress)
            case WriteLog():
                return self._write_log(op)
            case GetStored() | SetStored() | DeleteStored() | ListStored():
                return await self._handle_storage(op)
            case GetSnapshot() | SubscribeSnapshot():
                return self._read_snapshot(op)
            case InvokeAction():
                return await self._invoke(op)
            case ReadFile() | ReadFolder():
                return await self._read(op)
            case FetchUrl():
                return await self._fetch(op)
        raise AssertionError(f"the gate allows {type(op).__name__}, and no service answers it")

    async def _ask_agent(
        self, op: RecallMemory | CompleteChat | AskUser | ListRoots, progress: Callable[[Any], None]
    ) -> Any:
        """Services of the agent: its memory, its models, its user and its project."""
        match op:
            case RecallMemory():
                return await self._recall(op)
            case CompleteChat():
                answer = await self._ask_client(op)
                return await self._services.llm.complete(op, progress) if answer is None else answer
            case AskUser():
                question = Question(self._spec.id, op.message, op.schema, op.url, op.during)
                return await ask_user(self._services.questions, question)
        answer = await self._ask_client(op)
        return [dict(root) for root in self._roots] if answer is None else answer

    async def _ask_client(self, op: CompleteChat | ListRoots) -> Any:
        """The answer of the client; None if the host answers: no client can, or the request is of another contract."""
        ask = self._services.ask_client
        if ask is None or (isinstance(op, CompleteChat) and op.request is None):
            return None
        return await ask(self._spec.id, op)

    def handle_notification(self, op: Operation) -> None:
        telling = CAUSE.set(
            None
        )  # a notification has no cause, and the reader of the pipe still has the context of its first call
        try:
            self._handle_notification(op)
        finally:
            CAUSE.reset(telling)

    def _handle_notification(self, op: Operation) -> None:
        match op:
            case Publish() if self._published is not None and not self._published.take(time.monotonic()):
                self._note("publish_dropped", f"more than {self._spec.publish_rate} a second")
            case Publish():
                refusal = self._gate.refuse(op) or self._publish(op)
                if refusal is not None:
                    self._note("publish_refused", refusal.message)
            case PublishSnapshot():
                self._publish_snapshot(op)
            case WriteLog():
                self._write_log(op)
            case OfferExports() | ChangeResource():
                self._handle_change(op)

    def _write_log(self, op: WriteLog) -> None:
        self._log.write(WriteLog(LEVEL_WORDS.get(op.level, op.level), op.message, op.fields))

    def _handle_change(self, op: OfferExports | ChangeResource) -> None:
        """Handle a change of the exports or of a resource of the plugin."""
        if isinstance(op, OfferExports):
            self._offer = op.offer
            if self._offer_timer is None:
                self._forward_offer()
        elif not self._change_bucket.take(time.monotonic()):
            self._note("change_dropped", f"more than {CHANGES_PER_SECOND:g} changes a second")
        else:
            payload = {"plugin_id": self._spec.id, "uri": op.uri}
            self._services.publish_event(RESOURCE_CHANGED, self._spec.id, payload)

    def _forward_offer(self) -> None:
        """Pass on the newest exports, within the rate limit. They are delayed but never dropped: otherwise the host
        would go on with exports that are gone."""
        self._offer_timer = None
        if self._offer is None or self._services.offered is None:
            return
        if self._offer_bucket.take(time.monotonic()):
            offer, self._offer = self._offer, None
            self._services.offered(self._spec.id, offer)
        else:
            self._note("change_delayed", "its exports change too often")
            # Slightly later than the next token is due: a timer may fire a millisecond early and would have to wait.
            self._offer_timer = asyncio.get_running_loop().call_later(1 / OFFERS_PER_SECOND + 0.05, self._forward_offer)

    def handle_noise(self, event: Noise) -> None:
        excerpt = self._redactor.redact_text(event.data.decode("utf-8", "backslashreplace"))[:200]
        self._note("noise", f"{event.why}: {excerpt}" if excerpt else event.why)

    def _publish(self, op: Publish) -> Failure | None:
        event = BusEvent.complete(op.topic, self._spec.id, op.event, new_id=new_uuid, now=utc_now)
        if isinstance(event, str):
            return Failure(Code.INVALID_INPUT, f"not an event: {event}")
        refusal = refuse_event_size(memoryview(event.raw()).nbytes)
        if refusal is None:
            if event.session_id is None and op.event.get("session_id") is not None:
                self._note("session_dropped", f"the session_id of an event to {op.topic} is not a UUID")
            self._services.bus.publish(event)
        return refusal

    def _publish_snapshot(self, op: PublishSnapshot) -> None:
        if not self._snapshot_bucket.take(time.monotonic()):
            self._note("publish_dropped", f"more than {SNAPSHOTS_PER_SECOND:g} snapshots a second")
            return
        refusal = self._gate.refuse(op) or self._snapshots.publish(op.topic, op.data)
        if refusal is not None:
            self._note("publish_refused", refusal.message)
        elif self.on_published is not None:
            self.on_published()

    def _read_snapshot(self, op: GetSnapshot | SubscribeSnapshot) -> Any:
        if isinstance(op, SubscribeSnapshot):
            return self._snapshots.subscribe(op.topic)
        return self._backlog_refusal() or self._snapshots.get(op.topic)

    async def _invoke(self, op: InvokeAction) -> bytes:
        spawns = may_spawn(self._gate.access)
        return await self._services.actions.invoke(self._spec.id, op.action, op.data, op.timeout_ms, may_spawn=spawns)

    async def _fetch(self, op: FetchUrl) -> Any:
        async with self._fetching:
            return self._backlog_refusal() or await self._services.network.fetch(op, self._gate.access, self._opened)

    async def _read(self, op: ReadFile | ReadFolder) -> Any:
        files = self._services.files
        look = files.read if isinstance(op, ReadFile) else files.entries
        try:
            async with self._reading:
                return self._backlog_refusal() or await look(op.path, self._gate.read_roots(), self._protected)
        except Outside as error:
            return self._path_refusal(op.path, error)

    def _backlog_refusal(self) -> Failure | None:
        """Why no large answer is made now: the plugin does not read, so the host would have to keep it in memory."""
        if self._link is None or self._link.has_room:
            return None
        return Failure(Code.OVERLOADED, "the plugin has not read its earlier answers yet", retryable=True)

    def _path_refusal(self, path: str, error: Outside) -> Failure:
        reason = ""
        if error.entry is not None:
            where = f"{path} is" if error.entry.path == path else f"{path} lies in"
            reason = f"{where} {error.entry.what}, which no grant allows"
        return self._gate.refuse_path(path, os.path.expanduser("~"), reason)

    async def _handle_storage(self, op: GetStored | SetStored | DeleteStored | ListStored) -> Any:
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

    # Events for the plugin.

    def connect(self, link: Link) -> None:
        """Connect to the link of the new process, which may subscribe to snapshots before its greeting is over."""
        self._link = link
        self._snapshots.open(lambda topic, data: self._deliver(link, DeliverSnapshot(topic, data)))

    def attach(self) -> None:
        """Start delivery of the topics that the manifest subscribes to."""
        link = self._link
        if self._spec.subscribes and link is not None:
            self._subscription = self._services.bus.listen(
                self._spec.subscribes, lambda event: link.notify(DeliverEvent(event.topic, event.raw()))
            )
        for topic in self._snapshots.subscribe_declared():
            self._note("subscription_refused", f"its manifest subscribes to {topic}; event_bus is not granted for it")

    def detach(self) -> None:
        """End delivery: the process is going away. May be called twice."""
        link, self._link = self._link, None
        self._offer = None
        if self._offer_timer is not None:
            self._offer_timer.cancel()
            self._offer_timer = None
        if self._subscription is not None:
            self._subscription.cancel()
            self._subscription = None
        self._snapshots.close()
        if link is not None and link.dropped:
            self._note("events_dropped", "it did not read its input in time, or they were too large", link.dropped)
        if link is not None and link.urgent_dropped:
            self._note("keys_dropped", "it did not read its input in time", link.urgent_dropped)

    def _deliver(self, link: Link, op: DeliverSnapshot) -> None:
        link.notify(op)
        if self._services.delivered is not None:
            self._services.delivered(self._spec.id)

    def _note(self, kind: str, text: str, times: int = 1, *, level: str = "warn") -> None:
        self._services.journal.note(self._spec.id, kind, self._redactor.redact_text(text), times, level=level)


LINES_PER_SECOND = 200.0
LINE_BURST = 1000.0
"""Log lines of one instance; excess lines are counted and dropped."""

_CODEC = MsgspecCodec()


class Write(Protocol):
    """Writes one line to the journal."""

    def __call__(self, kind: str, text: str, *, level: str) -> object: ...


class LogWriter:
    """Writes the log lines of one instance to the journal, filtered by level and rate."""

    def __init__(self, level: str, write: Write, clock: Callable[[], float] = time.monotonic) -> None:
        self._lowest = LEVELS.index(level)
        self._write = write
        self._clock = clock
        self._bucket = TokenBucket(LINES_PER_SECOND, LINE_BURST)

    def write(self, op: WriteLog) -> None:
        """Write a line, unless its level is too low or the rate limit is reached. An unknown level counts as `info`."""
        level = op.level if op.level in LEVELS else "info"
        if LEVELS.index(level) < self._lowest:
            return
        if not self._bucket.take(self._clock()):
            self._write("log_dropped", f"more than {LINES_PER_SECOND:g} lines a second", level="warn")
            return
        self._write(f"{OWN_LINE}{level}", op.message + _format_fields(op.fields), level=level)


def _format_fields(fields: Any) -> str:
    """The fields of a line as JSON; empty if there are none."""
    if fields is None or fields == {} or fields == []:
        return ""
    try:
        raw = fields if isinstance(fields, msgspec.Raw) else _CODEC.dump(fields)
    except Unencodable:
        return ""
    return " " + bytes(raw).decode("utf-8", "backslashreplace")


Deliver = Callable[[str, bytes], object]
"""Sends a topic and its data to the instance."""


class SnapshotAccess:
    """The snapshot subscriptions of one instance, and its own snapshots. The gate has allowed each request before."""

    def __init__(self, spec: PluginSpec, gate: Gate, snapshots: Snapshots) -> None:
        self._spec = spec
        self._gate = gate
        self._snapshots = snapshots
        self._subscription: SnapshotSubscription | None = None

    def open(self, deliver: Deliver) -> None:
        """Allow subscriptions; the process may ask for them before its greeting is over."""

        def forward(topic: str, snapshot: Snapshot) -> None:
            deliver(topic, snapshot.data)

        self._subscription = self._snapshots.listen((), forward, name=self._spec.id)

    def subscribe_declared(self) -> list[str]:
        """Subscribe to the topics of the manifest, after the greeting. Returns the topics that are not granted."""
        ungranted = [topic for topic in self._spec.snapshots if not covers_topic(self._gate.access, topic)]
        if self._subscription is not None:
            for topic in set(self._spec.snapshots).difference(ungranted):
                self._subscription.add(self._gate.snapshot_key(topic))
        return ungranted

    def close(self) -> None:
        """Drop its subscriptions and its own UI state: the process is going away. May be called twice."""
        if self._subscription is not None:
            self._subscription.cancel()
            self._subscription = None
            self._snapshots.erase(self._gate.snapshot_key(UI_STATE))

    @property
    def keeps_alive(self) -> bool:
        """Whether it waits for snapshots, so it is not idle even without calls."""
        subscribed = set() if self._subscription is None else self._subscription.topics
        return bool(subscribed - {self._gate.snapshot_key(topic) for topic in self._spec.latest_state})

    def get(self, topic: str) -> dict[str, Any]:
        """The current snapshot of the topic."""
        found = self._snapshots.get(self._gate.snapshot_key(topic))
        return {"data": None, "version": 0} if found is None else {"data": found.data, "version": found.version}

    def subscribe(self, topic: str) -> Failure | None:
        """Subscribe to the topic, from the next publish on."""
        if self._subscription is None:
            return Failure(Code.CANCELLED, "the plugin is shutting down and gets no further snapshots")
        key = self._gate.snapshot_key(topic)
        refusal = refuse_subscription(self._subscription.topics | {key})
        if refusal is None:
            self._subscription.add(key)
        return refusal

    def publish(self, topic: str, data: bytes) -> Failure | None:
        """Publish a snapshot, or return why it is refused."""
        key = self._gate.snapshot_key(topic)
        if key == self._gate.snapshot_key(UI_STATE) and self._subscription is None:
            return self._gate.refuse_ui_state(topic)
        try:
            self._snapshots.publish(key, data, publisher=self._spec.id)
        except CallFailed as error:
            return error.failure
        return None
