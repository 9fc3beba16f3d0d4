"""`Harnesses`: programs of many steps, started on a session and kept an eye on.

Owns the record of an execution: when it began, that it ends once, and that it can go on from where it was. All a
harness does comes back to the gateway as requests with its token, and is judged there like anybody's: by its session,
its scopes and the limits of its policy, which every execution has. One that is cancelled has ended when its token is
dead and its process gone.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

from plugbay.host.calls.invocation_result import InvocationResult
from plugbay.host.invocations.kinds import journey_key
from plugbay.host.ports import InvocationRecord
from plugbay.model.errors import Outcome
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.chains import Chains
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.credentials import limits_of
from plugbay.server.domain.dispatcher import error_code
from plugbay.server.domain.durable import durably
from plugbay.server.domain.errands import INTERNAL, USER, Errands, settle
from plugbay.server.domain.errors import conflict, invalid, not_found, unprocessable
from plugbay.server.domain.ids import Ids, new_id
from plugbay.server.domain.principal import Principal
from plugbay.server.domain.sessions import Sessions, tenant
from plugbay.server.domain.trace import new_trace
from plugbay.server.domain.workers import Job, Workers, WorkRefused
from plugbay.store import checkpoints as journey_rows
from plugbay.store import harnesses as rows
from plugbay.store.chains import Chain
from plugbay.store.database import Database, Tx
from plugbay.store.harnesses import HarnessExecution
from plugbay.store.pages import Page, Part

START, RESUME = "start", "resume"


@dataclass(frozen=True, slots=True)
class Errand:
    """What a client wants a harness to do."""

    binding_id: str
    trigger: dict[str, Any]
    policy: dict[str, Any]
    session_id: str | None = None
    chain_id: str | None = None
    """Without one: the latest of the session, or a new one."""
    org_id: str | None = None
    project_id: str | None = None
    """For an operator of all orgs, where there is no session to go by."""
    trace_id: str | None = None
    execution_id: str | None = None
    """Chosen by the client; it must be new."""
    run_id: str | None = None
    """The run it is for, if it is for one."""
    timeout: float | None = None
    """Seconds; less than its manifest and its binding allow."""


@dataclass(frozen=True, slots=True)
class Return:
    """What a harness came back with."""

    status: str
    result: dict[str, Any] = field(default_factory=dict)
    error: dict[str, Any] | None = None
    invoked: InvocationResult | None = None
    """None: it was refused, or cut off."""
    refused: WorkRefused | None = None


class Watched:
    """What a caller that waits for an execution hears of it. Made in a running loop."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.began: asyncio.Future[InvocationRecord] = loop.create_future()
        self.ended: asyncio.Future[Return] = loop.create_future()


class Harnesses:
    """All executions of harnesses."""

    def __init__(
        self,
        database: Database,
        chains: Chains,
        sessions: Sessions,
        workers: Workers,
        audit: Audit,
        clock: Clock,
        ids: Ids = new_id,
    ) -> None:
        self._database = database
        self._chains = chains
        self._sessions = sessions
        self._workers = workers
        self._audit = audit
        self._clock = clock
        self._ids = ids
        self._errands: Errands[Return] = Errands(_cut_off)

    async def start(self) -> None:
        """Close what a gateway that was killed left open. Its steps had effects, so it goes on only when it is told."""
        async with self._database.reading() as tx:
            left = await rows.unfinished(tx)
        for execution in left:
            text = "the gateway was restarted while this harness was at work; it can be resumed"
            restarted = _failed("harness.host_restarted", text, Outcome.RETRYABLE_FAILURE)
            await self._finish(execution, _cut_off(USER) if execution.cancel_requested else restarted)

    async def stop(self) -> None:
        """Cut off what is at work, and see it closed."""
        await self._errands.stop()

    # For clients.

    async def create(self, caller: Principal, errand: Errand, watched: Watched | None = None) -> HarnessExecution:
        """An execution, begun once it is written down. The one way in which a harness is started."""
        async with self._database.transaction() as tx:
            if errand.execution_id is not None and await rows.find(tx, errand.execution_id) is not None:
                raise conflict("harness.exists", f"there is an execution {errand.execution_id} already", "execution_id")
            chain = await self._target(tx, caller, errand)
            bound = await self._workers.bound(tx, "harness", chain.org_id, chain.project_id, errand.binding_id)
            if bound is None:
                text = f"{errand.binding_id!r} is no active binding of a harness here"
                raise unprocessable("harness.no_binding", text, "binding_id")
            execution = HarnessExecution(
                id=errand.execution_id or self._ids("exec_"),
                org_id=chain.org_id,
                project_id=chain.project_id,
                session_id=chain.session_id,
                chain_id=chain.id,
                binding_id=errand.binding_id,
                status="queued",
                mode=START,
                trigger=errand.trigger,
                policy=limits_of(errand.policy),
                summary=None,
                artifacts=[],
                error=None,
                resumes=0,
                depth=0,
                cause_depth=0,
                trace_id=errand.trace_id or new_trace(),
                cancel_requested=False,
                created_at=self._clock.now(),
                started_at=None,
                completed_at=None,
            )
            await rows.insert(tx, execution)
            await self._record(tx, caller, "harness.create", execution)
            self._database.after_commit(lambda: self._launch(execution, errand, watched))
            return execution

    async def get(self, caller: Principal, id: str) -> tuple[HarnessExecution, dict[str, Any] | None]:
        """An execution, and its last checkpoint."""
        async with self._database.reading() as tx:
            execution = await self._existing(tx, caller, id)
            journey = await journey_rows.load(tx, _journey(execution))
        return execution, None if journey is None else journey.checkpoint

    async def page(self, caller: Principal, part: Page, **said: str | None) -> Part[HarnessExecution]:
        async with self._database.reading() as tx:
            return await rows.page(tx, part, tenant(caller), **said)

    async def cancel(self, caller: Principal, id: str) -> HarnessExecution:
        """Have it end; one that has ended stays as it is."""
        async with self._database.transaction() as tx:
            execution = await self._existing(tx, caller, id)
            if execution.status in rows.UNFINISHED:
                await rows.change(tx, id, cancel_requested=True)
                await self._record(tx, caller, "harness.cancel", execution)
                self._database.after_commit(lambda: self._errands.cancel(id))
            return await self._existing(tx, caller, id)

    async def resume(self, caller: Principal, id: str) -> HarnessExecution:
        """Have it go on from where it was."""
        await self._errands.closed(id)
        async with self._database.transaction() as tx:
            execution = await self._existing(tx, caller, id, lock=True)
            if execution.status in rows.UNFINISHED or id in self._errands.running:
                raise conflict("harness.not_ended", f"{id} has not ended", retryable=True)
            if await journey_rows.load(tx, _journey(execution)) is None:
                raise conflict("harness.nothing_to_resume", f"{id} left nothing to go on from")
            await rows.change(
                tx,
                id,
                status="queued",
                mode=RESUME,
                error=None,
                completed_at=None,
                cancel_requested=False,
                resumes=execution.resumes + 1,
            )
            await self._record(tx, caller, "harness.resume", execution)
            resumed = await self._existing(tx, caller, id)
            self._database.after_commit(lambda: self._launch(resumed))
            return resumed

    async def _target(self, tx: Tx, caller: Principal, errand: Errand) -> Chain:
        """The chain it is to work on."""
        if errand.chain_id is not None:
            chain = await self._chains.existing(tx, caller, errand.chain_id)
            if errand.session_id not in (None, chain.session_id):
                raise invalid("harness.other_session", f"{chain.id} is of another session", "session_id")
            return chain
        if errand.session_id is None:
            session = await self._sessions.create(caller, org_id=errand.org_id, project_id=errand.project_id)
        else:
            session = await self._sessions.existing(tx, caller, errand.session_id)
        if session.latest_chain_id is not None:
            return await self._chains.existing(tx, caller, session.latest_chain_id)
        return await self._chains.begin(tx, session, (), defaults={}, metadata={})

    async def _existing(self, tx: Tx, caller: Principal, id: str, *, lock: bool = False) -> HarnessExecution:
        found = await rows.find(tx, id, lock=lock)
        if found is None or not caller.sees(found.org_id, found.project_id):
            raise not_found("harness_execution", id)
        return found

    # At work.

    def _launch(
        self, execution: HarnessExecution, errand: Errand | None = None, watched: Watched | None = None
    ) -> None:
        async def finish(came: Return) -> None:
            await self._finish(execution, came)
            if watched is not None:
                settle(watched.ended, came)

        job = _job(execution, errand, watched)
        self._errands.launch(execution.id, lambda: self._perform(execution, job), finish)

    async def _perform(self, execution: HarnessExecution, job: Job) -> Return:
        async def begin() -> bool:
            async with self._database.transaction() as tx:
                return await rows.begin(tx, execution.id, self._clock.now())

        if not await durably(begin):
            return _cut_off(USER)
        try:
            result = await self._workers.do(job)
        except WorkRefused as refused:
            return replace(_failed(refused.code, refused.message), refused=refused)
        if result.failure is None:
            return Return(Outcome.SUCCEEDED, result.value(), invoked=result)
        code, message = error_code(result.failure), result.failure.message
        return Return(result.status, error={"code": code, "message": message}, invoked=result)

    async def _finish(self, execution: HarnessExecution, came: Return) -> None:
        async with self._database.transaction() as tx:
            await rows.end(
                tx,
                execution.id,
                status=came.status,
                error=came.error,
                summary=came.result.get("summary"),
                artifacts=came.result.get("artifacts", []),
                completed_at=self._clock.now(),
            )

    async def _record(self, tx: Tx, caller: Principal, action: str, execution: HarnessExecution) -> None:
        await self._audit.record(
            tx,
            caller,
            action,
            "harness_execution",
            execution.id,
            org_id=execution.org_id,
            project_id=execution.project_id,
            binding_id=execution.binding_id,
        )


def _job(execution: HarnessExecution, errand: Errand | None, watched: Watched | None) -> Job:
    request: dict[str, Any] = {
        "mode": execution.mode,
        "target": {
            "session_id": execution.session_id,
            "chain_id": execution.chain_id,
            "execution_id": execution.id,
        },
        "policy": execution.policy,
    }
    # What it began with is kept with its checkpoints: a resume goes on with that.
    started = {} if execution.mode == RESUME else {"trigger": execution.trigger}
    return Job(
        binding_id=execution.binding_id,
        kind="harness",
        input={**request, **started},
        org_id=execution.org_id,
        project_id=execution.project_id,
        execution_id=execution.id,
        trace_id=execution.trace_id,
        session_id=execution.session_id,
        chain_id=execution.chain_id,
        run_id=None if errand is None else errand.run_id,
        timeout=None if errand is None else errand.timeout,
        opened=None if watched is None else lambda record: settle(watched.began, record),
    )


def _journey(execution: HarnessExecution) -> str:
    """Where the host keeps how far an execution has come."""
    return journey_key(execution.org_id, execution.id)


def _failed(code: str, message: str, status: str = Outcome.FAILED) -> Return:
    return Return(status, error={"code": code, "message": message})


def _cut_off(reason: str) -> Return:
    if reason == INTERNAL:
        return _failed("harness.internal", "a bug in plugbay; its log has more")
    return _failed("harness.cancelled", reason, Outcome.CANCELLED)
