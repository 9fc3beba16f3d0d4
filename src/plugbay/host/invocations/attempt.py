"""`Attempt`: one invocation of an export, from opening its record to removing its scratch folder.

The order is fixed: open the record, wait for a turn and an instance, make the scratch folder and the token, call,
check the result, clean up, close the record. Whatever happens, the record is closed exactly once, the token is revoked
and the folder removed. `invocations` decides whether there is another attempt.
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
from plugbay.host.invocations.kinds import Execution
from plugbay.host.invocations.resources import Resources, release_turns
from plugbay.host.ports import InvocationRecord
from plugbay.host.supervision.instance import Deadline
from plugbay.host.supervision.per_org import ISOLATED
from plugbay.host.supervision.supervisor import Lease, Supervisor
from plugbay.link.in_flight import DEADLINE, Grace
from plugbay.model.errors import Code, Failure, Origin, Outcome
from plugbay.model.events import CallFinished

USER, SHUTDOWN = "user_cancelled", "host_shutdown"
"""Reasons of a cancellation besides the deadline."""

TIMER_ROUNDING = 0.001
"""Seconds. Event loops round timers to milliseconds, so a wait may end that much before its deadline."""

CANCELLED_BEFORE = "it was cancelled before the plugin was called"

QUOTA = "invocation.scratch_quota_exceeded"

_STOPPED = frozenset({Code.CANCELLED, Code.TIMEOUT, Code.CRASHED, Code.OVERLOADED, Code.UNAVAILABLE})
"""Codes of a call that ended because it was cancelled; any other failure was reported by the plugin."""


class Attempt:
    """One attempt. `run` it once; `cancel` it at any time."""

    def __init__(
        self,
        resources: Resources,
        execution: Execution,
        binding: ExportBinding,
        granted: Iterable[str],
        deadline: Deadline,
        *,
        trace_id: str,
        retry_count: int,
        on_progress: Callable[[Any], None] | None = None,
    ) -> None:
        self._resources = resources
        self._execution = execution
        self._binding = binding
        self._deadline = deadline
        self._on_progress = on_progress
        self._grace = Grace(0.0)
        self._begun = False
        """Whether the record is open and the attempt has gone on."""
        self._task: asyncio.Task[Any] | None = None
        """Set until the plugin is called: until then, cancelling this task is enough."""
        self._cancel_reason = ""
        self._lease: Lease | None = None
        self._folder: Path | None = None
        self._abort_failure: Failure | None = None
        """Why the host itself ended the call, such as an exceeded quota."""
        self._events = 0
        self._token: str | None = None
        self._revoking: asyncio.Task[None] | None = None
        self._gateway = resources.gateway
        self.result: Any = None
        """The checked result, when it succeeded."""
        self.permissions = contexts.effective(execution.entry.export, granted, binding.policy, execution.request.scopes)
        self.record = self._first_record(trace_id, retry_count, time.time())

    def _first_record(self, trace_id: str, retry_count: int, now: float) -> InvocationRecord:
        entry, request, binding = self._execution.entry, self._execution.request, self._binding
        spec, export = entry.spec, entry.export
        location, least = self._execution.location(), binding.policy.execution_class
        return InvocationRecord(
            invocation_id=self._resources.make_id("inv"),
            trace_id=trace_id,
            export_kind=export.kind,
            export_id=export.name,
            package_id=spec.id,
            package_version=spec.version,
            binding_id=binding.binding_id,
            execution_class=contexts.execution_class(export.facts.get("execution_class"), least),
            org_id=request.org_id or binding.org_id,
            project_id=request.project_id or binding.project_id,
            session_id=request.session_id or location.get("session_id"),
            chain_id=request.chain_id or location.get("chain_id"),
            run_id=request.run_id,
            execution_id=self._execution.execution_id,
            retry_count=retry_count,
            started_at=contexts.moment(now),
            permissions=self.permissions.to_json(),
            narrowed=self.permissions != contexts.requested(export),
            request_bytes=self._execution.size,
        )

    def cancel(self, reason: str) -> bool:
        """Cancel it: at once before the plugin was called, with the plugin's grace period afterwards."""
        if self._cancel_reason or self._grace.reason:
            return False
        if not self._begun:
            self._cancel_reason = reason
            return True
        if self._task is not None:
            self._cancel_reason = reason
            return self._task.cancel()
        return self._begin_cancel(reason)

    def _begin_cancel(self, reason: str) -> bool:
        """Start the grace period. The token is revoked now: the plugin may still answer, but not do more work."""
        started = self._grace.cancel(reason)
        if started:
            self._revoking = self._resources.run_in_background(self._revoke())
        return started

    async def run(self, supervisor: Supervisor) -> CallFinished:
        """Run the attempt; a failure is a value here."""
        problem = await self._open()
        if problem is not None:
            return failed(problem)
        self._grace = Grace(supervisor.binding.spec.timeouts.grace)
        finished = failed(Failure(Code.CANCELLED, "the attempt was abandoned"))
        try:
            finished = await self._classify(await self._run(supervisor))
        except Exception as error:
            failure = Failure(Code.INTERNAL, f"a bug in plugbay: {error!r}")
            redacted = failure if self._lease is None else self._lease.instance.redactor.redact_failure(failure)
            finished = failed(redacted)
        except asyncio.CancelledError:
            self._cancel_reason = self._cancel_reason or SHUTDOWN
            raise
        finally:
            await self._close(finished.failure)
        return finished

    async def _open(self) -> Failure | None:
        """Open the record; without a record the attempt does not begin."""
        try:
            await self._resources.log.opened(self.record)
        except Exception as error:  # its text is for the operator, not for the caller
            self._resources.journal.note("host", "record_refused", f"{type(error).__name__}: {error}", level="error")
            return Failure(Code.UNAVAILABLE, "its record cannot be written now, so it was not started", retryable=True)
        if self._execution.request.opened is not None:
            self._execution.request.opened(self.record)
        return None

    # The call.

    async def _run(self, supervisor: Supervisor) -> CallFinished:
        entry = self._execution.entry
        if self._cancel_reason:
            return failed(Failure(Code.CANCELLED, CANCELLED_BEFORE))
        self._begun = True
        problem = self._execution.problem() or self._resources.binding_problem(
            entry.full_name, entry.export, self._binding
        )
        if problem is not None:
            return failed(problem)
        self._task = asyncio.current_task()
        try:
            answer = await self._lease_and_call(supervisor)
            return answer if answer.failure is not None else await self._result(answer)
        except asyncio.CancelledError:
            if not self._cancel_reason or self._task is None:
                raise
            self._task.uncancel()
            return failed(Failure(Code.CANCELLED, CANCELLED_BEFORE))
        finally:
            self._task = None
            await (self._revoke() if self._revoking is None else asyncio.shield(self._revoking))
            await self._schedule_clean_up()

    async def _lease_and_call(self, supervisor: Supervisor) -> CallFinished:
        """Wait for a turn and an instance, within the deadline, and call it."""
        turns = await self._resources.acquire_turns(self._limits, self._deadline)
        if isinstance(turns, Failure):
            return failed(turns)
        try:
            wanted = supervisor.for_export(
                self.record.execution_class, self.record.org_id, self._execution.entry.export
            )
            lease = wanted.try_lease() or await wanted.lease(self._deadline)
            if isinstance(lease, Failure):
                return failed(lease)
            return await self._prepare_and_call(lease)
        finally:
            release_turns(turns)

    async def _prepare_and_call(self, lease: Lease) -> CallFinished:
        """Prepare the operation and call; the lease is released in every case."""
        op: Any = None
        try:
            op = await self._operation(lease)
        finally:
            if op is None or isinstance(op, Failure):
                lease.release()
        return failed(op) if isinstance(op, Failure) else await self._call(lease, op)

    async def _operation(self, lease: Lease) -> Any:
        """The operation for this instance, with its scratch folder and its token made, or why there is none."""
        binding, instance = self._binding, lease.instance
        if self.permissions.filesystem == "scratch" and instance.scratch_folder is not None:
            made = await self._resources.scratch.open(instance.scratch_folder, self.record.invocation_id)
            if isinstance(made, Failure):
                return made
            self._folder = made
        secrets = {slot: binding.secrets[slot] for slot in self.permissions.secret_slots if slot in binding.secrets}
        try:
            context = await self._context()
        except Exception as error:  # its text may quote the token
            self._resources.journal.note("host", "token_refused", type(error).__name__, level="error")
            return Failure(Code.UNAVAILABLE, "no gateway token can be issued for it now", retryable=True)
        common = {"context": context, "config": dict(binding.config), "secrets": secrets}
        op = await self._execution.operation(common, self._folder)
        if is_over(self._deadline):
            return Failure(Code.TIMEOUT, "the deadline passed before the plugin was called")
        instance.redactor.learn(secrets, () if self._token is None else (self._token,))
        return op

    async def _call(self, lease: Lease, op: Any) -> CallFinished:
        self._lease = lease
        self._task = None
        folder = self._folder
        answered = False
        watch = None if folder is None else asyncio.get_running_loop().create_task(self._watch(folder))
        try:
            answer = await lease.link.call(op, self._deadline.left(), self._on_event, self._grace)
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
        """Concurrency limits by key: of this export for an org, and of its binding where that is lower.

        An instance never gets more calls at once than its manifest allows. Isolated instances serve one invocation
        each, so they are unlimited unless the manifest declares more than the usual 1.
        """
        own = (self._execution.entry.full_name, self.record.org_id)
        declared = self._execution.entry.export.facts.get("max_concurrency")
        if self.record.execution_class == ISOLATED and declared == 1:
            declared = None
        # The binding's limit first: a waiter there must not hold a turn that the org's other bindings could use.
        return {(*own, str(self.record.binding_id)): self._binding.policy.max_concurrency, own: declared}

    async def _context(self) -> dict[str, Any]:
        ends = time.time() + self._deadline.left()
        delegation = await self._delegate(ends)
        scratch = None if self._folder is None else str(self._folder)
        return contexts.context_object(self.record, self.permissions, contexts.moment(ends), scratch, delegation)

    async def _delegate(self, ends: float) -> Delegation:
        """A token for the granted scopes; none without a gateway or without granted scopes."""
        gateway, scopes, record = self._gateway, self.permissions.gateway_api_scopes, self.record
        if gateway is None or not scopes:
            return Delegation(None if gateway is None else gateway.base_url)
        claims = contexts.claims(record, scopes, self._execution.token_limits(), time.time(), ends)
        self._token = await gateway.tokens.issue(claims)
        return Delegation(gateway.base_url, self._token, scopes)

    # Events and results of the plugin.

    def _on_event(self, item: Any) -> None:
        assert self._lease is not None
        self._events += 1
        event = self._lease.instance.redactor.redact_value(self._resources.codec.load(item))
        problem = self._execution.on_event(event)
        if problem is not None:
            self._resources.journal.note(self.record.package_id, "event_refused", problem)
        if self._on_progress is None or self._abort_failure is not None:
            return
        try:
            self._on_progress(event)
        except Exception as error:  # a bug in the caller's callback; the plugin still gets its grace period
            self._abort(Failure(Code.INTERNAL, f"on_progress raised {error!r}"), USER)

    async def _watch(self, folder: Path) -> None:
        """End the call when the scratch folder exceeds its quota."""
        why = await self._resources.scratch.wait_over_quota(folder)
        self._abort(_quota_exceeded(why), QUOTA)

    def _abort(self, failure: Failure, reason: str) -> None:
        if self._abort_failure is None and self._begin_cancel(reason):
            self._abort_failure = failure

    async def _result(self, answer: CallFinished) -> CallFinished:
        """The result, redacted and checked."""
        assert self._lease is not None
        folder = self._folder
        why = None if folder is None else await self._resources.scratch.quota_problem(folder)
        if why is not None:
            return failed(_quota_exceeded(why))
        codec = self._resources.codec
        redacted = self._lease.instance.redactor.redact_value(codec.load(answer.value))
        result = await self._execution.check_result(redacted, folder)
        if isinstance(result, Failure):
            return failed(result)
        self.result = result
        return CallFinished(0, codec.dump(result))

    async def _classify(self, answer: CallFinished) -> CallFinished:
        """The outcome with its final failure: host aborts and the deadline replace the plugin's report."""
        failure = answer.failure
        if failure is None:
            return answer
        if self._abort_failure is not None and failure.code in _STOPPED:
            failure = self._abort_failure
        elif failure.code == Code.CANCELLED and DEADLINE in (self._grace.reason, failure.detail.get("plugin_code")):
            # The plugin has its own clock and may stop a moment before the host tells it to.
            self._cancel_reason = self._cancel_reason or DEADLINE
            detail = {**failure.detail, "plugin_code": failure.detail.get("plugin_code") or DEADLINE}
            failure = Failure(Code.TIMEOUT, "it was stopped at the deadline", detail=detail)
        if self._lease is not None:
            failure = self._lease.instance.redactor.redact_failure(failure)
        await self._execution.on_failure(failure)
        named, asked = failure.with_detail(self.record.package_id), self._lease is not None
        counted = retry.classify(named, self.record.export_kind, self._execution.repeatable, asked=asked)
        return failed(counted)

    # Clean-up.

    async def _revoke(self) -> None:
        """Revoke the token. One that cannot be revoked expires soon; the result stays valid."""
        if self._token is None or self._gateway is None:
            return
        try:
            await self._gateway.tokens.revoke(self._token)
        except Exception as error:  # its text may quote the token
            id, why = self.record.invocation_id, type(error).__name__
            text = f"the token of {id} was not revoked and is valid until it expires: {why}"
            self._resources.journal.note(self.record.package_id, "token_left", text, level="error")
        if self._lease is not None:
            self._lease.instance.redactor.expire(self._token)

    async def _schedule_clean_up(self) -> None:
        """Remove the folder once the instance no longer uses it.

        An instance that answered may end later, in the background. One that was killed or cancelled is waited for:
        when its record is closed, none of its processes runs any more.
        """
        lease, folder = self._lease, self._folder
        if lease is None and folder is None:
            return
        clearing = self._resources.run_in_background(self._clean_up(lease, folder))
        if lease is None or self._grace.over or self._grace.reason or lease.link.fault is not None:
            await asyncio.shield(clearing)

    async def _clean_up(self, lease: Lease | None, folder: Path | None) -> None:
        if lease is not None:
            await lease.wait_gone()
        if folder is not None and not await self._resources.scratch.remove(folder):
            text = f"the scratch directory {folder} could not be removed; it is tried again when the host starts"
            self._resources.journal.note(self.record.package_id, "scratch_left", text)

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
            self._resources.journal.note(self.record.package_id, "greeting_refused", failure.message, level="error")
        await self._resources.log.closed(self.record)
        self._execution.request.records.append(self.record)

    def _status(self, failure: Failure | None) -> tuple[str, str | None]:
        """The terminal status and the reason of a cancellation. A result within the grace period is a success."""
        if failure is None:
            return Outcome.SUCCEEDED, None
        if failure.detail.get("plugin_code") == QUOTA:
            return Outcome.FAILED, QUOTA.partition(".")[2]
        reason = self._cancel_reason or self._grace.reason
        if not reason and is_over(self._deadline):
            reason = DEADLINE
        if reason and failure.code in _STOPPED:
            return Outcome.CANCELLED, reason
        return failure.outcome, None


def failed(failure: Failure) -> CallFinished:
    """The outcome of a call that failed before or after it was on the wire, so it has no number there."""
    return CallFinished(0, None, failure)


def is_over(deadline: Deadline) -> bool:
    """Whether the deadline has passed, within the precision of timers."""
    return deadline.left() <= TIMER_ROUNDING


def _quota_exceeded(why: str) -> Failure:
    text = f"its scratch directory is too full: {why}"
    return Failure(Code.PLUGIN_ERROR, text, origin=Origin.PLUGIN, detail={"plugin_code": QUOTA})
