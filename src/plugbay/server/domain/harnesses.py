"""`Harnesses`: long-running plugin programs that work on a session.

Records each execution: its start, its single end, and whether it can be resumed. A harness calls back into the API with
its delegated token, limited by its session, scopes and the budget in its policy. A cancelled execution has ended only
when its token is revoked and its process is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from plugbay.contracts.vai.spec import MODES
from plugbay.host.invocations.context import narrow_limits
from plugbay.host.invocations.kinds import SUMMARY_RESEED, resume_key, resume_source, supports
from plugbay.host.ports import InvocationRecord
from plugbay.host.request import CallRequest
from plugbay.model.errors import Outcome
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.background import USER, BackgroundJobs, retry_until_stored, settle
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.credentials import limits_of
from plugbay.server.domain.errors import conflict, denied, invalid, not_found, unprocessable
from plugbay.server.domain.ids import Ids, new_id, new_trace_id
from plugbay.server.domain.orgs import tenant
from plugbay.server.domain.principal import Principal
from plugbay.server.domain.runs import select_tools
from plugbay.server.domain.sessions import Chains, text_block
from plugbay.server.domain.workers import (
    BoundExport,
    Workers,
    WorkOutcome,
    cut_off_outcome,
    failed_outcome,
    given_tools,
    perform,
)
from plugbay.store import checkpoints as journey_rows
from plugbay.store import harnesses as rows
from plugbay.store import tokens as token_rows
from plugbay.store.chains import Chain
from plugbay.store.database import Database, Tx
from plugbay.store.harnesses import HarnessExecution
from plugbay.store.pages import Page, Part
from plugbay.store.rows import ANY_OWNER

START, RESUME = "start", "resume"

CHECKPOINT = "checkpoint"
"""The usual fidelity."""
USES_TOOLS = "tool"
"""In `supports` of a harness: it invokes tools itself, with its token."""

_cut_off = partial(cut_off_outcome, "harness")


class HarnessRequest(msgspec.Struct, frozen=True):
    """A client's request to start a harness."""

    binding_id: str
    trigger: dict[str, Any]
    policy: dict[str, Any]
    session_id: str | None = None
    chain_id: str | None = None
    """Default: the latest chain of the session, or a new one."""
    org_id: str | None = None
    project_id: str | None = None
    """Used by an operator of all orgs when no session is given."""
    trace_id: str | None = None
    execution_id: str | None = None
    """Chosen by the client; it must be new."""
    run_id: str | None = None
    """The run that it belongs to, if any."""
    timeout: float | None = None
    """Seconds; manifest and binding limit it."""


class ExecutionWatch:
    """Futures for a caller that waits for an execution. Create it in a running loop."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.began: asyncio.Future[InvocationRecord] = loop.create_future()
        self.ended: asyncio.Future[WorkOutcome] = loop.create_future()


class Harnesses:
    """All executions of harnesses."""

    def __init__(
        self,
        database: Database,
        chains: Chains,
        workers: Workers,
        audit: Audit,
        clock: Clock,
        ids: Ids = new_id,
    ) -> None:
        self._database = database
        self._chains = chains
        self._sessions = chains.sessions
        self._workers = workers
        self._audit = audit
        self._clock = clock
        self._ids = ids
        self._jobs: BackgroundJobs[WorkOutcome] = BackgroundJobs(_cut_off)

    async def start(self) -> None:
        """Close executions of the last server; those of other gateways are closed when their leases end."""
        if self._database.fence is None:
            await self.close_left(ANY_OWNER)

    async def close_left(self, owner: str | None) -> None:
        """Close executions of a killed gateway. Their steps had effects, so they resume only on request."""
        async with self._database.reading() as tx:
            left = await rows.unfinished(tx, owner)
        for execution in left:
            text = "the gateway was restarted while this harness was running; it can be resumed"
            restarted = failed_outcome("harness.host_restarted", text, Outcome.RETRYABLE_FAILURE)
            await self._finish(execution, _cut_off(USER) if execution.cancel_requested else restarted)

    async def cancel_requested(self, tx: Tx) -> None:
        """Cancel the executions here that were cancelled at another gateway."""
        for id in await rows.to_cancel(tx, self._database.owner):
            self._jobs.cancel(id)

    async def stop(self) -> None:
        """Cancel running executions and record their ends."""
        await self._jobs.stop()

    # For clients.

    async def create(
        self, caller: Principal, request: HarnessRequest, watch: ExecutionWatch | None = None
    ) -> HarnessExecution:
        """Create an execution and start it after the commit. Every harness starts here."""
        async with self._database.transaction(fenced=True) as tx:
            if request.execution_id is not None and await rows.find(tx, request.execution_id) is not None:
                raise conflict("harness.exists", f"execution {request.execution_id} already exists", "execution_id")
            chain = await self._target(tx, caller, request)
            bound = await self._workers.bound("harness", chain.org_id, chain.project_id, request.binding_id)
            if bound is None:
                text = f"{request.binding_id!r} is not an active binding of a harness here"
                raise unprocessable("harness.no_binding", text, "binding_id")
            mode = bound.facts.get("mode", MODES[0])
            if mode not in MODES:
                text = (
                    f"the harness mode of {bound.export_id} is {mode!r:.60}; this gateway supports {', '.join(MODES)}"
                )
                raise unprocessable("harness.unsupported_mode", text, "binding_id")
            policy = _limits(request.policy, bound)
            if policy.get("tools") is not None:
                serving = await self._workers.serving("tool", chain.org_id, chain.project_id, chain.session_id)
                policy["tools"] = [tool.full_name for tool in select_tools(policy["tools"], serving)]
            execution = HarnessExecution(
                id=request.execution_id or self._ids("exec_"),
                org_id=chain.org_id,
                project_id=chain.project_id,
                session_id=chain.session_id,
                chain_id=chain.id,
                binding_id=request.binding_id,
                status="queued",
                mode=START,
                trigger=request.trigger,
                policy=policy,
                summary=None,
                artifacts=[],
                error=None,
                resumes=0,
                depth=0,
                cause_depth=0,
                trace_id=request.trace_id or new_trace_id(),
                cancel_requested=False,
                owner=self._database.owner,
                created_at=self._clock.now(),
                started_at=None,
                completed_at=None,
            )
            await rows.insert(tx, execution)
            await self._record(tx, caller, "harness.create", execution)
            self._database.after_commit(lambda: self._launch(execution, request, watch), in_doubt=True)
            return execution

    async def get(self, caller: Principal, id: str) -> tuple[HarnessExecution, dict[str, Any] | None]:
        """An execution, and its last checkpoint."""
        async with self._database.reading() as tx:
            execution = await self._existing(tx, caller, id)
            journey = await journey_rows.load(tx, _checkpoint_key(execution))
        return execution, None if journey is None else journey.checkpoint

    async def page(
        self, caller: Principal, part: Page, search: str | None = None, **filters: str | None
    ) -> Part[HarnessExecution]:
        """Executions visible to the caller; `search` is part of an id."""
        async with self._database.reading() as tx:
            return await rows.page(tx, part, tenant(caller), search=search, **filters)

    async def spent(self, caller: Principal, id: str) -> dict[str, int]:
        """The units of its budget that an execution has spent, by their kind."""
        async with self._database.reading() as tx:
            execution = await self._existing(tx, caller, id)
            return await token_rows.spent(tx, execution.org_id, id)

    async def cancel(self, caller: Principal, id: str) -> HarnessExecution:
        """Cancel an execution; an ended one stays unchanged."""
        async with self._database.transaction() as tx:
            execution = await self._existing(tx, caller, id)
            if execution.status in rows.UNFINISHED:
                await rows.change(tx, id, cancel_requested=True)
                await self._record(tx, caller, "harness.cancel", execution)
                self._database.after_commit(lambda: self._jobs.cancel(id))
            return await self._existing(tx, caller, id)

    async def resume(self, caller: Principal, id: str) -> HarnessExecution:
        """Resume from the stored state that the fidelity of the harness names; a summary reseeds a fresh chain."""
        await self._jobs.wait_closed(id)
        async with self._database.transaction(fenced=True) as tx:
            execution = await self._existing(tx, caller, id, lock=True)
            if execution.status in rows.UNFINISHED or id in self._jobs.running:
                raise conflict("harness.not_ended", f"{id} has not ended", retryable=True)
            state = await journey_rows.load(tx, _checkpoint_key(execution))
            facts = await self._facts(execution)
            fidelity, listed = facts.get("fidelity", CHECKPOINT), facts.get("supports") or ()
            if not supports(listed, "continue"):
                text = f"{id} cannot be resumed: its harness supports {', '.join(listed)}, not continue"
                raise conflict("harness.not_supported", text, supports=list(listed))
            if state is None or resume_source(fidelity, state) is None:
                text = f"{id} has no stored state for a harness of the fidelity {fidelity}"
                raise conflict("harness.nothing_to_resume", text, fidelity=fidelity)
            chain_id = execution.chain_id
            if fidelity == SUMMARY_RESEED:
                chain_id = (await self._reseeded_chain(tx, caller, execution, str(state.summary))).id
            await rows.change(
                tx,
                id,
                chain_id=chain_id,
                status="queued",
                mode=RESUME,
                error=None,
                completed_at=None,
                cancel_requested=False,
                owner=self._database.owner,
                resumes=execution.resumes + 1,
            )
            await self._record(tx, caller, "harness.resume", execution)
            resumed = await self._existing(tx, caller, id)
            self._database.after_commit(lambda: self._launch(resumed), in_doubt=True)
            return resumed

    async def _facts(self, execution: HarnessExecution) -> Mapping[str, Any]:
        """The manifest's table of the harness; empty if its binding is not active, which the invocation reports."""
        bound = await self._workers.bound("harness", execution.org_id, execution.project_id, execution.binding_id)
        return {} if bound is None else bound.facts

    async def _reseeded_chain(self, tx: Tx, caller: Principal, execution: HarnessExecution, summary: str) -> Chain:
        """A fresh chain of the same session that begins with the summary."""
        source = await self._chains.existing(tx, caller, execution.chain_id)
        session = await self._sessions.existing(tx, caller, execution.session_id)
        return await self._chains.begin(
            tx,
            session,
            [text_block("input", summary)],
            defaults=source.defaults,
            metadata=source.metadata,
            parent=source.id,
        )

    async def _target(self, tx: Tx, caller: Principal, request: HarnessRequest) -> Chain:
        """The chain to work on."""
        if request.chain_id is not None:
            chain = await self._chains.existing(tx, caller, request.chain_id)
            if request.session_id not in (None, chain.session_id):
                raise invalid("harness.other_session", f"{chain.id} belongs to another session", "session_id")
            return chain
        if request.session_id is None:
            session = await self._sessions.create(caller, org_id=request.org_id, project_id=request.project_id)
        else:
            session = await self._sessions.existing(tx, caller, request.session_id)
        if session.latest_chain_id is not None:
            return await self._chains.existing(tx, caller, session.latest_chain_id)
        return await self._chains.begin(tx, session, (), defaults={}, metadata={})

    async def _existing(self, tx: Tx, caller: Principal, id: str, *, lock: bool = False) -> HarnessExecution:
        found = await rows.find(tx, id, lock=lock)
        if found is None or not caller.sees(found.org_id, found.project_id):
            raise not_found("harness_execution", id)
        return found

    # For harnesses.

    async def tools(self, caller: Principal) -> Sequence[BoundExport]:
        """The tools that the harness behind this token was given; raises for other plugins."""
        claims, org_id = caller.claims, str(caller.org_id)
        harness = None
        if claims.get("export_kind") == "harness" and claims.get("binding_id") is not None:
            harness = await self._workers.bound("harness", org_id, caller.project_id, claims["binding_id"])
        if harness is None or USES_TOOLS not in harness.facts.get("supports", ()):
            text = f"only a harness whose manifest supports this may get tools: {USES_TOOLS!r}"
            raise denied("auth.scope_denied", text, required=[f"supports={USES_TOOLS}"])
        serving = await self._workers.serving("tool", org_id, caller.project_id, str(claims.get("session_id")))
        async with self._database.reading() as tx:
            return await given_tools(tx, caller, serving)

    # Running.

    def _launch(
        self, execution: HarnessExecution, request: HarnessRequest | None = None, watch: ExecutionWatch | None = None
    ) -> None:
        async def finish(outcome: WorkOutcome) -> None:
            await self._finish(execution, outcome)
            if watch is not None:
                settle(watch.ended, outcome)

        def opened(record: InvocationRecord) -> None:
            if watch is not None:
                settle(watch.began, record)

        call = replace(_call_request(execution, request), on_opened=opened)
        self._jobs.launch(execution.id, lambda: self._perform(execution, call), finish)

    async def _perform(self, execution: HarnessExecution, request: CallRequest) -> WorkOutcome:
        async def begin() -> bool:
            async with self._database.transaction(fenced=True) as tx:
                return await rows.begin(tx, execution.id, self._clock.now())

        if not await retry_until_stored(begin):
            return _cut_off(USER)
        return await perform(self._workers, request)

    async def _finish(self, execution: HarnessExecution, outcome: WorkOutcome) -> None:
        value = outcome.value or {}
        async with self._database.transaction() as tx:
            await rows.end(
                tx,
                execution.id,
                execution.owner,
                status=outcome.status,
                error=outcome.error,
                summary=value.get("summary"),
                artifacts=value.get("artifacts", []),
                completed_at=self._clock.now(),
            )

    async def _record(self, tx: Tx, caller: Principal, action: str, execution: HarnessExecution) -> None:
        await self._audit.record_change(
            tx, caller, action, execution, "harness_execution", binding_id=execution.binding_id
        )


def _call_request(execution: HarnessExecution, request: HarnessRequest | None) -> CallRequest:
    body: dict[str, Any] = {
        "mode": execution.mode,
        "target": {
            "session_id": execution.session_id,
            "chain_id": execution.chain_id,
            "execution_id": execution.id,
        },
        "policy": execution.policy,
    }
    # The trigger is stored with the checkpoints; a resume uses that one.
    started = {} if execution.mode == RESUME else {"trigger": execution.trigger}
    return CallRequest(
        binding_id=execution.binding_id,
        kind="harness",
        input={**body, **started},
        org_id=execution.org_id,
        project_id=execution.project_id,
        execution_id=execution.id,
        trace_id=execution.trace_id,
        session_id=execution.session_id,
        chain_id=execution.chain_id,
        run_id=None if request is None else request.run_id,
        timeout=None if request is None else request.timeout,
    )


def _limits(policy: Mapping[str, Any], bound: BoundExport) -> dict[str, Any]:
    """The limits of an execution: those of the request, narrowed by the binding's policies and by the manifest."""
    limits = narrow_limits(limits_of(policy), bound.limits)
    if not supports(bound.facts.get("supports") or (), "compact"):
        limits["allow_compaction"] = False
    return limits


def _checkpoint_key(execution: HarnessExecution) -> str:
    """The key of an execution's checkpoints."""
    return resume_key(execution.org_id, execution.id)
