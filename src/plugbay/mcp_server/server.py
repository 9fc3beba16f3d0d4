"""`Subscriptions`: which clients hear of changes of which resource.

The plugin that keeps a resource is asked to watch it once, however many clients do, and as long as one does. Refuses to
know which plugin that is.

`McpServer`: a running host as an MCP server. What clients ask becomes calls of plugins; what changes, clients are told.

Owns which plugin answers what, who watches which resource, and when a list has changed. Refuses to know how clients are
connected: a `ClientConnection` joins and leaves.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from plugbay import __version__
from plugbay.contracts.base import Role
from plugbay.contracts.mcp import errors
from plugbay.contracts.mcp.machine import McpMachine
from plugbay.contracts.mcp.messages import Server, as_text
from plugbay.contracts.mcp.requests import CONTEXT
from plugbay.host.authorization import policy
from plugbay.host.catalog.catalog import Entry
from plugbay.host.catalog.runtime_exports import CHANGED, TELLERS
from plugbay.host.host import Host
from plugbay.host.inbound.handler import RESOURCE_CHANGED
from plugbay.host.journal import OWN_LINE, Note
from plugbay.mcp_server import listing
from plugbay.mcp_server.connection import Call, ClientConnection, Transport
from plugbay.mcp_server.listing import WRAPPED, Listing, build_listing, own_name, takes_object
from plugbay.mcp_server.questions import QuestionRouter
from plugbay.mcp_server.results import Steps, tool_result
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import (
    ChangeResource,
    CheckHealth,
    CompleteArgument,
    GetPrompt,
    InvokeTool,
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

Ask = Callable[[WatchResource], Coroutine[Any, Any, Failure | None]]
"""Has the plugin watch, or no longer; a `Failure` says why it does not."""


class Subscriptions:
    """By address, whoever watches it."""

    def __init__(self, ask: Ask, later: Callable[[Coroutine[Any, Any, Any]], object]) -> None:
        """`later` does something that nobody waits for."""
        self._ask = ask
        self._later = later
        self._watchers: dict[str, set[ClientConnection]] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By address, as long as somebody needs it: the plugin hears of one change after the other."""

    @property
    def addresses(self) -> list[str]:
        """What somebody watches."""
        return list(self._watchers)

    async def change(self, client: ClientConnection, op: WatchResource) -> Failure | None:
        """A client wants to hear of changes, or no longer."""
        if op.wanted:
            return await self._begin(op.uri, client)
        self._later(self._end(op.uri, client))
        return None

    def leave(self, client: ClientConnection) -> None:
        """The client is gone, and watches nothing any more."""
        for uri in [uri for uri, watchers in self._watchers.items() if client in watchers]:
            self._later(self._end(uri, client))

    def changed(self, uri: str) -> None:
        """What is kept under an address is not what it was."""
        for client in list(self._watchers.get(uri, ())):
            client.tell(ChangeResource(uri))

    def again(self, uri: str) -> None:
        """A process that has just begun does not know what its predecessor was asked to watch."""
        self._later(self._ask(WatchResource(uri)))

    def _turn(self, uri: str) -> asyncio.Lock:
        return self._turns.setdefault(uri, asyncio.Lock())

    async def _begin(self, uri: str, client: ClientConnection) -> Failure | None:
        async with self._turn(uri):
            failure = None if uri in self._watchers else await self._ask(WatchResource(uri))
            if failure is None:
                self._watchers.setdefault(uri, set()).add(client)
        if client.closed:
            await self._end(uri, client)
        return failure

    async def _end(self, uri: str, client: ClientConnection) -> None:
        async with self._turn(uri):
            watchers = self._watchers.get(uri, set())
            watchers.discard(client)
            if not watchers and self._watchers.pop(uri, None) is not None:
                await self._ask(WatchResource(uri, False))


FIRST_LOOK = 5.0
"""Seconds that clients usually wait, at the start, for plugins that say only when greeted what they offer. Who takes
longer comes later: clients are told that the lists have changed."""

MAX_EVENTS = 4096
"""Events that may wait while we are busy with others; each takes microseconds."""

LIFECYCLE = "plugin.lifecycle.*.*"
GONE, BACK = "gave_up", frozenset({"started", "restarted_manually"})
"""What is told of a plugin that is no longer started, and of one that is again."""

STDERR = "stderr_tail"
"""Where a failure has the last lines of a plugin's stderr."""

STATE_BYTES = 32
"""Random bytes in what a client has to bring back with an answer: nobody guesses somebody else's."""


class McpServer:
    """Everything that one host serves, to any number of clients. `async with` it while the host runs."""

    def __init__(
        self,
        host: Host,
        desk: QuestionRouter | None = None,
        *,
        rule: listing.NamingRule = listing.qualified_name,
        only: Sequence[str] = (),
        timeout: float | None = None,
        name: str = "plugbay",
        instructions: str = "",
        patience: float = FIRST_LOOK,
        strict: bool = True,
    ) -> None:
        """`timeout`: seconds for a call, instead of those of each plugin.

        Who is not `strict` begins although two exports have one name, and leaves the second out.
        """
        self._host = host
        self._desk = desk or QuestionRouter()
        self._rule = rule
        self._only = tuple(only)
        self._timeout = timeout
        self._name = name
        self._instructions = instructions
        self._patience = patience
        self._strict = strict
        self._clients: set[ClientConnection] = set()
        self._watches = Subscriptions(self._watch, self._later)
        self._gone: set[str] = set()
        self._codec = MsgspecCodec()
        self._tasks: set[asyncio.Future[Any]] = set()
        self._others_note = host.journal.listener
        self.listing = self._gathered()

    # Beginning and end.

    async def __aenter__(self) -> McpServer:
        """Get to know the plugins; raises `NamesCollide` when two exports would have one name."""
        self._others_note, self._host.journal.listener = self._host.journal.listener, self._noted
        events = self._host.subscribe(CHANGED, RESOURCE_CHANGED, LIFECYCLE, depth=MAX_EVENTS)
        met = self._later(self._meet())
        self._later(self._follow(events))
        try:
            await asyncio.wait({met}, timeout=self._patience)
            self.listing = self._gathered()
            if self.listing.collisions and self._strict:
                raise self.listing.collisions[0]
            self._complain()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._host.journal.listener = self._others_note
        for client in list(self._clients):
            client.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *(client.finished() for client in self._clients), return_exceptions=True)

    async def _meet(self) -> None:
        """Start whoever tells its exports, or what they take, only when it is greeted."""
        calls = self._host.calls
        for plugin_id in {entry.spec.id for entry in self._admitted() if _says_nothing(entry)}:
            calls.supervisors[plugin_id].begin()
        await asyncio.gather(self._host.meet(), self._host.settled())

    # Clients.

    def server(self) -> Server:
        """Who we say we are, and what is offered now."""
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
        """Resources and prompts are announced where a plugin may still bring some: nothing can be announced later."""
        announced: dict[str, Any] = {"tools": {"listChanged": True}, "logging": {}}
        if any(item.spec is not None and item.spec.contract in TELLERS for item in self._host.found):
            announced["resources"] = {"subscribe": True, "listChanged": True}
            announced["prompts"] = {"listChanged": True}
            announced["completions"] = {}
        return announced

    def converse(self, transport: Transport) -> ClientConnection:
        """A new client, which is told of changes from now on until it leaves."""
        machine = McpMachine(Role.PLUGIN, self._codec, server=self.server(), entropy=_entropy)
        client = ClientConnection(machine, self, transport)
        self._clients.add(client)
        return client

    def leave(self, client: ClientConnection) -> None:
        """The client is gone, and watches nothing any more."""
        self._clients.discard(client)
        self._watches.leave(client)

    # What clients ask.

    async def answer(self, call: Call) -> Any:
        """The value for a call of a client, or a `Failure`; what plugins do for it belongs to the client's trace."""
        beside = getattr(call.op, "context", {}).get(CONTEXT, {})
        with self._host.calls.following(beside):
            return await self._answer(call)

    async def _answer(self, call: Call) -> Any:
        match call.op:
            case InvokeTool():
                return await self._tool(call, call.op)
            case ReadResource():
                return await self._read(call, call.op)
            case GetPrompt():
                return await self._prompt(call, call.op)
            case CompleteArgument():
                return await self._complete(call, call.op)
            case WatchResource():
                return await self._watches.change(call.conversation, call.op)
            case SetLogLevel() | CheckHealth():
                return None
        return Failure(Code.NOT_FOUND, f"nobody here answers {type(call.op).__name__}")

    def told(self, client: ClientConnection, op: Operation) -> None:
        """A client of the modern era says what it wants to watch without waiting for an answer."""
        if isinstance(op, WatchResource):
            self._later(self._watches.change(client, op))

    def puzzled(self, why: str) -> None:
        """A client that does not speak properly is worth a line in the log, and no more."""
        self._host.journal.note("mcp client", "noise", why)

    async def _tool(self, call: Call, op: InvokeTool) -> Any:
        entry = self.listing.tools.get(op.tool)
        if entry is None:
            return Failure(Code.TOOL_NOT_EXPOSED, f"there is no tool called {op.tool!r}")
        given = op.input if takes_object(entry.export) else op.input.get(WRAPPED)
        calls, steps = self._host.calls, Steps()
        # Only an MCP server has a place for what a client says beside its arguments.
        made = calls.with_input(given, op.context if entry.spec.contract in TELLERS else {}, stream=True)

        def ask(known: Entry) -> PluginOp | Failure:
            call.passed_on = passed_on = made(known)
            return passed_on

        with self._desk.serving(entry.spec.id, call):
            result = await calls.attempt(
                entry.full_name, ask, self._timeout, lambda item: call.progress(steps.next(item)), "tool"
            )
        answer = _outward(result.failure) or tool_result(entry.export, result.output)
        return errors.to_result(answer) if isinstance(answer, Failure) and _is_for_the_model(entry, answer) else answer

    async def _read(self, call: Call, op: ReadResource) -> Any:
        missing: Any = Failure(Code.NOT_FOUND, f"nothing is kept under {op.uri!r}")
        for entry in self.listing.readers(op.uri):
            answer = await self._ask(call, entry, op)
            if not (isinstance(answer, Failure) and answer.code == Code.NOT_FOUND):
                return answer
            missing = answer
        return missing

    async def _prompt(self, call: Call, op: GetPrompt) -> Any:
        entry = self.listing.prompts.get(op.prompt)
        if entry is None:
            return Failure(Code.NOT_FOUND, f"there is no prompt called {op.prompt!r}")
        return await self._ask(call, entry, GetPrompt(own_name(entry.export), op.input, op.context))

    async def _complete(self, call: Call, op: CompleteArgument) -> Any:
        ref, offering = op.request["ref"], self.listing
        name, uri = as_text(ref.get("name")), as_text(ref.get("uri"))
        entry = offering.prompts.get(name) if ref.get("type") == "ref/prompt" else None
        if entry is not None:
            op = CompleteArgument({**op.request, "ref": {**ref, "name": own_name(entry.export)}})
        elif ref.get("type") == "ref/resource":
            entry = offering.templates.get(uri) or offering.resources.get(uri)
        if entry is None:
            return Failure(Code.INVALID_INPUT, "ref names no prompt and no resource template of this server")
        answer = await self._ask(call, entry, op)
        # We announce this for all servers together; one that cannot has no suggestions.
        cannot = isinstance(answer, Failure) and answer.code in (Code.NOT_FOUND, Code.CAPABILITY_NOT_DECLARED)
        return {"completion": {"values": []}} if cannot else answer

    async def _watch(self, op: WatchResource) -> Failure | None:
        """Ask whoever keeps a resource to watch it, or no longer."""
        readers = self.listing.readers(op.uri)
        if not readers:
            return Failure(Code.NOT_FOUND, f"nothing is kept under {op.uri!r}")
        supervisor = self._host.calls.supervisors.get(readers[0].spec.id)
        if not op.wanted and (supervisor is None or supervisor.pid is None):
            return None  # who does not run watches nothing, and is not started for that
        result = await self._host.ask(readers[0].full_name, op, kind="resource", timeout=self._timeout)
        return _outward(result.failure)

    async def _ask(self, call: Call, entry: Entry, op: PluginOp) -> Any:
        """What the plugin of an export answers to an operation as it stands."""
        steps, call.passed_on = Steps(), op
        with self._desk.serving(entry.spec.id, call):
            result = await self._host.ask(
                entry.full_name,
                op,
                kind=entry.export.kind,
                timeout=self._timeout,
                on_progress=lambda item: call.progress(steps.next(item)),
            )
        return _outward(result.failure) or result.output

    # What plugins do.

    async def _follow(self, events: Any) -> None:
        async with events:
            async for event in events:
                self._happened(event)

    def _happened(self, event: BusEvent) -> None:
        payload: Mapping[str, Any] = event.payload
        if event.topic == RESOURCE_CHANGED:
            self._watches.changed(payload["uri"])
            return
        what = event.topic.rpartition(".")[2]
        if what == GONE:
            self._gone.add(payload["plugin_id"])
        elif what in BACK:
            self._gone.discard(payload["plugin_id"])
            for uri in self._watches.addresses:
                if [entry.spec.id for entry in self.listing.readers(uri)[:1]] == [payload["plugin_id"]]:
                    self._watches.again(uri)
        self.refresh()

    def left_out(self) -> dict[str, Failure]:
        """The plugins that are not served because they may not be started, and why."""
        decisions = self._host.decisions
        refusals = {item.spec.id: policy.admit(item.spec, decisions[item.spec.id]) for item in self._host.plugins()}
        return {plugin_id: refusal for plugin_id, refusal in refusals.items() if refusal is not None}

    def refresh(self) -> None:
        """Look again at what there is, and tell every client if that is something else than before."""
        fresh = self._gathered()
        changed = fresh.offer != self.listing.offer
        self.listing = fresh
        if changed:
            self._complain()
            for client in list(self._clients):
                client.tell(OfferExports(fresh.offer))

    def _complain(self) -> None:
        """Say what is left out, since nobody will find it."""
        for text in (*map(str, self.listing.collisions), *self.listing.shadowed):
            self._host.journal.note("mcp serve", "left_out", text)

    def _noted(self, plugin_id: str, note: Note) -> None:
        """What plugins log, clients may hear, as far as they want to."""
        if self._others_note is not None:
            self._others_note(plugin_id, note)
        if note.kind.startswith(OWN_LINE):
            line = WriteLog(note.level, note.text, {"logger": plugin_id})
            for client in list(self._clients):
                client.tell(line)

    # Details.

    def _gathered(self) -> Listing:
        return build_listing(self._admitted(), self._rule, self._only)

    def _admitted(self) -> Iterable[Entry]:
        calls = self._host.calls
        return [entry for entry in calls.catalog.entries() if entry.spec.id not in self._gone and calls.admits(entry)]

    def _later(self, work: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
        """Do something that nobody waits for."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _is_for_the_model(entry: Entry, failure: Failure) -> bool:
    """Whether a model may read why a tool failed. Only an MCP server has errors that are none of its tools' results:
    they have a number of the protocol's, or say that there is no such tool.
    """
    return entry.spec.contract not in TELLERS or errors.is_for_the_model(InvokeTool, failure)


def _outward(failure: Failure | None) -> Failure | None:
    """A failure as clients hear of it: lines on stderr are the operator's, and no part of what a server answered."""
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


def _says_nothing(entry: Entry) -> bool:
    export = entry.export
    return export.kind == "tool" and not export.description and export.input_schema is None
