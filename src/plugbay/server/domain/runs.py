"""`Runs`: start, cancel and end runs of a model on a chain.

A chain has one run at a time. A run starts only after its record is committed, ends exactly once together with its
event, and is closed at the next start if the gateway was killed. The turns are in `run_loop`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from plugbay.host.services.llm.registry import LlmRegistry
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.background import INTERNAL, USER, BackgroundJobs, retry_until_stored
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.deliveries import RUN_CANCELLED, RUN_COMPLETED, RUN_FAILED, Events, NewEvent
from plugbay.server.domain.errors import conflict, denied, invalid, not_found, unprocessable
from plugbay.server.domain.ids import Ids, new_id, new_trace_id
from plugbay.server.domain.orgs import tenant
from plugbay.server.domain.principal import Principal
from plugbay.server.domain.run_loop import (
    STARTED,
    Ending,
    FeedEvent,
    Limits,
    OfferedTool,
    RunLoop,
    RunRequest,
    RunServices,
    chat_request,
    failed_ending,
)
from plugbay.server.domain.sessions import (
    CLOSED,
    IDLE,
    RUNNING,
    Chains,
    attach_conflict,
    chain_closed,
    check_blocks,
    decode_block,
    reads_only_own,
    text_of,
)
from plugbay.server.domain.workers import (
    BoundExport,
    Budgets,
    Provenance,
    Workers,
    charge_budget,
    find_provenance,
    given_tools,
)
from plugbay.store import chains as chain_rows
from plugbay.store import runs as rows
from plugbay.store.chains import Chain
from plugbay.store.database import Database, Tx
from plugbay.store.pages import Page, Part
from plugbay.store.rows import ANY_OWNER
from plugbay.store.runs import Run, RunEvent, ToolExecution

T = TypeVar("T")

CLIENT_BLOCKS = frozenset({"input", "system"})
"""Kinds of blocks that a client may send."""

ANSWERABLE_BLOCKS = frozenset({"input", "tool_result"})
"""Kinds of blocks that a model can answer."""

MAX_SUMMARY = 4_000
"""Characters of a task or an output in an event."""

EVENT_TYPES = {"completed": RUN_COMPLETED, "cancelled": RUN_CANCELLED, "failed": RUN_FAILED, "timed_out": RUN_FAILED}

ENDS = frozenset(EVENT_TYPES.values())


MAX_NAME = 64
"""Characters of a tool name, as providers allow."""


class RunOptions(msgspec.Struct, frozen=True):
    """Options in a client's request."""

    model: str | None = None
    tools: Sequence[str] | None = None
    """Names of exports, `package/export` or binding ids; None: all that are bound."""
    limits: Mapping[str, int] | None = None
    temperature: float | None = None


class NewRun(msgspec.Struct, frozen=True):
    """A client's request."""

    blocks: Sequence[Mapping[str, Any]] = ()
    wanted: RunOptions = msgspec.field(default_factory=RunOptions)
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    parent_run_id: str | None = None
    trace_id: str | None = None
    """The caller's trace id, if there is one."""
    run_id: str | None = None
    """Chosen by a caller that subscribes before the run starts."""


class ConversationIds(NamedTuple):
    """Session, chain and run of an invocation."""

    session_id: str | None = None
    chain_id: str | None = None
    run_id: str | None = None


class Runs:
    """All runs."""

    def __init__(
        self,
        database: Database,
        llm: Callable[[], LlmRegistry],
        chains: Chains,
        workers: Workers,
        budgets: Budgets,
        events: Events,
        audit: Audit,
        clock: Clock,
        ids: Ids = new_id,
    ) -> None:
        self._services = RunServices(database, llm, chains, workers, clock, ids)
        self.feeds = self._services.feeds
        self._database = database
        self._chains = chains
        self._sessions = chains.sessions
        self._workers = workers
        self._budgets = budgets
        self._events = events
        self._audit = audit
        self._jobs: BackgroundJobs[Ending] = BackgroundJobs(_cancelled_ending)
        self.waits = False
        """Whether the end of a run elsewhere waits for one look: events before it may be on their way."""
        self._late: set[str] = set()
        """Runs with such ends."""

    # Starting and stopping.

    async def start(self) -> None:
        """Close runs that the last server left open; those of other gateways are closed when their leases end."""
        if self._database.fence is None:
            await self.close_left(ANY_OWNER)

    async def close_left(self, owner: str | None) -> None:
        """Close runs that a killed gateway left open."""
        async with self._database.transaction() as tx:
            left = await rows.unfinished(tx, owner)
        for run in left:
            text = "the gateway was restarted during this run"
            ending = _cancelled_ending(USER) if run.cancel_requested else failed_ending("run.host_restarted", text)
            await self._close(run, ending)

    async def cancel_requested(self, tx: Tx) -> None:
        """Cancel the runs here that were cancelled at another gateway."""
        for id in await rows.to_cancel(tx, self._database.owner):
            self._jobs.cancel(id)

    # Runs of other gateways.

    def show(self, id: str, event: FeedEvent) -> None:
        """Show watchers an event that another gateway has sent."""
        self.feeds.show(id, event, is_relayed=True)
        if event.get("type") in ENDS:
            self.feeds.end(id)

    async def look_at_others(self, tx: Tx) -> None:
        """Show watchers the starts and ends of runs that other gateways drive, as the database has them."""
        watched = self.feeds.watched
        found = await rows.of_others(tx, watched, self._database.owner) if watched else []
        late, self._late = self._late, {run.id for run in found if run.status not in rows.UNFINISHED}
        for run in found:
            if run.started_at is not None:
                self.feeds.show(run.id, _started_event(run))
            if run.id in (late if self.waits else self._late):
                if self.waits:  # the other gateway did not send it, or it was lost; so may be events before it
                    self.feeds.show(run.id, {"type": "lost", "events": None})
                self.show(run.id, await self._ended_event(tx, run))

    async def _ended_event(self, tx: Tx, run: Run) -> FeedEvent:
        added: list[dict[str, Any]] = []
        for block in await chain_rows.blocks(tx, run.chain_id, after=run.input_through):
            if block.run_id == run.id:
                added = [] if block.kind == "tool_result" else [*added, decode_block(block)]
        data = {"status": run.status, "stop_reason": run.stop_reason, "error": run.error}
        return {"type": EVENT_TYPES[run.status], "run_id": run.id, **data, "blocks": added}

    async def stop(self) -> None:
        """Cancel running runs and record their ends."""
        await self._jobs.stop()

    # For clients.

    async def create(self, caller: Principal, chain_id: str, asked: NewRun) -> Run:
        """Create a run and start it after the commit; raises `chain.attach_conflict`."""
        brought = check_blocks(asked.blocks, CLIENT_BLOCKS)
        if asked.wanted.tools:
            caller.must_support("tool")
        wanted = asked.wanted if caller.supports("tool") else replace(asked.wanted, tools=())
        asked = replace(asked, wanted=wanted, run_id=asked.run_id or self._services.ids("run_"))
        async with self._database.transaction(fenced=True) as tx:
            chain = await self._chains.existing(tx, caller, chain_id, lock=True)
            _require_idle(chain)
            serving = await self._workers.serving("tool", chain.org_id, chain.project_id, chain.session_id)
            bound = await given_tools(tx, caller, serving)
            request = resolve_request(asked.wanted, chain.defaults, self._services.llm().names(), bound)
            request = _narrow_scopes(request, caller)
            chain = await self._chains.append(tx, chain, brought, asked.run_id, status=RUNNING)
            await self._answerable(tx, chain)
            return await self._insert(tx, caller, chain, request, asked)

    async def regenerate(self, caller: Principal, id: str, asked: NewRun) -> Run:
        """Run again on a fork that ends before the model's reply."""
        async with self._database.transaction(fenced=True) as tx:
            before = await self.existing(tx, caller, id)
            if before.status in rows.UNFINISHED:
                raise conflict("run.not_ended", f"{id} has not ended", retryable=True)
            source = await self._chains.existing(tx, caller, before.chain_id)
            chain = await self._chains.copy(tx, source, through=before.input_through, run_id=id)
            await chain_rows.change(tx, chain.id, status=RUNNING)
            kept = _narrow_scopes(RunRequest.from_json(before.request), caller)
            tools = await given_tools(tx, caller, kept.tools) if caller.supports("tool") else ()
            kept = replace(kept, tools=tuple(tools))
            if asked.wanted.model is not None:
                wanted = RunOptions(model=asked.wanted.model, tools=())
                chosen = resolve_request(wanted, {}, self._services.llm().names(), ())
                kept = replace(kept, provider=chosen.provider, model=chosen.model)
            return await self._insert(tx, caller, chain, kept, asked, rerun_of=id)

    async def get(self, caller: Principal, id: str) -> Run:
        async with self._database.reading() as tx:
            return await self.existing(tx, caller, id)

    async def page(self, caller: Principal, part: Page, search: str | None = None, **filters: str | None) -> Part[Run]:
        """Runs visible to the caller; a plugin with write scope only sees its own. `search` is part of an id."""
        async with self._database.reading() as tx:
            if filters.get("chain_id") is not None:
                await self._chains.existing(tx, caller, str(filters["chain_id"]))
            if reads_only_own(caller, "runs:read"):
                filters["invocation_id"] = caller.invocation_id
            only = await self._sessions.lineage(tx, caller)
            return await rows.page(tx, part, tenant(caller), only=only, search=search, **filters)

    async def timeline(
        self, caller: Principal, id: str, *, after: int = 0
    ) -> tuple[Run, list[RunEvent], list[ToolExecution]]:
        """Events of a run so far, and its tool calls."""
        async with self._database.reading() as tx:
            run = await self.existing(tx, caller, id)
            return run, await rows.timeline(tx, id, after=after), await rows.tools(tx, id)

    async def effective_request(self, caller: Principal, id: str) -> dict[str, Any]:
        """The first model request."""
        async with self._database.reading() as tx:
            run = await self.existing(tx, caller, id)
            stored = await chain_rows.blocks(tx, run.chain_id, through=run.input_through)
        request = RunRequest.from_json(run.request)
        asked = chat_request(request, [decode_block(block) for block in stored]).to_json()
        return {"provider": request.provider, **asked, "limits": msgspec.to_builtins(request.limits)}

    async def cancel(self, caller: Principal, id: str) -> Run:
        """Cancel a run; an ended one stays unchanged."""
        async with self._database.transaction() as tx:
            run = await self.existing(tx, caller, id)
            if caller.kind == "delegated" and not _is_own(caller, run):
                raise not_found("run", id)
            if run.status in rows.UNFINISHED:
                await rows.change(tx, id, cancel_requested=True)
                await self._audit.record_change(tx, caller, "run.cancel", run)
                self._database.after_commit(lambda: self._jobs.cancel(id))
            return await self.existing(tx, caller, id)

    async def existing(self, tx: Tx, caller: Principal, id: str) -> Run:
        """The run; raises `not_found` if the caller may not see it."""
        run = await self._sessions.require(tx, caller, "run", id, await rows.find(tx, id))
        if reads_only_own(caller, "runs:read") and not _is_own(caller, run):
            raise denied("auth.scope_denied", "this token reads only its own runs", required=["runs:read"])
        return run

    async def place(
        self, caller: Principal, org_id: str, project_id: str | None, named: ConversationIds
    ) -> ConversationIds:
        """Complete the ids: the chain of a run, the session of a chain.

        Raises `not_found` for ids that the caller may not see, or that belong to another tenant than the work.
        """
        run = chain = session = None
        async with self._database.reading() as tx:
            if named.run_id is not None:
                run = await self.existing(tx, caller, named.run_id)
            if named.chain_id is not None or run is not None:
                chain = await self._chains.existing(tx, caller, named.chain_id or _not_none(run).chain_id)
            if named.session_id is not None or chain is not None:
                session = await self._sessions.existing(tx, caller, named.session_id or _not_none(chain).session_id)
        tenant_of_work = Principal("key", org_id, project_id)
        for kind, found in (("run", run), ("chain", chain), ("session", session)):
            if found is not None:
                tenant_of_work.must_see(kind, found.id, found.org_id, found.project_id)
        if run is not None and run.chain_id != _not_none(chain).id:
            raise invalid("run.other_chain", f"{run.id} belongs to another chain", "run_id")
        if chain is not None and chain.session_id != _not_none(session).id:
            raise invalid("chain.other_session", f"{chain.id} belongs to another session", "chain_id")
        return ConversationIds(*(None if found is None else found.id for found in (session, chain, run)))

    # Beginning.

    async def _answerable(self, tx: Tx, chain: Chain) -> None:
        if await chain_rows.last_kind(tx, chain.id, without=("system", "thinking")) not in ANSWERABLE_BLOCKS:
            raise unprocessable("run.nothing_to_answer", "the chain has no input to answer; send some", "blocks")

    async def _insert(
        self,
        tx: Tx,
        caller: Principal,
        chain: Chain,
        request: RunRequest,
        asked: NewRun,
        rerun_of: str | None = None,
    ) -> Run:
        cause = await find_provenance(tx, caller)
        parent = None if asked.parent_run_id is None else await self.existing(tx, caller, asked.parent_run_id)
        depth = cause.depth if parent is None else max(cause.depth, parent.depth + 1)
        await charge_budget(tx, self._budgets, caller, cause, "child_run", depth)
        run = _new_run(self._services, caller, chain, request, asked, cause, depth, rerun_of)
        if not await rows.insert(tx, run):
            raise attach_conflict(chain.id)
        await rows.note(tx, run.id, "run.queued", {"model": run.model}, run.created_at)
        await self._audit.record_change(tx, caller, "run.create", run)
        self._database.after_commit(lambda: self._launch(run), in_doubt=True)
        return run

    def _launch(self, run: Run) -> None:
        """Start the background job of a run."""
        self._jobs.launch(run.id, lambda: self._drive(run), lambda ending: self._close(run, ending))

    async def _drive(self, run: Run) -> Ending:
        now = self._services.clock.now()

        async def begin() -> bool:
            async with self._database.transaction(fenced=True) as tx:
                begun = await rows.begin(tx, run.id, now)
                if begun:
                    await rows.note(tx, run.id, "run.started", {}, now)
                return begun

        if not await retry_until_stored(begin):
            return _cancelled_ending(USER)
        self.feeds.publish(run, STARTED, run_id=run.id, chain_id=run.chain_id, model=run.model)
        return await RunLoop(self._services, run).drive()

    # Ending.

    async def _close(self, run: Run, ending: Ending) -> None:
        await self._finish(run, ending)
        self.feeds.end(run.id)

    async def _finish(self, run: Run, ending: Ending) -> None:
        """Commit everything about the end of a run together."""
        now = self._services.clock.now()
        async with self._database.transaction() as tx:
            chain = await chain_rows.find(tx, run.chain_id, lock=True)
            assert chain is not None
            ended = {"status": ending.status, "stop_reason": ending.stop_reason, "error": ending.error}
            if not await rows.end(tx, run.id, run.owner, **ended, completed_at=now):
                return
            used = ending.usage
            await rows.add_usage(tx, run.id, used.prompt_tokens, used.completion_tokens, turns=ending.turns, tools=0)
            await rows.abandon_tools(tx, run.id, now)
            await self._chains.append(tx, chain, ending.blocks, run.id, status=IDLE)
            data = {"status": ending.status, "stop_reason": ending.stop_reason, "error": ending.error}
            await rows.note(tx, run.id, EVENT_TYPES[ending.status], data, now)
            await self._events.record(tx, await self._end_event(tx, run, ending))
        self.feeds.publish(run, EVENT_TYPES[ending.status], run_id=run.id, **data, blocks=ending.blocks)

    async def _end_event(self, tx: Tx, run: Run, ending: Ending) -> NewEvent:
        asked = await chain_rows.blocks(tx, run.chain_id, after=run.input_through - 1, through=run.input_through)
        task = text_of(map(decode_block, asked))
        summary: dict[str, Any] = {"task": task[:MAX_SUMMARY], "output": ending.reply[:MAX_SUMMARY]}
        if ending.error is not None:
            summary["error"] = ending.error
        return NewEvent(
            type=EVENT_TYPES[ending.status],
            subject_kind="run",
            subject_id=run.id,
            cause_id=run.id,
            org_id=run.org_id,
            project_id=run.project_id,
            session_id=run.session_id,
            chain_id=run.chain_id,
            run_id=run.id,
            summary=summary,
            trace_id=run.trace_id,
            cause_depth=run.cause_depth + 1,
        )


def _not_none(found: T | None) -> T:
    assert found is not None
    return found


def _narrow_scopes(request: RunRequest, caller: Principal) -> RunRequest:
    """The request with at most the caller's scopes: a plugin must not gain scopes by running it again."""
    if caller.kind != "delegated":
        return request
    scopes = caller.scopes if request.scopes is None else caller.scopes.intersection(request.scopes)
    return replace(request, scopes=tuple(sorted(scopes)))


def _started_event(run: Run) -> FeedEvent:
    return {"type": STARTED, "run_id": run.id, "chain_id": run.chain_id, "model": run.model}


def _cancelled_ending(reason: str) -> Ending:
    if reason == INTERNAL:
        return failed_ending("run.internal", "a bug in plugbay; the server's log has the details")
    return Ending("cancelled", "cancelled", {"code": "run.cancelled", "message": reason})


def _require_idle(chain: Chain) -> None:
    if chain.status == CLOSED:
        raise chain_closed(chain.id)
    if chain.status == RUNNING:
        raise attach_conflict(chain.id)


def _new_run(
    services: RunServices,
    caller: Principal,
    chain: Chain,
    request: RunRequest,
    asked: NewRun,
    cause: Provenance,
    depth: int,
    rerun_of: str | None,
) -> Run:
    return Run(
        id=asked.run_id or services.ids("run_"),
        org_id=chain.org_id,
        project_id=chain.project_id,
        session_id=chain.session_id,
        chain_id=chain.id,
        parent_run_id=asked.parent_run_id or cause.run_id,
        rerun_of_run_id=rerun_of,
        execution_id=cause.execution_id,
        invocation_id=caller.invocation_id,
        model=f"{request.provider}/{request.model}",
        status="queued",
        stop_reason=None,
        error=None,
        turn_count=0,
        tool_count=0,
        input_tokens=0,
        output_tokens=0,
        request=request.to_json(),
        input_through=chain.block_count,
        depth=depth,
        cause_depth=cause.events,
        trace_id=cause.trace_id or asked.trace_id or new_trace_id(),
        cancel_requested=False,
        metadata=asked.metadata,
        owner=services.database.owner,
        created_at=services.clock.now(),
        started_at=None,
        completed_at=None,
    )


def _is_own(caller: Principal, run: Run) -> bool:
    mine = run.execution_id is not None and run.execution_id == caller.claims.get("execution_id")
    return mine or (run.invocation_id is not None and run.invocation_id == caller.invocation_id)


# Resolving a request.


def resolve_request(
    wanted: RunOptions,
    defaults: Mapping[str, Any],
    providers: Sequence[str],
    bound: Sequence[BoundExport],
) -> RunRequest:
    """Merge the client's options with the chain's defaults; raises for invalid ones."""
    provider, model = resolve_model(wanted.model or defaults.get("model"), providers)
    names = wanted.tools if wanted.tools is not None else defaults.get("tools")
    limits = {**(defaults.get("limits") or {}), **(wanted.limits or {})}
    temperature = wanted.temperature if wanted.temperature is not None else defaults.get("temperature")
    return RunRequest(
        provider=provider,
        model=model,
        tools=offer_tools(bound if names is None else select_tools(names, bound)),
        limits=msgspec.convert(limits, Limits),
        temperature=0.7 if temperature is None else temperature,
    )


def resolve_model(name: Any, providers: Sequence[str]) -> tuple[str, str]:
    """Split `provider/model`; with a single provider, the model alone is enough."""
    if not isinstance(name, str) or not name:
        raise unprocessable("run.model_missing", "neither the request nor the chain has a model", "model")
    provider, slash, model = name.partition("/")
    if slash and model and provider in providers:
        return provider, model
    if len(providers) == 1:
        return providers[0], name
    known = ", ".join(providers) or "none is configured"
    raise unprocessable("run.model_unknown", f"{name!r} has no known provider; known providers: {known}", "model")


def select_tools(names: Sequence[str], bound: Sequence[BoundExport]) -> list[BoundExport]:
    """The tools with these names, each once."""
    found: dict[str, BoundExport] = {}
    for name in names:
        matches = [tool for tool in bound if name in tool.names]
        if not matches:
            raise unprocessable("run.tool_unknown", f"no tool {name!r} is bound here", "tools", tool=name)
        if len(matches) > 1:
            text = f"{name!r} is the name of several tools; add the package to the name"
            raise unprocessable("run.tool_ambiguous", text, "tools", candidates=[tool.full_name for tool in matches])
        found[matches[0].binding_id] = matches[0]
    return list(found.values())


def offer_tools(tools: Sequence[BoundExport]) -> tuple[OfferedTool, ...]:
    """Tools for a model, by export name; ambiguous names get the package as prefix."""
    count = Counter(tool.export_id for tool in tools)
    return tuple(
        OfferedTool(
            name=tool.export_id if count[tool.export_id] == 1 else _long_name(tool),
            binding_id=tool.binding_id,
            package_id=tool.package_id,
            export_id=tool.export_id,
            description=tool.description,
            input_schema=tool.input_schema,
            effect_class=str(tool.facts.get("effect_class", "unknown")),
        )
        for tool in tools
    )


def _long_name(tool: BoundExport) -> str:
    """Package and export joined with characters that providers allow; cut at the front."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", f"{tool.package_id}__{tool.export_id}")[-MAX_NAME:]
