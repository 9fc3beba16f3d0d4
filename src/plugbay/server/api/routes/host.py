"""Routes of the operator's plugins: list, operate, grant, approve, call; their logs, events and calls; the
memory of agents; pruning.

Under `/api/v1`, which belongs to plugbay; `/v1` follows vai. Plugin ids may contain slashes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any
from uuid import UUID

from fastapi import Header, Path, Query, Request
from pydantic import AwareDatetime, Field, StringConstraints
from starlette.responses import Response

from plugbay.host.calls.calls import LONGEST_CALL
from plugbay.host.calls.streaming import CallStream
from plugbay.host.ports import CallRecord
from plugbay.host.providers.agents import PRIMARY
from plugbay.host.request import CallRequest, CallResult
from plugbay.host.services.memory import MAX_CONTENT, MAX_LIMIT, MAX_NAME, MAX_QUERY, MAX_TAGS
from plugbay.model.errors import CallFailed
from plugbay.model.topics import MAX_SUBJECT, pattern_problem
from plugbay.server.api.caller import Caller, TheGateway, needs
from plugbay.server.api.idempotency import Router, long_running
from plugbay.server.api.lines import Follow, Lines, Tail, log_response
from plugbay.server.api.models import Answer, Body, Listing, Paging, PathId, example, listing, to_seconds
from plugbay.server.api.sse import STREAM, Event, event_stream
from plugbay.server.domain.clock import stamp
from plugbay.server.domain.errors import invalid, unprocessable
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.invocations import check_queue
from plugbay.server.domain.principal import HOST
from plugbay.store.calls import StoredCall

router = Router(tags=["host"])

PluginId = Annotated[str, Path(description="The id of a plugin; it may have slashes.")]
Capability = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"^\S+$")]
Text = Annotated[str | None, Query(max_length=500)]


class PluginOut(Answer):
    id: str
    name: str
    description: str
    folder: str
    version: str
    contract: str
    lifetime: str
    state: str
    refused: str | None = Field(description="Why it may not run: disabled, or its capabilities are not granted.")
    pid: int | None
    generation: int
    busy: int
    ready: int
    requested: list[str]
    granted: list[str]
    missing: list[str] = Field(description="Requested capabilities that a pending plugin waits for.")
    disabled: list[str] = Field(description="Exports that are not approved.")
    commands: list[str] = Field(description="Entries of a command palette, for `screens:act`.")
    sandbox: dict[str, Any]
    limits: str
    counters: dict[str, int]


class ExportOut(Answer):
    kind: str
    name: str
    description: str
    input_schema: Any


class OnePluginOut(PluginOut):
    exports: list[ExportOut]


class ProblemOut(Answer):
    severity: str
    code: str
    path: str
    line: int | None
    message: str


class InvalidOut(Answer):
    folder: str
    contract: str
    problems: list[ProblemOut]


class ReleaseOnNodesOut(Answer):
    id: str
    version: str
    nodes: list[str]


class Plugins(Answer):
    plugins: list[PluginOut]
    invalid: list[InvalidOut] = Field(description="Plugins that are not hosted, because their manifest has errors.")
    on_nodes: list[ReleaseOnNodesOut] = Field(description="Releases of packages that nodes of the cluster run.")


class Exports(Answer):
    exports: list[ExportOut]


class GrantIn(Body):
    model_config = example(capabilities=["tool.execute"])

    capabilities: list[Capability] = Field(min_length=1, max_length=100)


class ApproveIn(Body):
    model_config = example(digest="sha256:" + 64 * "0")

    digest: str = Field(pattern="^sha256:[0-9a-f]{64}$", description="The digest in the answer of `look`.")


class LookOut(Answer):
    id: str
    digest: str = Field(description="Identifies all definitions; an approval covers exactly these.")
    era: str | None
    protocol_version: str | None
    info: dict[str, Any] | None
    definitions: dict[str, list[dict[str, Any]]]
    warnings: list[str]
    approved_before: bool
    changes: list[dict[str, Any]] = Field(description="Changes since the last approval.")


class CallIn(Body):
    model_config = example(export="example.greeter/greet", input={"name": "Ada"}, timeout_ms=10_000)

    export: str = Field(min_length=1, max_length=500)
    input: Any = None
    context: dict[str, Any] = Field(default_factory=dict)
    timeout_ms: int | None = Field(default=None, ge=1, le=round(LONGEST_CALL * 1000))


class PluginRef(Answer):
    id: str | None
    version: str | None
    contract: str | None


class CallOut(Answer):
    """The same shape as `plugbay call --json`."""

    status: str
    output: Any
    failure: dict[str, Any] | None
    plugin: PluginRef
    call_id: str | None
    duration_ms: float


class CallRecordOut(Answer):
    call_id: str
    plugin: PluginRef
    export: str
    started_at: str
    duration_ms: float
    status: str
    failure: dict[str, Any] | None


class EventIn(Body):
    model_config = example(topic="tea.brewed", payload={"cups": 2}, session_id="7a1f6f3e-0f0b-4b6e-9a53-6f6f0d1f6c11")

    topic: str = Field(min_length=1, max_length=MAX_SUBJECT, description="Without wildcards.")
    payload: Any = None
    session_id: UUID | None = Field(default=None, description="The conversation that the event belongs to.")


class EventOut(Answer):
    """A published event, as subscribers get it."""

    id: str
    timestamp: str
    topic: str
    source: str
    session_id: str | None
    payload: Any
    subscribers: list[str] = Field(description="Running plugins that subscribe to the topic.")


AgentName = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME)]

MAX_MESSAGES = 10_000
"""Messages of one conversation."""


class HookIn(Body):
    model_config = example(hook="before_message", event={"text": "hello"}, agent="primary")

    hook: str = Field(min_length=1, max_length=200)
    event: dict[str, Any] = Field(default_factory=dict)
    agent: AgentName = PRIMARY
    context: dict[str, Any] = Field(default_factory=dict)
    timeout_ms: int | None = Field(
        default=None, ge=1, le=round(LONGEST_CALL * 1000), description="For each plugin; default: its contract's."
    )


class InjectionOut(Answer):
    plugin: str
    text: str


class SkippedOut(Answer):
    plugin: str
    failure: dict[str, Any]


class HookOut(Answer):
    event: dict[str, Any] = Field(description="The event after the changes of all plugins.")
    blocked: bool
    blocked_by: str | None
    reason: str | None
    decision: str | None
    transformed_body: str | None
    do_not_reply_again: bool
    injections: list[InjectionOut] = Field(description="Texts for the conversation, in the order of the calls.")
    skipped: list[SkippedOut] = Field(description="Plugins that failed, or whose answer has invalid parts.")


class CompactIn(Body):
    model_config = example(messages=[{"role": "user", "content": "Brew some tea."}], agent="primary")

    messages: list[dict[str, Any]] = Field(max_length=MAX_MESSAGES)
    agent: AgentName = PRIMARY
    trigger: str = Field(default="manual", min_length=1, max_length=200)
    context: dict[str, Any] = Field(default_factory=dict)


class CompactOut(Answer):
    messages: list[dict[str, Any]]
    removed: list[dict[str, Any]]
    compacted_by: str | None = Field(description="The plugin that compacted; null: the built-in strategy.")
    built_in_because: str | None
    injections: list[InjectionOut]
    failures: list[SkippedOut]


class MemoryIn(Body):
    model_config = example(agent_id="primary", content="Ada takes her tea with milk.", tags=["tea"])

    agent_id: str = Field(min_length=1, max_length=MAX_NAME)
    content: str = Field(min_length=1, max_length=MAX_CONTENT)
    tags: list[Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME)]] = Field(
        default_factory=list, max_length=MAX_TAGS
    )
    memory_type: str | None = Field(default=None, min_length=1, max_length=MAX_NAME)


class MemoryOut(Answer):
    """An entry, as `memory.recall` returns it."""

    id: str
    agent_id: str
    content: str
    tags: list[str]
    concept_tags: list[str] = Field(description="Derived from the content.")
    created_at: str
    memory_type: str | None


class Memories(Answer):
    entries: list[MemoryOut]


class RemovedOut(Answer):
    removed: int = Field(description="Number of removed entries.")


AgentId = Annotated[str, Query(min_length=1, max_length=MAX_NAME, description="The agent that owns the memory.")]

memory_router = Router(tags=["memory"])


# Reading.


@router.get("/api/v1/plugins", **needs(HOST))
async def list_host_plugins(gateway: TheGateway) -> Plugins:
    """Every plugin of the host's folders, as `plugbay ps` shows them."""
    hosted = gateway.operator_plugins
    on_nodes = gateway.cluster.running()
    return Plugins.model_validate({"plugins": hosted.plugins(), "invalid": hosted.invalid(), "on_nodes": on_nodes})


@router.get("/api/v1/exports", **needs(HOST))
async def list_host_exports(gateway: TheGateway) -> Exports:
    """Every export of these plugins by its full name."""
    return Exports.model_validate({"exports": gateway.operator_plugins.exports()})


@router.get("/api/v1/plugins/{plugin_id:path}/logs", **needs(HOST), responses=STREAM, response_model=Lines)
async def get_host_plugin_logs(
    request: Request,
    plugin_id: PluginId,
    gateway: TheGateway,
    tail: Tail = 100,
    follow: Follow = False,
) -> Any:
    """Log lines of a plugin, and the host's notes about it. Each node has at most 200 past lines."""
    gateway.operator_plugins.plugin(plugin_id)
    log = gateway.host_logs.of(plugin_id)
    past = await log.tail(tail)
    return log_response(request, past.lines, log.follow(past) if follow else None)


@router.get("/api/v1/plugins/{plugin_id:path}", **needs(HOST))
async def get_host_plugin(plugin_id: PluginId, gateway: TheGateway) -> OnePluginOut:
    """One plugin, and what it exports."""
    return OnePluginOut.model_validate(gateway.operator_plugins.plugin(plugin_id))


# Operations.


@router.post("/api/v1/plugins/{plugin_id:path}:start", **needs(HOST))
@long_running
async def start_host_plugin(plugin_id: PluginId, caller: Caller, gateway: TheGateway) -> OnePluginOut:
    """Start a stopped or quarantined plugin."""
    return OnePluginOut.model_validate(await gateway.operator_plugins.operate(caller, plugin_id, "start"))


@router.post("/api/v1/plugins/{plugin_id:path}:stop", **needs(HOST))
@long_running
async def stop_host_plugin(plugin_id: PluginId, caller: Caller, gateway: TheGateway) -> OnePluginOut:
    """Stop its processes; calls fail until it is started."""
    return OnePluginOut.model_validate(await gateway.operator_plugins.operate(caller, plugin_id, "stop"))


@router.post("/api/v1/plugins/{plugin_id:path}:restart", **needs(HOST))
@long_running
async def restart_host_plugin(plugin_id: PluginId, caller: Caller, gateway: TheGateway) -> OnePluginOut:
    """Stop its processes at once and start again."""
    return OnePluginOut.model_validate(await gateway.operator_plugins.operate(caller, plugin_id, "restart"))


@router.post("/api/v1/plugins/{plugin_id:path}:reload", **needs(HOST))
@long_running
async def reload_host_plugin(plugin_id: PluginId, caller: Caller, gateway: TheGateway) -> OnePluginOut:
    """Let running calls finish, then start again."""
    return OnePluginOut.model_validate(await gateway.operator_plugins.operate(caller, plugin_id, "reload"))


@router.post("/api/v1/plugins/{plugin_id:path}:grant", **needs(HOST))
@long_running
async def grant_host_plugin(plugin_id: PluginId, body: GrantIn, caller: Caller, gateway: TheGateway) -> OnePluginOut:
    """Grant requested capabilities; stored in plugbay.toml."""
    return OnePluginOut.model_validate(await gateway.operator_plugins.grant(caller, plugin_id, body.capabilities))


@router.post("/api/v1/plugins/{plugin_id:path}:revoke", **needs(HOST))
@long_running
async def revoke_host_plugin(plugin_id: PluginId, body: GrantIn, caller: Caller, gateway: TheGateway) -> OnePluginOut:
    """Revoke capabilities granted in plugbay.toml."""
    return OnePluginOut.model_validate(await gateway.operator_plugins.revoke(caller, plugin_id, body.capabilities))


@router.post("/api/v1/plugins/{plugin_id:path}:look", **needs(HOST))
@long_running
async def look_at_host_plugin(plugin_id: PluginId, caller: Caller, gateway: TheGateway) -> LookOut:
    """Start an MCP server once and return its exports and what is not approved."""
    return LookOut.model_validate((await gateway.operator_plugins.look(caller, plugin_id)).to_json())


@router.post("/api/v1/plugins/{plugin_id:path}:approve", **needs(HOST))
@long_running
async def approve_host_plugin(
    plugin_id: PluginId, body: ApproveIn, caller: Caller, gateway: TheGateway
) -> OnePluginOut:
    """Approve exactly what the last look returned, and start the server."""
    return OnePluginOut.model_validate(await gateway.operator_plugins.approve(caller, plugin_id, body.digest))


# Calls and events.


@router.post("/api/v1/calls", **needs(HOST), responses=STREAM, response_model=CallOut)
@long_running
async def call_host_export(
    request: Request,
    body: CallIn,
    gateway: TheGateway,
    stream: Annotated[bool, Query(description="Answer with events: `progress`, then `result`.")] = False,
) -> Any:
    """Call an export. The answer contains the outcome, also when the plugin failed."""
    if stream:
        return event_stream(request, _call_events(gateway, body))
    result = await _call(gateway, body)
    check_queue(result, gateway.meters)
    return _call_out(result)


async def _call(gateway: Gateway, body: CallIn, on_progress: Any = None) -> CallResult:
    timeout = None if body.timeout_ms is None else body.timeout_ms / 1000
    request = CallRequest(
        body.export,
        body.input,
        timeout=timeout,
        on_progress=on_progress,
        context=body.context or {},
        queue_seconds=gateway.settings.queue_seconds,
    )
    return await gateway.host.run(request)


async def _call_events(gateway: Gateway, body: CallIn) -> AsyncIterator[Event]:
    ended: list[CallResult] = []

    async def begin(on_progress: Any) -> CallResult:
        result = await _call(gateway, body, on_progress)
        ended.append(result)
        return result

    async with CallStream(begin) as pieces:
        try:
            async for piece in pieces:
                yield Event(piece, "progress")
        except CallFailed as error:
            if not ended:
                yield Event({"status": error.failure.outcome, "failure": error.failure.to_json()}, "result")
        if ended:
            yield Event(_call_out(ended[0]).model_dump(), "result")


@router.get("/api/v1/calls", **needs(HOST))
async def list_host_calls(
    gateway: TheGateway,
    page: Paging,
    plugin: Text = None,
    export: Text = None,
    status: Text = None,
    since: Annotated[AwareDatetime | None, Query()] = None,
    until: Annotated[AwareDatetime | None, Query()] = None,
) -> Listing[CallRecordOut]:
    """Finished calls, newest first; recorded within a second."""
    part = await gateway.calls.page(
        page,
        plugin=plugin,
        export=export,
        status=status,
        since=to_seconds(since),
        until=to_seconds(until),
    )
    return listing(part, _call_record_out)


@router.get("/api/v1/events", **needs(HOST), responses=STREAM, response_class=Response)
async def follow_host_events(
    request: Request,
    gateway: TheGateway,
    topic: Annotated[str, Query(max_length=500, description="A pattern of topics.")] = ">",
    last_event_id: Annotated[str | None, Header(max_length=100)] = None,
) -> Response:
    """Events of the host's bus; `Last-Event-ID` resumes after that event."""
    problem = pattern_problem(topic)
    if problem is not None:
        raise invalid("request.invalid_topic", problem, "topic")

    followed = gateway.host_events.follow(topic, last_event_id)

    async def events() -> AsyncIterator[Event]:
        async for event in followed:
            yield Event(event.data, event.topic, event.id)

    return event_stream(request, events())


@router.post("/api/v1/events", **needs(HOST))
async def publish_host_event(body: EventIn, caller: Caller, gateway: TheGateway) -> EventOut:
    """Publish an event on the host's bus. Its source is `operator`."""
    session_id = None if body.session_id is None else str(body.session_id)
    try:
        event = gateway.host.publish(body.topic, body.payload, source=caller.id, session_id=session_id)
    except ValueError as error:
        raise invalid("request.invalid_topic", str(error), "topic") from None
    return EventOut.model_validate({**event.to_json(), "subscribers": gateway.host.subscribers(body.topic)})


# Hooks and compaction.


@router.post("/api/v1/hooks", **needs(HOST))
@long_running
async def fire_host_hook(body: HookIn, gateway: TheGateway) -> HookOut:
    """Call a hook of every plugin of an agent, in order. A plugin that fails is skipped and listed."""
    timeout = None if body.timeout_ms is None else body.timeout_ms / 1000
    outcome = gateway.host.fire(body.hook, body.event, agent=body.agent, context=body.context, timeout=timeout)
    return HookOut.model_validate((await outcome).to_json())


@router.post("/api/v1/compactions", **needs(HOST))
@long_running
async def compact_host_conversation(body: CompactIn, gateway: TheGateway) -> CompactOut:
    """Compact a conversation with the plugins of an agent. Plugins that fail are skipped and listed."""
    try:
        outcome = await gateway.host.compact(
            body.messages, agent=body.agent, trigger=body.trigger, context=body.context
        )
    except CallFailed as error:
        raise unprocessable("agent.invalid", error.failure.message, "agent") from None
    return CompactOut.model_validate(outcome.to_json())


# Memory.


@memory_router.post("/api/v1/memories", **needs(HOST))
async def add_host_memory(body: MemoryIn, caller: Caller, gateway: TheGateway) -> MemoryOut:
    """Store an entry in the memory of an agent."""
    added = gateway.operator_memory.remember(caller, body.agent_id, body.content, body.tags, body.memory_type)
    return MemoryOut.model_validate(await added)


@memory_router.get("/api/v1/memories", **needs(HOST))
async def search_host_memory(
    gateway: TheGateway,
    agent_id: AgentId,
    query: Annotated[str, Query(max_length=MAX_QUERY, description="Words; without them the newest entries.")] = "",
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = 10,
) -> Memories:
    """Entries of an agent, best first, as `memory.recall` of a plugin finds them; together under 1 MiB."""
    return Memories.model_validate({"entries": await gateway.operator_memory.recall(agent_id, query, limit)})


@memory_router.delete("/api/v1/memories/{memory_id}", **needs(HOST))
async def delete_host_memory(memory_id: PathId, agent_id: AgentId, caller: Caller, gateway: TheGateway) -> RemovedOut:
    """Remove one entry of an agent."""
    await gateway.operator_memory.forget(caller, agent_id, memory_id)
    return RemovedOut(removed=1)


@memory_router.delete("/api/v1/memories", **needs(HOST))
@long_running  # an agent may have many entries
async def clear_host_memory(agent_id: AgentId, caller: Caller, gateway: TheGateway) -> RemovedOut:
    """Remove every entry of an agent."""
    return RemovedOut(removed=await gateway.operator_memory.clear(caller, agent_id))


def _call_out(result: CallResult) -> CallOut:
    record, failure = result.record, result.failure
    return CallOut(
        status=record.status,
        output=result.value(),
        failure=None if failure is None else failure.to_json(),
        plugin=_plugin_ref(record),
        call_id=record.call_id,
        duration_ms=record.duration_ms,
    )


def _plugin_ref(call: CallRecord | StoredCall) -> PluginRef:
    """The plugin of a call; a call that reached no plugin has none."""
    return PluginRef(id=call.plugin or None, version=call.version or None, contract=call.contract or None)


def _call_record_out(call: StoredCall) -> CallRecordOut:
    return CallRecordOut(
        call_id=call.id,
        plugin=_plugin_ref(call),
        export=call.export,
        started_at=stamp(call.started_at),
        duration_ms=call.duration_ms,
        status=call.status,
        failure=call.failure,
    )


records_router = Router(tags=["records"])


class PruneIn(Body):
    model_config = example(dry_run=True)

    dry_run: bool = Field(default=False, description="Only report what would be removed.")


class OldOut(Answer):
    kept: float | None = Field(description="Seconds a finished record is kept; null: for ever.")
    number: int = Field(description="Number of records removed, or to be removed.")


class PruneOut(Answer):
    dry_run: bool
    records: dict[str, OldOut]


@records_router.post("/api/v1/records:prune", **needs(HOST))
@long_running  # many small transactions, so that others do not wait long
async def prune_records(body: PruneIn, caller: Caller, gateway: TheGateway) -> PruneOut:
    """Remove old records now, as configured in `[retention]` of plugbay.toml."""
    old = await (gateway.retention.preview() if body.dry_run else gateway.retention.prune(caller))
    return PruneOut.model_validate({"dry_run": body.dry_run, "records": old})
