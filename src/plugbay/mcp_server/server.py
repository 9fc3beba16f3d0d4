"""`McpServer`: a running host as one MCP server, for any number of clients.

Forwards client requests to plugins, notifies clients when lists or subscribed resources change, and rebuilds the
`Listing` when plugins come and go. Transports (stdio, HTTP) connect and disconnect clients through `ClientConnection`.
A question of a plugin goes to the client whose call the plugin works on (`QuestionRouter`), and never to another one.
Where that client has models and roots of its own, they answer in place of the host's.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from plugbay import __version__
from plugbay.contracts.mcp import errors
from plugbay.contracts.mcp.messages import Server, as_text
from plugbay.contracts.mcp.requests import CONTEXT
from plugbay.contracts.mcp.server import ServerMachine
from plugbay.host.authorization import policy
from plugbay.host.catalog.catalog import Entry
from plugbay.host.catalog.runtime_exports import CHANGED, RUNTIME_CONTRACTS
from plugbay.host.host import Host
from plugbay.host.inbound.handler import RESOURCE_CHANGED
from plugbay.host.inbound.questions import CANCEL, DECLINE, Question
from plugbay.host.journal import OWN_LINE, Note
from plugbay.host.request import CallRequest
from plugbay.mcp_server import listing
from plugbay.mcp_server.connection import Call, ClientConnection, Transport
from plugbay.mcp_server.listing import INPUT_ARGUMENT, Listing, build_listing, original_name, takes_object
from plugbay.mcp_server.results import ProgressCounter, failed_result, tool_result
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import (
    AskUser,
    ChangeResource,
    ChangeRoots,
    CheckHealth,
    CompleteArgument,
    CompleteChat,
    GetPrompt,
    InvokeTool,
    ListRoots,
    OfferExports,
    ReadResource,
    SetLogLevel,
    WatchResource,
    WriteLog,
)
from plugbay.wire.fast_json import MsgspecCodec

if TYPE_CHECKING:
    from plugbay.host.events.bus import BusEvent
    from plugbay.model.operations import Operation, PluginOp


SetSubscription = Callable[[WatchResource], Coroutine[Any, Any, Failure | None]]
"""Subscribes to a resource at its plugin, or unsubscribes; returns a `Failure` when the plugin refuses."""

STARTUP_SECONDS = 5.0
"""Seconds to wait at start for plugins that declare their exports only at run time. Slower plugins are announced later
with a list-changed notification."""

MAX_EVENTS = 4096
"""Depth of the event queue; handling one event takes microseconds."""

LIFECYCLE = "plugin.lifecycle.*.*"
GAVE_UP, STARTED = "gave_up", frozenset({"started", "restarted_manually"})
"""Lifecycle events of a plugin that is no longer started, and of one that is started again."""

STDERR = "stderr_tail"
"""The key in `Failure.detail` with the last stderr lines of a plugin."""

STATE_BYTES = 32
"""Random bytes in `requestState`, so that no client can guess the state of another one."""


class Subscriptions:
    """Which clients subscribed to which resource.

    The plugin that owns a resource is subscribed once, however many clients subscribe, until the last one leaves.
    """

    def __init__(self, ask: SetSubscription, spawn: Callable[[Coroutine[Any, Any, Any]], object]) -> None:
        """`spawn` runs a coroutine in the background."""
        self._ask = ask
        self._spawn = spawn
        self._subscribers: dict[str, set[ClientConnection]] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """One lock per URI, so that a plugin receives subscribe and unsubscribe requests in order. Unused locks vanish.
        """

    @property
    def uris(self) -> list[str]:
        """URIs with at least one subscriber."""
        return list(self._subscribers)

    async def change(self, client: ClientConnection, op: WatchResource) -> Failure | None:
        """Subscribe a client to a resource, or unsubscribe it."""
        if op.wanted:
            return await self._subscribe(op.uri, client)
        self._spawn(self._unsubscribe(op.uri, client))
        return None

    def remove_client(self, client: ClientConnection) -> None:
        """Drop all subscriptions of a client that left."""
        for uri in [uri for uri, subscribers in self._subscribers.items() if client in subscribers]:
            self._spawn(self._unsubscribe(uri, client))

    def notify_changed(self, uri: str) -> None:
        """Notify every subscriber that the resource changed."""
        for client in list(self._subscribers.get(uri, ())):
            client.notify(ChangeResource(uri))

    def resubscribe(self, uri: str) -> None:
        """Subscribe again after a restart: a new process does not know the subscriptions of the one before."""
        self._spawn(self._ask(WatchResource(uri)))

    def _lock(self, uri: str) -> asyncio.Lock:
        return self._locks.setdefault(uri, asyncio.Lock())

    async def _subscribe(self, uri: str, client: ClientConnection) -> Failure | None:
        async with self._lock(uri):
            failure = None if uri in self._subscribers else await self._ask(WatchResource(uri))
            if failure is None:
                self._subscribers.setdefault(uri, set()).add(client)
        if client.closed:
            await self._unsubscribe(uri, client)
        return failure

    async def _unsubscribe(self, uri: str, client: ClientConnection) -> None:
        async with self._lock(uri):
            subscribers = self._subscribers.get(uri, set())
            subscribers.discard(client)
            if not subscribers and self._subscribers.pop(uri, None) is not None:
                await self._ask(WatchResource(uri, False))


ROOTS_SECONDS = 10.0
"""Seconds for a client to list its roots outside a call: a program answers, and may have no stream open to be asked."""

WITHDRAWN = Failure(Code.CANCELLED, "its call has ended")


class QuestionRouter:
    """The open calls of each plugin. Pass `Host(questions=router.ask)` so that plugins can ask."""

    def __init__(self) -> None:
        self._busy: dict[str, list[Call]] = {}
        self._asking: dict[asyncio.Future[Any], tuple[str, ClientConnection]] = {}
        """Open questions, each with its plugin and client."""
        self.count_running: Callable[[str], int] = lambda plugin_id: 0
        """All running calls of a plugin, also those that no MCP client has made."""

    @contextmanager
    def serving(self, plugin_id: str, call: Call) -> Iterator[None]:
        """Mark the plugin as working on the call, for the duration of the block."""
        calls = self._busy.setdefault(plugin_id, [])
        calls.append(call)
        try:
            yield
        finally:
            calls.remove(call)
            if not calls:
                del self._busy[plugin_id]
            if self._asking and all(other.connection is not call.connection for other in calls):
                self._withdraw(plugin_id, call.connection)

    def _withdraw(self, plugin_id: str, client: ClientConnection) -> None:
        for asking, between in self._asking.items():
            if between == (plugin_id, client):
                asking.cancel()

    async def ask(self, question: Question) -> Mapping[str, Any]:
        """The answer of the person at the client; a client that cannot ask a person declines."""
        call = self.find_call(question.plugin, question.during)
        if call is None:
            return {"action": DECLINE}
        answer = await self.ask_during(question.plugin, call, AskUser(question.message, question.schema, question.url))
        if isinstance(answer, Failure):
            return {"action": CANCEL if answer is WITHDRAWN else DECLINE}
        return dict(answer)

    def is_busy(self, plugin_id: str) -> bool:
        """Whether the plugin works on a call of a client."""
        return plugin_id in self._busy

    def find_call(self, plugin_id: str, during: Operation | None) -> Call | None:
        """The call that a question of the plugin belongs to; None if it may belong to a call of another caller.

        `during`: the operation (the same object) that the plugin works on, if it says so.
        """
        calls = self._busy.get(plugin_id, [])
        if during is not None:
            calls = [call for call in calls if call.forwarded_op is during]
        elif self.count_running(plugin_id) > len(calls):
            return None
        return calls[0] if len({id(call.connection) for call in calls}) == 1 else None

    async def ask_during(self, plugin_id: str, call: Call, op: Operation) -> Any:
        """The answer of the client to a question that belongs to its call, or a `Failure`; `WITHDRAWN` when the client
        has no call at the plugin any more.
        """
        asking = asyncio.ensure_future(call.ask(op))
        self._asking[asking] = (plugin_id, call.connection)
        try:
            await asyncio.wait({asking})
        finally:
            del self._asking[asking]
            asking.cancel()
        return WITHDRAWN if asking.cancelled() else asking.result()


class McpServer:
    """Serves one host to any number of clients. Use it with `async with` while the host runs."""

    def __init__(
        self,
        host: Host,
        questions: QuestionRouter | None = None,
        *,
        rule: listing.NamingRule = listing.qualified_name,
        only: Sequence[str] = (),
        as_tools: Collection[str] = (),
        timeout: float | None = None,
        name: str = "plugbay",
        instructions: str = "",
        patience: float = STARTUP_SECONDS,
        strict: bool = True,
    ) -> None:
        """`timeout`: seconds per call, instead of each plugin's own timeout. `as_tools`: kinds of exports to serve as
        tools, of `listing.AS_TOOLS`.

        If `strict` is False and two exports get the same name, the server starts and leaves out the second one.
        """
        self._host = host
        self._questions = questions or QuestionRouter()
        self._questions.count_running = self._count_running
        self._rule = rule
        self._only = tuple(only)
        self._as_tools = frozenset(as_tools)
        self._timeout = timeout
        self._name = name
        self._instructions = instructions
        self._patience = patience
        self._strict = strict
        self._clients: set[ClientConnection] = set()
        self._subscriptions = Subscriptions(self._set_subscription, self._spawn)
        self._given_up: set[str] = set()
        self._codec = MsgspecCodec()
        self._tasks: set[asyncio.Future[Any]] = set()
        self._stop_listening: Callable[[], None] = lambda: None
        self.listing = self._build_listing()

    # Start and stop.

    async def __aenter__(self) -> McpServer:
        """Collect the exports of all plugins; raises `NamesCollide` when two exports get the same name."""
        self._stop_listening = self._host.journal.listen(self._forward_log)
        self._host.ask_client = self._ask_client
        events = self._host.subscribe(CHANGED, RESOURCE_CHANGED, LIFECYCLE, depth=MAX_EVENTS)
        started = self._spawn(self._start_undeclared())
        self._spawn(self._follow_events(events))
        try:
            await asyncio.wait({started}, timeout=self._patience)
            self.listing = self._build_listing()
            if self.listing.collisions and self._strict:
                raise self.listing.collisions[0]
            self._log_left_out()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop_listening()
        self._host.ask_client = None
        for client in list(self._clients):
            client.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *(client.finished() for client in self._clients), return_exceptions=True)

    async def _start_undeclared(self) -> None:
        """Start the plugins that declare exports, or input schemas, only at run time."""
        calls = self._host.calls
        for plugin_id in {entry.spec.id for entry in self._admitted_entries() if _is_undeclared(entry)}:
            calls.supervisors[plugin_id].begin()
        await asyncio.gather(self._host.meet(), self._host.settled())

    # Clients.

    def server(self) -> Server:
        """Name, version, capabilities and current lists of this server."""
        offer = self.listing.offer
        return Server(
            self._name,
            __version__,
            title="plugbay",
            instructions=self._instructions,
            offer=offer,
            capabilities=self._capabilities(),
        )

    def _capabilities(self) -> dict[str, Any]:
        """Announces resources and prompts if any plugin may still add some: capabilities cannot be added after the
        handshake.
        """
        announced: dict[str, Any] = {"tools": {"listChanged": True}, "logging": {}}
        if any(item.spec is not None and item.spec.contract in RUNTIME_CONTRACTS for item in self._host.found):
            announced["resources"] = {"subscribe": True, "listChanged": True}
            announced["prompts"] = {"listChanged": True}
            announced["completions"] = {}
        return announced

    def connect(self, transport: Transport) -> ClientConnection:
        """Connect a new client; it receives notifications until `disconnect`."""
        machine = ServerMachine(self._codec, server=self.server(), entropy=_entropy)
        client = ClientConnection(machine, self, transport)
        self._clients.add(client)
        return client

    def disconnect(self, client: ClientConnection) -> None:
        """Forget a client and its subscriptions."""
        self._clients.discard(client)
        self._subscriptions.remove_client(client)
        if client.has_roots:
            self._notify_roots_changed()

    # Requests of clients.

    async def answer(self, call: Call) -> Any:
        """Answer one request with a value or a `Failure`; calls of plugins join the client's trace."""
        beside = getattr(call.op, "context", {}).get(CONTEXT, {})
        with self._host.calls.with_parent(beside):
            return await self._answer(call)

    async def _answer(self, call: Call) -> Any:
        match call.op:
            case InvokeTool():
                return await self._call_tool(call, call.op)
            case ReadResource():
                return await self._read_resource(call, call.op)
            case GetPrompt():
                return await self._get_prompt(call, call.op)
            case CompleteArgument():
                return await self._complete(call, call.op)
            case WatchResource():
                return await self._subscriptions.change(call.connection, call.op)
            case SetLogLevel() | CheckHealth():
                return None
        return Failure(Code.NOT_FOUND, f"this server does not answer {type(call.op).__name__}")

    def handle_notification(self, client: ClientConnection, op: Operation) -> None:
        """Handle a notification: in the modern era, subscriptions arrive without a request id."""
        if isinstance(op, WatchResource):
            self._spawn(self._subscriptions.change(client, op))
        elif isinstance(op, ChangeRoots):
            self._notify_roots_changed()

    def report_noise(self, why: str) -> None:
        """Log a message that a client sent in violation of the protocol."""
        self._host.journal.note("mcp client", "noise", why)

    async def _call_tool(self, call: Call, op: InvokeTool) -> Any:
        entry = self.listing.tools.get(op.tool)
        if entry is None:
            return Failure(Code.TOOL_NOT_EXPOSED, f"there is no tool called {op.tool!r}")
        given = op.input if takes_object(entry.export) else op.input.get(INPUT_ARGUMENT)
        calls, steps = self._host.calls, ProgressCounter()
        # Only MCP servers accept the context that a client sends beside the arguments.
        context = op.context if entry.spec.contract in RUNTIME_CONTRACTS else {}

        def remember(known: Entry) -> PluginOp | Failure:
            call.forwarded_op = forwarded_op = calls.operation(request, known)
            return forwarded_op

        def on_progress(item: Any) -> None:
            call.progress(steps.next(item))

        request = CallRequest(entry.full_name, given, entry.export.kind, self._timeout, on_progress, context, remember)
        with self._questions.serving(entry.spec.id, call):
            result = await calls.run(request)
        answer = _without_stderr(result.failure) or tool_result(entry.export, result.output)
        if not isinstance(answer, Failure) or not _is_for_the_model(entry, answer):
            return answer
        return errors.to_result(answer, failed_result(entry.export, answer))

    async def _read_resource(self, call: Call, op: ReadResource) -> Any:
        missing: Any = Failure(Code.NOT_FOUND, f"there is no resource {op.uri!r}")
        for entry in self.listing.readers(op.uri):
            answer = await self._forward(call, entry, op)
            if not (isinstance(answer, Failure) and answer.code == Code.NOT_FOUND):
                return answer
            missing = answer
        return missing

    async def _get_prompt(self, call: Call, op: GetPrompt) -> Any:
        entry = self.listing.prompts.get(op.prompt)
        if entry is None:
            return Failure(Code.NOT_FOUND, f"there is no prompt called {op.prompt!r}")
        return await self._forward(call, entry, GetPrompt(original_name(entry.export), op.input, op.context))

    async def _complete(self, call: Call, op: CompleteArgument) -> Any:
        ref, listed = op.request["ref"], self.listing
        name, uri = as_text(ref.get("name")), as_text(ref.get("uri"))
        entry = listed.prompts.get(name) if ref.get("type") == "ref/prompt" else None
        if entry is not None:
            op = CompleteArgument({**op.request, "ref": {**ref, "name": original_name(entry.export)}})
        elif ref.get("type") == "ref/resource":
            entry = listed.templates.get(uri) or listed.resources.get(uri)
        if entry is None:
            return Failure(Code.INVALID_INPUT, "ref is neither a prompt nor a resource template of this server")
        answer = await self._forward(call, entry, op)
        # The capability is announced for all plugins together; a plugin without it has no suggestions.
        cannot = isinstance(answer, Failure) and answer.code in (Code.NOT_FOUND, Code.CAPABILITY_NOT_DECLARED)
        return {"completion": {"values": []}} if cannot else answer

    async def _set_subscription(self, op: WatchResource) -> Failure | None:
        """Subscribe to a resource at the plugin that owns it, or unsubscribe."""
        readers = self.listing.readers(op.uri)
        if not readers:
            return Failure(Code.NOT_FOUND, f"there is no resource {op.uri!r}")
        supervisor = self._host.calls.supervisors.get(readers[0].spec.id)
        if not op.wanted and (supervisor is None or supervisor.pid is None):
            return None  # a plugin that is not running has no subscriptions, and is not started to remove one
        result = await self._host.ask(readers[0].full_name, op, kind="resource", timeout=self._timeout)
        return _without_stderr(result.failure)

    async def _forward(self, call: Call, entry: Entry, op: PluginOp) -> Any:
        """Forward an operation unchanged to the plugin of an export."""
        steps, call.forwarded_op = ProgressCounter(), op
        with self._questions.serving(entry.spec.id, call):
            result = await self._host.ask(
                entry.full_name,
                op,
                kind=entry.export.kind,
                timeout=self._timeout,
                on_progress=lambda item: call.progress(steps.next(item)),
            )
        return _without_stderr(result.failure) or result.output

    # Questions of plugins.

    async def _ask_client(self, plugin_id: str, op: CompleteChat | ListRoots) -> Any:
        """The answer of the client that the plugin works for, or a `Failure`; None if the host has to answer."""
        call = self._questions.find_call(plugin_id, op.during)
        if call is not None:
            if not call.can_ask(op):
                return None
            answer = await self._questions.ask_during(plugin_id, call, op)
            if answer is WITHDRAWN and isinstance(op, ListRoots) and op.during is None:
                # The server named no call: it may have asked because the roots changed, and waits for the new ones.
                return await self._list_roots([call.connection], op)
            return answer
        if isinstance(op, ListRoots) and not self._questions.is_busy(plugin_id):
            return await self._list_roots(self._clients, op)
        return None

    async def _list_roots(self, clients: Iterable[ClientConnection], op: ListRoots) -> Any:
        """The roots of the only client that has some: servers ask for them outside calls, and remember them."""
        with_roots = [client for client in clients if client.has_roots]
        if len(with_roots) != 1:
            return None
        try:
            async with asyncio.timeout(ROOTS_SECONDS):
                return await with_roots[0].ask(op)
        except TimeoutError:
            return None

    def _count_running(self, plugin_id: str) -> int:
        return sum(item.busy for item in self._host.plugins() if item.spec.id == plugin_id)

    def _notify_roots_changed(self) -> None:
        for item in self._host.plugins():
            self._host.calls.tell(item.spec.id, ChangeRoots())

    # Events of plugins.

    async def _follow_events(self, events: Any) -> None:
        async with events:
            async for event in events:
                self._handle_event(event)

    def _handle_event(self, event: BusEvent) -> None:
        payload: Mapping[str, Any] = event.payload
        if event.topic == RESOURCE_CHANGED:
            self._subscriptions.notify_changed(payload["uri"])
            return
        what = event.topic.rpartition(".")[2]
        if what == GAVE_UP:
            self._given_up.add(payload["plugin_id"])
        elif what in STARTED:
            self._given_up.discard(payload["plugin_id"])
            for uri in self._subscriptions.uris:
                if [entry.spec.id for entry in self.listing.readers(uri)[:1]] == [payload["plugin_id"]]:
                    self._subscriptions.resubscribe(uri)
        self.refresh()

    def refused_plugins(self) -> dict[str, Failure]:
        """Plugins that are not served because policy forbids starting them, with the reason."""
        decisions = self._host.decisions
        refusals = {item.spec.id: policy.admit(item.spec, decisions[item.spec.id]) for item in self._host.plugins()}
        return {plugin_id: refusal for plugin_id, refusal in refusals.items() if refusal is not None}

    def refresh(self) -> None:
        """Rebuild the listing; notify every client if the lists changed."""
        fresh = self._build_listing()
        changed = fresh.offer != self.listing.offer
        self.listing = fresh
        if changed:
            self._log_left_out()
            for client in list(self._clients):
                client.notify(OfferExports(fresh.offer))

    def _log_left_out(self) -> None:
        """Log each export that is left out, and why."""
        for text in (*map(str, self.listing.collisions), *self.listing.shadowed):
            self._host.journal.note("mcp serve", "left_out", text)

    def _forward_log(self, plugin_id: str, note: Note) -> None:
        """Forward log lines of plugins to clients, at the level each client asked for."""
        if note.kind.startswith(OWN_LINE):
            line = WriteLog(note.level, note.text, {"logger": plugin_id})
            for client in list(self._clients):
                client.notify(line)

    # Helpers.

    def _build_listing(self) -> Listing:
        return build_listing(self._admitted_entries(), self._rule, self._only, self._as_tools)

    def _admitted_entries(self) -> Iterable[Entry]:
        calls = self._host.calls
        return [
            entry for entry in calls.catalog.entries() if entry.spec.id not in self._given_up and calls.admits(entry)
        ]

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
        """Run a coroutine in the background."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _is_for_the_model(entry: Entry, failure: Failure) -> bool:
    """Whether a tool failure becomes a tool result that the model reads. Protocol errors of an MCP server, and unknown
    tools, stay JSON-RPC errors.
    """
    return entry.spec.contract not in RUNTIME_CONTRACTS or errors.is_for_the_model(InvokeTool, failure)


def _without_stderr(failure: Failure | None) -> Failure | None:
    """The failure without stderr lines: those are for the operator, not for clients."""
    if failure is None or STDERR not in failure.detail:
        return failure
    return Failure(
        failure.code,
        failure.message,
        origin=failure.origin,
        plugin=failure.plugin,
        detail={key: value for key, value in failure.detail.items() if key != STDERR},
        retryable=failure.retryable,
        retry_after_ms=failure.retry_after_ms,
    )


def _entropy() -> bytes:
    return os.urandom(STATE_BYTES)


def _is_undeclared(entry: Entry) -> bool:
    export = entry.export
    return export.kind == "tool" and not export.description and export.input_schema is None
