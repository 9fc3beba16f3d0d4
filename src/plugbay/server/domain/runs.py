"""`Runs`: a model at work on a chain, with the tools that are bound there.

Owns the life of a run: that a chain has one at a time, that it is started when its record is committed and not before,
that it ends exactly once with its event, and that what a killed gateway left is closed by the next one. The turns in
between are `run_loop`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import msgspec

from plugbay.server.domain import blocks as shapes
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.causes import Cause, cause_of, spend
from plugbay.server.domain.chains import CLOSED, IDLE, RUNNING, attach_conflict, closed
from plugbay.server.domain.durable import durably
from plugbay.server.domain.errands import INTERNAL, USER, Errands
from plugbay.server.domain.errors import conflict, denied, invalid, not_found, unprocessable
from plugbay.server.domain.events import RUN_CANCELLED, RUN_COMPLETED, RUN_FAILED, Events, Happening
from plugbay.server.domain.principal import Principal
from plugbay.server.domain.run_loop import Ending, Gear, RunLoop, chat_request, failed
from plugbay.server.domain.run_requests import RunRequest, Wanted, understood
from plugbay.server.domain.sessions import Sessions, tenant
from plugbay.server.domain.trace import new_trace
from plugbay.server.domain.workers import Budgets, Workers
from plugbay.store import chains as chain_rows
from plugbay.store import runs as rows
from plugbay.store.chains import Chain
from plugbay.store.database import Tx
from plugbay.store.pages import Page, Part
from plugbay.store.runs import Run, RunEvent, ToolExecution

T = TypeVar("T")

BROUGHT = frozenset({"input", "system"})
"""Kinds of blocks that come with a run; all others are made by it."""

ANSWERABLE = frozenset({"input", "tool_result"})
"""Kinds of blocks that a model can be asked to go on from."""

MAX_SUMMARY = 4_000
"""Characters of a task or an output in an event: hooks are told what it was about, not all of it."""

EVENT_OF = {"completed": RUN_COMPLETED, "cancelled": RUN_CANCELLED, "failed": RUN_FAILED, "timed_out": RUN_FAILED}


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client wants run."""

    blocks: Sequence[Mapping[str, Any]] = ()
    wanted: Wanted = field(default_factory=Wanted)
    metadata: dict[str, Any] = field(default_factory=dict)
    parent_run_id: str | None = None
    trace_id: str | None = None
    """Of whoever asks, where they trace their requests."""
    run_id: str | None = None
    """Chosen by whoever watches it from its first moment on."""


class Place(NamedTuple):
    """Where work belongs."""

    session_id: str | None = None
    chain_id: str | None = None
    run_id: str | None = None


class Runs:
    """All runs."""

    def __init__(
        self, gear: Gear, sessions: Sessions, workers: Workers, budgets: Budgets, events: Events, audit: Audit
    ) -> None:
        self.feeds = gear.feeds
        self._gear = gear
        self._database = gear.database
        self._chains = gear.chains
        self._sessions = sessions
        self._workers = workers
        self._budgets = budgets
        self._events = events
        self._audit = audit
        self._errands: Errands[Ending] = Errands(_cut_off)

    # Starting and stopping.

    async def start(self) -> None:
        """Close what a gateway that was killed left open."""
        async with self._database.transaction() as tx:
            left = await rows.unfinished(tx)
        for run in left:
            text = "the gateway was restarted while this run was at work"
            ending = _cut_off(USER) if run.cancel_requested else failed("run.host_restarted", text)
            await self._finish(run, ending)

    async def stop(self) -> None:
        """Cancel what runs, and see it closed."""
        await self._errands.stop()

    # For clients.

    async def create(self, caller: Principal, chain_id: str, asked: Asked) -> Run:
        """A run on a chain, begun as soon as it is written down; raises `chain.attach_conflict`."""
        brought = shapes.checked(asked.blocks, BROUGHT)
        asked = replace(asked, run_id=asked.run_id or self._gear.ids("run_"))
        async with self._database.transaction() as tx:
            chain = await self._chains.existing(tx, caller, chain_id, lock=True)
            _open_or_raise(chain)
            bound = await self._workers.serving(tx, "tool", chain.org_id, chain.project_id, chain.session_id)
            request = understood(asked.wanted, chain.defaults, self._gear.llm().names(), bound, None)
            request = _narrowed(request, caller)
            chain = await self._chains.append(tx, chain, brought, asked.run_id, status=RUNNING)
            await self._answerable(tx, chain)
            return await self._insert(tx, caller, chain, request, asked)

    async def regenerate(self, caller: Principal, id: str, asked: Asked) -> Run:
        """The same again on a fork: what the model was asked stays, what it said does not."""
        async with self._database.transaction() as tx:
            before = await self.existing(tx, caller, id)
            if before.status in rows.UNFINISHED:
                raise conflict("run.not_ended", f"{id} has not ended", retryable=True)
            source = await self._chains.existing(tx, caller, before.chain_id)
            chain = await self._chains.copy(tx, source, through=before.input_through, run_id=id)
            await chain_rows.change(tx, chain.id, status=RUNNING)
            kept = _narrowed(RunRequest.from_json(before.request), caller)
            if asked.wanted.model is not None:
                wanted = Wanted(model=asked.wanted.model, tools=())
                chosen = understood(wanted, {}, self._gear.llm().names(), (), None)
                kept = msgspec.structs.replace(kept, provider=chosen.provider, model=chosen.model)
            return await self._insert(tx, caller, chain, kept, asked, rerun_of=id)

    async def get(self, caller: Principal, id: str) -> Run:
        async with self._database.reading() as tx:
            return await self.existing(tx, caller, id)

    async def page(self, caller: Principal, part: Page, **said: str | None) -> Part[Run]:
        """Runs that the caller sees; a plugin that may only write sees those it made."""
        async with self._database.reading() as tx:
            if said.get("chain_id") is not None:
                await self._chains.existing(tx, caller, str(said["chain_id"]))
            if _only_own(caller):
                said["invocation_id"] = caller.invocation_id
            return await rows.page(tx, part, tenant(caller), only=await self._sessions.lineage(tx, caller), **said)

    async def timeline(
        self, caller: Principal, id: str, *, after: int = 0
    ) -> tuple[Run, list[RunEvent], list[ToolExecution]]:
        """What happened in a run so far, and what it asked of tools."""
        async with self._database.reading() as tx:
            run = await self.existing(tx, caller, id)
            return run, await rows.timeline(tx, id, after=after), await rows.tools(tx, id)

    async def effective_request(self, caller: Principal, id: str) -> dict[str, Any]:
        """What the model was asked first."""
        async with self._database.reading() as tx:
            run = await self.existing(tx, caller, id)
            stored = await chain_rows.blocks(tx, run.chain_id, through=run.input_through)
        request = RunRequest.from_json(run.request)
        asked = chat_request(request, [shapes.opened(block) for block in stored]).to_json()
        return {"provider": request.provider, **asked, "limits": msgspec.to_builtins(request.limits)}

    async def cancel(self, caller: Principal, id: str) -> Run:
        """Have it end; one that has ended stays as it is."""
        async with self._database.transaction() as tx:
            run = await self.existing(tx, caller, id)
            if caller.kind == "delegated" and not _is_own(caller, run):
                raise not_found("run", id)
            if run.status in rows.UNFINISHED:
                await rows.change(tx, id, cancel_requested=True)
                await self._record(tx, caller, "run.cancel", run)
                self._database.after_commit(lambda: self._errands.cancel(id))
            return await self.existing(tx, caller, id)

    async def existing(self, tx: Tx, caller: Principal, id: str) -> Run:
        """The run; raises `not_found` for one that is not there for the caller."""
        run = await rows.find(tx, id)
        if run is None or not caller.sees(run.org_id, run.project_id):
            raise not_found("run", id)
        if not await self._sessions.reaches(tx, caller, run.session_id):
            raise not_found("run", id)
        if _only_own(caller) and not _is_own(caller, run):
            raise denied("auth.scope_denied", "this token reads only runs it made", required=["runs:read"])
        return run

    async def place(self, caller: Principal, org_id: str, project_id: str | None, named: Place) -> Place:
        """Where work of this tenant belongs, with the chain of its run and the session of its chain.

        Raises `not_found` for an id that is not there for the caller, or is another tenant's than the work.
        """
        run = chain = session = None
        async with self._database.reading() as tx:
            if named.run_id is not None:
                run = await self.existing(tx, caller, named.run_id)
            if named.chain_id is not None or run is not None:
                chain = await self._chains.existing(tx, caller, named.chain_id or _sure(run).chain_id)
            if named.session_id is not None or chain is not None:
                session = await self._sessions.existing(tx, caller, named.session_id or _sure(chain).session_id)
        tenant_of_work = Principal("key", org_id, project_id)
        for kind, found in (("run", run), ("chain", chain), ("session", session)):
            if found is not None:
                tenant_of_work.must_see(kind, found.id, found.org_id, found.project_id)
        if run is not None and run.chain_id != _sure(chain).id:
            raise invalid("run.other_chain", f"{run.id} is of another chain", "run_id")
        if chain is not None and chain.session_id != _sure(session).id:
            raise invalid("chain.other_session", f"{chain.id} is of another session", "chain_id")
        return Place(*(None if found is None else found.id for found in (session, chain, run)))

    # Beginning.

    async def _answerable(self, tx: Tx, chain: Chain) -> None:
        if await chain_rows.last_kind(tx, chain.id, without=("system", "thinking")) not in ANSWERABLE:
            raise unprocessable("run.nothing_to_answer", "there is no input to answer; bring some", "blocks")

    async def _insert(
        self,
        tx: Tx,
        caller: Principal,
        chain: Chain,
        request: RunRequest,
        asked: Asked,
        rerun_of: str | None = None,
    ) -> Run:
        cause = await cause_of(tx, caller)
        parent = None if asked.parent_run_id is None else await self.existing(tx, caller, asked.parent_run_id)
        depth = cause.depth if parent is None else max(cause.depth, parent.depth + 1)
        await spend(tx, self._budgets, caller, cause, "child_run", depth)
        run = _new_run(self._gear, caller, chain, request, asked, cause, depth, rerun_of)
        if not await rows.insert(tx, run):
            raise attach_conflict(chain.id)
        await rows.note(tx, run.id, "run.queued", {"model": run.model}, run.created_at)
        await self._record(tx, caller, "run.create", run)
        self._database.after_commit(lambda: self._launch(run))
        return run

    def _launch(self, run: Run) -> None:
        """Drive it from now on, whoever asked for it."""
        self._errands.launch(run.id, lambda: self._drive(run), lambda ending: self._close(run, ending))

    async def _drive(self, run: Run) -> Ending:
        now = self._gear.clock.now()

        async def begin() -> bool:
            async with self._database.transaction() as tx:
                await rows.note(tx, run.id, "run.started", {}, now)
                return await rows.begin(tx, run.id, now)

        if not await durably(begin):
            return _cut_off(USER)
        self.feeds.tell(run.id, "run.started", run_id=run.id, chain_id=run.chain_id, model=run.model)
        return await RunLoop(self._gear, run).drive()

    # Ending.

    async def _close(self, run: Run, ending: Ending) -> None:
        await self._finish(run, ending)
        self.feeds.end(run.id)

    async def _finish(self, run: Run, ending: Ending) -> None:
        """Everything that is true at the end of a run becomes true at once."""
        now = self._gear.clock.now()
        async with self._database.transaction() as tx:
            chain = await chain_rows.find(tx, run.chain_id, lock=True)
            assert chain is not None
            ended = {"status": ending.status, "stop_reason": ending.stop_reason, "error": ending.error}
            if not await rows.end(tx, run.id, **ended, completed_at=now):
                return
            used = ending.usage
            await rows.add_usage(tx, run.id, used.prompt_tokens, used.completion_tokens, turns=ending.turns, tools=0)
            await rows.abandon_tools(tx, run.id, now)
            await self._chains.append(tx, chain, ending.blocks, run.id, status=IDLE)
            data = {"status": ending.status, "stop_reason": ending.stop_reason, "error": ending.error}
            await rows.note(tx, run.id, EVENT_OF[ending.status], data, now)
            await self._events.record(tx, await self._happening(tx, run, ending))
        self.feeds.tell(run.id, EVENT_OF[ending.status], run_id=run.id, **data, blocks=ending.blocks)

    async def _happening(self, tx: Tx, run: Run, ending: Ending) -> Happening:
        asked = await chain_rows.blocks(tx, run.chain_id, after=run.input_through - 1, through=run.input_through)
        task = shapes.text_of(map(shapes.opened, asked))
        summary: dict[str, Any] = {"task": task[:MAX_SUMMARY], "output": ending.said[:MAX_SUMMARY]}
        if ending.error is not None:
            summary["error"] = ending.error
        return Happening(
            type=EVENT_OF[ending.status],
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

    async def _record(self, tx: Tx, caller: Principal, action: str, run: Run) -> None:
        await self._audit.record(tx, caller, action, "run", run.id, org_id=run.org_id, project_id=run.project_id)


def _sure(found: T | None) -> T:
    assert found is not None
    return found


def _narrowed(request: RunRequest, caller: Principal) -> RunRequest:
    """The request with no more authority than its caller has: a plugin does not get another's by running it again."""
    if caller.kind != "delegated":
        return request
    scopes = caller.scopes if request.scopes is None else caller.scopes.intersection(request.scopes)
    return msgspec.structs.replace(request, scopes=tuple(sorted(scopes)))


def _cut_off(reason: str) -> Ending:
    if reason == INTERNAL:
        return failed("run.internal", "a bug in plugbay; its log has more")
    return Ending("cancelled", "cancelled", {"code": "run.cancelled", "message": reason})


def _open_or_raise(chain: Chain) -> None:
    if chain.status == CLOSED:
        raise closed(chain.id)
    if chain.status == RUNNING:
        raise attach_conflict(chain.id)


def _new_run(
    gear: Gear,
    caller: Principal,
    chain: Chain,
    request: RunRequest,
    asked: Asked,
    cause: Cause,
    depth: int,
    rerun_of: str | None,
) -> Run:
    return Run(
        id=asked.run_id or gear.ids("run_"),
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
        trace_id=cause.trace_id or asked.trace_id or new_trace(),
        cancel_requested=False,
        metadata=asked.metadata,
        created_at=gear.clock.now(),
        started_at=None,
        completed_at=None,
    )


def _only_own(caller: Principal) -> bool:
    """Whether a caller may see the runs it made and no others: who may write has to see what becomes of it."""
    return caller.kind == "delegated" and "runs:read" not in caller.scopes


def _is_own(caller: Principal, run: Run) -> bool:
    mine = run.execution_id is not None and run.execution_id == caller.claims.get("execution_id")
    return mine or (run.invocation_id is not None and run.invocation_id == caller.invocation_id)
