"""`Invocation`: one attempt at a piece of work, from its record to its empty room.

Owns the order of things: open the record, wait for a turn and a child, make the room and the token, ask, judge what it
says, take everything away again, close the record. Whatever happens, the record is closed once, the token is dead and
the room is gone. What work is, and whether there is another attempt, is others' business.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from plugbay.host.invocations import context as contexts
from plugbay.host.invocations import retry
from plugbay.host.invocations.context import Delegation, ExportBinding
from plugbay.host.invocations.kinds import Work
from plugbay.host.invocations.means import Means, give_all
from plugbay.host.ports import InvocationRecord
from plugbay.host.supervision.instance import Deadline
from plugbay.host.supervision.per_org import ISOLATED
from plugbay.host.supervision.supervisor import Lease, Supervisor
from plugbay.link.grace import DEADLINE, Grace
from plugbay.model.errors import Code, Failure, Origin, Outcome
from plugbay.model.events import CallFinished

USER, SHUTDOWN = "user_cancelled", "host_shutdown"
"""Why an invocation is cancelled, beside the deadline."""

EARLY = 0.001
"""Seconds; loops round the times of their timers to milliseconds, so a wait may end that much before its deadline."""

BEFORE = "it was cancelled before the plugin was asked"

QUOTA = "invocation.scratch_quota_exceeded"

_STOPPED = frozenset({Code.CANCELLED, Code.TIMEOUT, Code.CRASHED, Code.OVERLOADED, Code.UNAVAILABLE})
"""How a call looks that ended because it was called off; any other failure is the plugin's own word."""


class Invocation:
    """One attempt. `run` it once; `cancel` it at any time."""

    def __init__(
        self,
        means: Means,
        work: Work,
        binding: ExportBinding,
        granted: Iterable[str],
        deadline: Deadline,
        *,
        trace_id: str,
        retry_count: int,
        on_progress: Callable[[Any], None] | None = None,
    ) -> None:
        self._means = means
        self._work = work
        self._binding = binding
        self._deadline = deadline
        self._on_progress = on_progress
        self._grace = Grace(0.0)
        self._begun = False
        """Whether more is going on than the opening of its record."""
        self._task: asyncio.Task[Any] | None = None
        """Set while it can still be stopped by not asking at all."""
        self._reason = ""
        self._lease: Lease | None = None
        self._room: Path | None = None
        self._broken: Failure | None = None
        """Why it is cancelled although nobody wants that."""
        self._events = 0
        self._token: str | None = None
        self._revoking: asyncio.Task[None] | None = None
        self._gateway = means.gateway
        self.result: Any = None
        """What the work gave back, when it succeeded."""
        self.permissions = contexts.effective(work.entry.export, granted, binding.policy, work.order.scopes)
        self.record = self._first_record(trace_id, retry_count, time.time())

    def _first_record(self, trace_id: str, retry_count: int, now: float) -> InvocationRecord:
        export, spec, order, binding = self._work.entry.export, self._work.entry.spec, self._work.order, self._binding
        place, least = self._work.place(), binding.policy.execution_class
        return InvocationRecord(
            invocation_id=self._means.kit.make_id("inv"),
            trace_id=trace_id,
            export_kind=export.kind,
            export_id=export.name,
            package_id=spec.id,
            package_version=spec.version,
            binding_id=binding.binding_id,
            execution_class=contexts.execution_class(export.facts.get("execution_class"), least),
            org_id=order.org_id or binding.org_id,
            project_id=order.project_id or binding.project_id,
            session_id=order.session_id or place.get("session_id"),
            chain_id=order.chain_id or place.get("chain_id"),
            run_id=order.run_id,
            execution_id=self._work.execution_id,
            retry_count=retry_count,
            started_at=contexts.moment(now),
            permissions=self.permissions.to_json(),
            narrowed=self.permissions != contexts.requested(export),
            request_bytes=self._work.size,
        )

    def cancel(self, reason: str) -> bool:
        """Stop it: without an answer while nobody was asked, with the plugin's grace afterwards."""
        if self._reason or self._grace.reason:
            return False
        if not self._begun:
            self._reason = reason
            return True
        if self._task is not None:
            self._reason = reason
            return self._task.cancel()
        return self._call_off(reason)

    def _call_off(self, reason: str) -> bool:
        """The grace is for an answer, not for more work: the token ends now, and not when the plugin is gone."""
        told = self._grace.cancel(reason)
        if told:
            self._revoking = self._means.afterwards(self._revoke())
        return told

    async def run(self, supervisor: Supervisor) -> CallFinished:
        """How it ended; a failure is a value here."""
        problem = await self._open()
        if problem is not None:
            return CallFinished(0, None, problem)
        self._grace = Grace(supervisor.binding.spec.timeouts.grace)
        finished = CallFinished(0, None, Failure(Code.CANCELLED, "it was given up"))
        try:
            finished = await self._judged(await self._attempt(supervisor))
        except Exception as error:
            failure = Failure(Code.INTERNAL, f"a bug in plugbay: {error!r}")
            told = failure if self._lease is None else self._lease.instance.redactor.redact_failure(failure)
            finished = CallFinished(0, None, told)
        except asyncio.CancelledError:
            self._reason = self._reason or SHUTDOWN
            raise
        finally:
            await self._close(finished.failure)
        return finished

    async def _open(self) -> Failure | None:
        """Write down that it begins; what cannot be written down does not begin."""
        try:
            await self._means.log.opened(self.record)
        except Exception as error:  # what a database says is for its operator, not for who asks
            self._means.journal.note("host", "record_refused", f"{type(error).__name__}: {error}", level="error")
            return Failure(Code.UNAVAILABLE, "its record cannot be written now, so it is not begun", retryable=True)
        if self._work.order.opened is not None:
            self._work.order.opened(self.record)
        return None

    # The attempt.

    async def _attempt(self, supervisor: Supervisor) -> CallFinished:
        entry = self._work.entry
        if self._reason:
            return CallFinished(0, None, Failure(Code.CANCELLED, BEFORE))
        self._begun = True
        problem = self._work.problem() or self._means.binding_problem(entry.full_name, entry.export, self._binding)
        if problem is not None:
            return CallFinished(0, None, problem)
        self._task = asyncio.current_task()
        try:
            answer = await self._ask(supervisor)
            return answer if answer.failure is not None else await self._result(answer)
        except asyncio.CancelledError:
            if not self._reason or self._task is None:
                raise
            self._task.uncancel()
            return CallFinished(0, None, Failure(Code.CANCELLED, BEFORE))
        finally:
            self._task = None
            await (self._revoke() if self._revoking is None else asyncio.shield(self._revoking))
            await self._clear()

    async def _ask(self, supervisor: Supervisor) -> CallFinished:
        """Wait for a turn and a child, within the deadline, and put the question."""
        turns = await self._means.turns(self._limits, self._deadline)
        if isinstance(turns, Failure):
            return CallFinished(0, None, turns)
        try:
            wanted = supervisor.for_export(self.record.execution_class, self.record.org_id, self._work.entry.export)
            lease = wanted.try_lease() or await wanted.lease(self._deadline)
            if isinstance(lease, Failure):
                return CallFinished(0, None, lease)
            return await self._put_question(lease)
        finally:
            give_all(turns)

    async def _put_question(self, lease: Lease) -> CallFinished:
        """Whatever happens, the lease is given back."""
        op: Any = None
        try:
            op = await self._question(lease)
        finally:
            if op is None or isinstance(op, Failure):
                lease.release()
        return CallFinished(0, None, op) if isinstance(op, Failure) else await self._converse(lease, op)

    async def _question(self, lease: Lease) -> Any:
        """What to ask this child, with its room and its token made; a `Failure` says why it is not asked at all."""
        binding, instance = self._binding, lease.instance
        if self.permissions.filesystem == "scratch" and instance.scratch_folder is not None:
            made = await self._means.scratch.open(instance.scratch_folder, self.record.invocation_id)
            if isinstance(made, Failure):
                return made
            self._room = made
        secrets = {slot: binding.secrets[slot] for slot in self.permissions.secret_slots if slot in binding.secrets}
        try:
            context = await self._context()
        except Exception as error:  # what it says may quote the token
            self._means.journal.note("host", "token_refused", type(error).__name__, level="error")
            return Failure(Code.UNAVAILABLE, "no token can be made for it now", retryable=True)
        beside = {"context": context, "config": dict(binding.config), "secrets": secrets}
        op = await self._work.operation(beside, self._room)
        if is_over(self._deadline):
            return Failure(Code.TIMEOUT, "its time was over before the plugin was asked")
        instance.redactor.learn(secrets, () if self._token is None else (self._token,))
        return op

    async def _converse(self, lease: Lease, op: Any) -> CallFinished:
        self._lease = lease
        self._task = None
        room = self._room
        answered = False
        watch = None if room is None else asyncio.get_running_loop().create_task(self._watch(room))
        try:
            answer = await lease.link.call(op, self._deadline.left(), self._heard, self._grace)
            answer = await lease.conclude(answer, self._deadline)
            answered = not self._grace.over
        finally:
            if watch is not None:
                watch.cancel()
            if not answered:
                lease.abandon()
            lease.release()
        return answer

    @property
    def _limits(self) -> dict[tuple[str, ...], int | None]:
        """How many of the same may run at once: of this export for an org, and of its binding where that has less. A
        child is never asked more at once than its manifest says. Of children that serve one invocation each there may
        be any number, unless the manifest says how many that is by more than its usual 1."""
        own = (self._work.entry.full_name, self.record.org_id)
        declared = self._work.entry.export.facts.get("max_concurrency")
        if self.record.execution_class == ISOLATED and declared == 1:
            declared = None
        # The binding's line first: who waits there must not hold a turn that the org's other bindings could have.
        return {(*own, str(self.record.binding_id)): self._binding.policy.max_concurrency, own: declared}

    async def _context(self) -> dict[str, Any]:
        ends = time.time() + self._deadline.left()
        delegation = await self._delegate(ends)
        scratch = None if self._room is None else str(self._room)
        return contexts.context_object(self.record, self.permissions, contexts.moment(ends), scratch, delegation)

    async def _delegate(self, ends: float) -> Delegation:
        """A token for what is granted of the gateway; none where there is no gateway, or nothing is granted."""
        gateway, scopes, record = self._gateway, self.permissions.gateway_api_scopes, self.record
        if gateway is None or not scopes:
            return Delegation(None if gateway is None else gateway.base_url)
        claims = contexts.claims(record, scopes, self._work.limits(), time.time(), ends)
        self._token = await gateway.tokens.issue(claims)
        return Delegation(gateway.base_url, self._token, scopes)

    # What the plugin says.

    def _heard(self, item: Any) -> None:
        assert self._lease is not None
        self._events += 1
        event = self._lease.instance.redactor.redact_value(self._means.kit.codec.load(item))
        problem = self._work.heard(event)
        if problem is not None:
            self._means.journal.note(self.record.package_id, "event_refused", problem)
        if self._on_progress is None or self._broken is not None:
            return
        try:
            self._on_progress(event)
        except Exception as error:  # a bug of one caller's; the plugin has its grace all the same
            self._break(Failure(Code.INTERNAL, f"on_progress raised {error!r}"), USER)

    async def _watch(self, room: Path) -> None:
        """See to it that the room does not get too full."""
        why = await self._means.scratch.wait_over_quota(room)
        self._break(_too_full(why), QUOTA)

    def _break(self, failure: Failure, reason: str) -> None:
        if self._broken is None and self._call_off(reason):
            self._broken = failure

    async def _result(self, answer: CallFinished) -> CallFinished:
        """The result without secrets, as far as it counts."""
        assert self._lease is not None
        room = self._room
        why = None if room is None else await self._means.scratch.quota_problem(room)
        if why is not None:
            return CallFinished(0, None, _too_full(why))
        codec = self._means.kit.codec
        said = self._lease.instance.redactor.redact_value(codec.load(answer.value))
        result = await self._work.judge(said, room)
        if isinstance(result, Failure):
            return CallFinished(0, None, result)
        self.result = result
        return CallFinished(0, codec.dump(result))

    async def _judged(self, answer: CallFinished) -> CallFinished:
        """The outcome as it counts."""
        failure = answer.failure
        if failure is None:
            return answer
        if self._broken is not None and failure.code in _STOPPED:
            failure = self._broken
        elif failure.code == Code.CANCELLED and DEADLINE in (self._grace.reason, failure.detail.get("plugin_code")):
            # The plugin has a clock of its own, and may stop a moment before we tell it to.
            self._reason = self._reason or DEADLINE
            detail = {**failure.detail, "plugin_code": failure.detail.get("plugin_code") or DEADLINE}
            failure = Failure(Code.TIMEOUT, "it was stopped at the deadline", detail=detail)
        if self._lease is not None:
            failure = self._lease.instance.redactor.redact_failure(failure)
        await self._work.left(failure)
        named, asked = failure.with_detail(self.record.package_id), self._lease is not None
        judged = retry.judged(named, self.record.export_kind, self._work.repeatable, asked=asked)
        return CallFinished(0, None, judged)

    # Afterwards.

    async def _revoke(self) -> None:
        """The token is of no use any more. One that cannot be revoked expires soon, and that spoils no result."""
        if self._token is None or self._gateway is None:
            return
        try:
            await self._gateway.tokens.revoke(self._token)
        except Exception as error:  # what it says may quote the token
            text = f"the token of {self.record.invocation_id} stands until it expires: {type(error).__name__}"
            self._means.journal.note(self.record.package_id, "token_left", text, level="error")
        if self._lease is not None:
            self._lease.instance.redactor.expire(self._token)

    async def _clear(self) -> None:
        """Take the room away when nobody can use it any more. A child that has answered leaves in its own time; one
        that was killed or cancelled is waited for: once that is written down, nothing of it works any more."""
        lease, room = self._lease, self._room
        if lease is None and room is None:
            return
        clearing = self._means.afterwards(self._cleared(lease, room))
        if lease is None or self._grace.over or self._grace.reason or lease.link.fault is not None:
            await asyncio.shield(clearing)

    async def _cleared(self, lease: Lease | None, room: Path | None) -> None:
        if lease is not None:
            await lease.wait_gone()
        if room is not None and not await self._means.scratch.remove(room):
            text = f"the scratch directory {room} could not be removed; it is tried again when the host starts"
            self._means.journal.note(self.record.package_id, "scratch_left", text)

    async def _close(self, failure: Failure | None) -> None:
        status, reason = self._status(failure)
        self.record = msgspec.structs.replace(
            self.record,
            ended_at=contexts.moment(time.time()),
            status=status,
            status_reason=reason,
            error_code=None if failure is None else str(failure.detail.get("plugin_code") or failure.code),
            event_count=self._events,
        )
        if failure is not None and failure.code in (Code.HANDSHAKE_FAILED, Code.PROTOCOL_VERSION_MISMATCH):
            self._means.journal.note(self.record.package_id, "greeting_refused", failure.message, level="error")
        await self._means.log.closed(self.record)
        self._work.order.records.append(self.record)

    def _status(self, failure: Failure | None) -> tuple[str, str | None]:
        """The terminal status and why it was cancelled. Work that was done within its grace is done."""
        if failure is None:
            return Outcome.SUCCEEDED, None
        if failure.detail.get("plugin_code") == QUOTA:
            return Outcome.FAILED, QUOTA.partition(".")[2]
        reason = self._reason or self._grace.reason
        if not reason and is_over(self._deadline):
            reason = DEADLINE
        if reason and failure.code in _STOPPED:
            return Outcome.CANCELLED, reason
        return failure.outcome, None


def is_over(deadline: Deadline) -> bool:
    """Whether its time has run out, as far as a timer can tell."""
    return deadline.left() <= EARLY


def _too_full(why: str) -> Failure:
    text = f"its scratch directory is too full: {why}"
    return Failure(Code.PLUGIN_ERROR, text, origin=Origin.PLUGIN, detail={"plugin_code": QUOTA})
