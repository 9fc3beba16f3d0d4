"""`Attempt`: one invocation of an export, from opening its record to removing its scratch folder.

The order is fixed: open the record, wait for a turn and an instance, make the scratch folder and the token, call,
check the result, clean up, close the record. Whatever happens, the record is closed exactly once, the token is revoked
and the folder removed. `invocations` decides whether there is another attempt.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from plugbay.host.invocations import context as contexts
from plugbay.host.invocations import retry
from plugbay.host.invocations.context import Delegation, Terms
from plugbay.host.invocations.kinds import Execution
from plugbay.host.invocations.resources import Limit, Resources, release_turns
from plugbay.host.ports import InvocationRecord
from plugbay.host.request import ExportBinding
from plugbay.host.supervision.instance import Deadline
from plugbay.host.supervision.supervisor import Lease, Supervisor
from plugbay.link.in_flight import DEADLINE, Grace
from plugbay.model.errors import Code, Failure, Origin, Outcome
from plugbay.model.events import CallFinished

USER, SHUTDOWN = "user_cancelled", "host_shutdown"
"""Reasons of a cancellation besides the deadline."""

TIMER_ROUNDING = 0.001
"""Seconds. Event loops round timers to milliseconds, so a wait may end that much before its deadline."""

QUOTA = "invocation.scratch_quota_exceeded"

_ABANDONED = Failure(Code.CANCELLED, "the attempt was abandoned")
_CANCELLED_BEFORE = Failure(Code.CANCELLED, "it was cancelled before the plugin was called")

_STOPPED = frozenset({Code.CANCELLED, Code.TIMEOUT, Code.CRASHED, Code.OVERLOADED, Code.UNAVAILABLE})
"""Codes of a call that ended because it was cancelled; any other failure was reported by the plugin."""


class Attempt:
    """One attempt. `run` it once; `cancel` it at any time."""

    def __init__(
        self,
        resources: Resources,
        execution: Execution,
        binding: ExportBinding,
        terms: Terms,
        deadline: Deadline,
        *,
        trace_id: str,
        retry_count: int,
    ) -> None:
        self._resources = resources
        self._execution = execution
        self._binding = binding
        self._deadline = deadline
        self._grace = Grace(0.0)
        self._begun = False
        """Whether the record is open and the attempt has gone on."""
        self._task: asyncio.Task[Any] | None = None
        """Set until the plugin is called: until then, cancelling this task is enough."""
        self._cancel_reason = ""
        self._lease: Lease | None = None
        """Set when the plugin is called."""
        self._folder: Path | None = None
        self._abort_failure: Failure | None = None
        """Why the host itself ended the call, such as an exceeded quota."""
        self._events = 0
        self._token: str | None = None
        self._revoking: asyncio.Task[None] | None = None
        self._gateway = resources.gateway
        self.result: Any = None
        """The checked result, when it succeeded."""
        self._terms = terms
        self.record = self._first_record(trace_id, retry_count)

    def _first_record(self, trace_id: str, retry_count: int) -> InvocationRecord:
        entry, request, binding, terms = self._execution.entry, self._execution.request, self._binding, self._terms
        location = self._execution.location()
        return InvocationRecord(
            invocation_id=self._resources.make_id("inv"),
            trace_id=trace_id,
            export_kind=entry.export.kind,
            export_id=entry.export.name,
            package_id=entry.spec.id,
            package_version=entry.spec.version,
            binding_id=binding.binding_id,
            execution_class=terms.execution_class,
            org_id=request.org_id or binding.org_id,
            project_id=request.project_id or binding.project_id,
            session_id=request.session_id or location.get("session_id"),
            chain_id=request.chain_id or location.get("chain_id"),
            run_id=request.run_id,
            execution_id=self._execution.execution_id,
            retry_count=retry_count,
            started_at=contexts.moment(self._resources.now()),
            permissions=terms.permissions_json,
            narrowed=terms.narrowed,
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

    async def run(self, supervisor: Supervisor) -> CallFinished | Failure:
        """Run the attempt; a failure is a value here.

        One that would queue for too long has no record: under a load that is too high, refusals must be cheap.
        """
        patience = self._deadline.patience()
        refusal = None if patience is None else self._resources.queue_refusal(self._limits(), patience)
        if refusal is not None:
            return refusal.with_detail(self.record.package_id)
        try:
            await self._resources.log.opened(self.record)
        except Exception as error:  # its text is for the operator, not for the caller
            self._resources.journal.note("host", "record_refused", f"{type(error).__name__}: {error}", level="error")
            return Failure(Code.UNAVAILABLE, "its record cannot be stored now, so it was not started", retryable=True)
        if self._execution.request.on_opened is not None:
            self._execution.request.on_opened(self.record)
        self._grace.seconds = supervisor.binding.spec.timeouts.grace
        outcome: CallFinished | Failure = _ABANDONED
        try:
            outcome = await self._run(supervisor)
            if isinstance(outcome, Failure):
                outcome = await self._classify(outcome)
        except Exception as error:
            failure = Failure(Code.INTERNAL, f"a bug in plugbay: {error!r}")
            outcome = failure if self._lease is None else self._lease.instance.redactor.redact_failure(failure)
        except asyncio.CancelledError:
            self._cancel_reason = self._cancel_reason or SHUTDOWN
            raise
        finally:
            await self._close(outcome)
        return outcome

    # The call.

    async def _run(self, supervisor: Supervisor) -> CallFinished | Failure:
        """Wait for a turn and an instance, call it, and check its result. Then clean up."""
        if self._cancel_reason:
            return _CANCELLED_BEFORE
        self._begun = True
        entry = self._execution.entry
        problem = self._execution.problem() or self._resources.binding_problem(
            entry.full_name, entry.export, self._binding
        )
        if problem is not None:
            return problem
        self._task = asyncio.current_task()
        try:
            turns = await self._resources.acquire_turns(self._limits(), self._deadline)
            if isinstance(turns, Failure):
                return turns
            try:
                answer = await self._lease_and_call(supervisor)
            finally:
                release_turns(turns)
            if isinstance(answer, Failure):
                return await self._execution.store_artifacts(answer, self._folder)
            return await self._check_result(answer)
        except asyncio.CancelledError:
            if not self._cancel_reason or self._task is None:
                raise
            self._task.uncancel()
            return _CANCELLED_BEFORE
        finally:
            self._task = None
            if self._revoking is not None:
                await asyncio.shield(self._revoking)
            elif self._token is not None:
                await self._revoke()
            if self._folder is not None or (self._lease is not None and not self._lease.shared):
                await self._schedule_clean_up()

    def _limits(self) -> tuple[Limit, ...]:
        """Concurrency limits by key: of the binding, and of the export for an org.

        The binding's limit first: a waiter there must not hold a turn that the org's other bindings could use. An
        instance never gets more calls at once than its manifest allows.
        """
        name, org = self._execution.entry.full_name, self.record.org_id
        of_binding = (name, org, str(self.record.binding_id))
        return (of_binding, self._binding.policy.max_concurrency), ((name, org), self._terms.max_concurrency)

    async def _lease_and_call(self, supervisor: Supervisor) -> CallFinished | Failure:
        """Call an instance with its scratch folder and its token. The lease is released in every case."""
        record = self.record
        wanted = supervisor.for_export(record.execution_class, record.org_id, self._execution.entry.export)
        lease = wanted.try_lease() or await wanted.lease(self._deadline)
        logs = self._resources.org_logs
        if isinstance(lease, Failure):
            if logs is not None and lease.detail.get("stderr_tail"):
                logs.write(record.org_id, record.package_id, lease.detail["stderr_tail"])
            return lease
        if logs is not None and lease.instance.stderr is not None:
            logs.attach(record.org_id, record.package_id, lease.instance.stderr)
        watch: asyncio.Task[None] | None = None
        try:
            op = await self._operation(lease)
            if isinstance(op, Failure):
                return op
            self._lease, self._task = lease, None
            if self._folder is not None:
                watch = asyncio.get_running_loop().create_task(self._watch(self._folder))
            answered = False
            try:
                answer = await lease.link.call(op, self._deadline.left(), self._on_event, self._grace)
                answer = await lease.conclude(answer, self._deadline)
                answered = not self._grace.over
            finally:
                if not answered:
                    lease.abandon()
            return answer if answer.failure is None else answer.failure
        finally:
            if watch is not None:
                watch.cancel()
            lease.release()

    async def _operation(self, lease: Lease) -> Any:
        """The operation for this instance, with its scratch folder and its token made, or why there is none."""
        binding, instance = self._binding, lease.instance
        if self._terms.permissions.filesystem == "scratch" and instance.scratch_folder is not None:
            made = await self._resources.scratch.open(instance.scratch_folder, self.record.invocation_id)
            if isinstance(made, Failure):
                return made
            self._folder = made
        secrets = {
            slot: binding.secrets[slot] for slot in self._terms.permissions.secret_slots if slot in binding.secrets
        }
        try:
            context = await self._context()
        except Exception as error:  # its text may quote the token
            self._resources.journal.note("host", "token_refused", type(error).__name__, level="error")
            return Failure(Code.UNAVAILABLE, "no gateway token can be issued for it now", retryable=True)
        common = {"context": context, "config": dict(binding.config), "secrets": secrets}
        op = await self._execution.operation(common, self._folder)
        if is_over(self._deadline):
            return Failure(Code.TIMEOUT, "the deadline passed before the plugin was called")
        if secrets or self._token is not None:
            instance.redactor.learn(secrets, () if self._token is None else (self._token,))
        return op

    async def _context(self) -> dict[str, Any]:
        """The context of the request, with a token for the granted scopes if there are any."""
        now, gateway, permissions = self._resources.now(), self._gateway, self._terms.permissions
        left = self._deadline.left()
        if gateway is not None and permissions.gateway_api_scopes:
            limits = self._execution.token_limits()
            claims = contexts.claims(self.record, permissions.gateway_api_scopes, limits, now, now + left)
            self._token = await gateway.tokens.issue(claims)
        delegation = Delegation(
            None if gateway is None else gateway.base_url,
            self._token,
            () if self._token is None else permissions.gateway_api_scopes,
        )
        scratch = None if self._folder is None else str(self._folder)
        deadline = contexts.moment(time.time() + left)  # the plugin has the clock of this machine
        return contexts.context_object(self.record, permissions, deadline, scratch, delegation)

    # Events and results of the plugin.

    def _on_event(self, item: Any) -> None:
        assert self._lease is not None
        self._events += 1
        event = self._lease.instance.redactor.redact_value(self._resources.codec.load(item))
        if self._resources.org_logs is not None:
            self._resources.org_logs.write_event(self.record.org_id, self.record.package_id, event)
        problem = self._execution.on_event(event)
        if problem is not None:
            self._resources.journal.note(self.record.package_id, "event_refused", problem)
        on_progress = self._execution.request.on_progress
        if on_progress is None or self._abort_failure is not None:
            return
        try:
            on_progress(event)
        except Exception as error:  # a bug in the caller's callback; the plugin still gets its grace period
            self._abort(Failure(Code.INTERNAL, f"on_progress raised {error!r}"), USER)

    async def _watch(self, folder: Path) -> None:
        """End the call when the scratch folder exceeds its quota."""
        why = await self._resources.scratch.wait_over_quota(folder)
        self._abort(_quota_exceeded(why), QUOTA)

    def _abort(self, failure: Failure, reason: str) -> None:
        if self._abort_failure is None and self._begin_cancel(reason):
            self._abort_failure = failure

    async def _check_result(self, answer: CallFinished) -> CallFinished | Failure:
        """The result, redacted and checked."""
        assert self._lease is not None
        folder = self._folder
        why = None if folder is None else await self._resources.scratch.quota_problem(folder)
        if why is not None:
            return _quota_exceeded(why)
        codec = self._resources.codec
        redacted = self._lease.instance.redactor.redact_value(codec.load(answer.value))
        result = await self._execution.check_result(redacted, folder)
        if isinstance(result, Failure):
            return result
        self.result = result
        return CallFinished(answer.id, msgspec.Raw(codec.encode(result)))

    async def _classify(self, failure: Failure) -> Failure:
        """The failure to report: host aborts and the deadline replace the plugin's report."""
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
        asked = self._lease is not None and failure.detail.get("asked") is not False
        named = failure.with_detail(self.record.package_id)
        return retry.classify(named, self.record.export_kind, self._execution.repeatable, asked=asked)

    # Clean-up.

    async def _revoke(self) -> None:
        """Revoke the token. One that cannot be revoked expires soon; the result stays valid."""
        if self._token is None or self._gateway is None:
            return
        try:
            await self._gateway.tokens.revoke(self._token)
        except Exception as error:  # its text may quote the token
            id, why = self.record.invocation_id, type(error).__name__
            text = f"the token of {id} could not be revoked and is valid until it expires: {why}"
            self._resources.journal.note(self.record.package_id, "token_left", text, level="error")
        if self._lease is not None:
            self._lease.instance.redactor.expire(self._token)

    async def _schedule_clean_up(self) -> None:
        """Remove the folder once the instance no longer uses it.

        An instance that answered may end later, in the background. One that was killed or cancelled is waited for:
        when its record is closed, none of its processes runs any more.
        """
        lease, folder = self._lease, self._folder
        clearing = self._resources.run_in_background(self._clean_up(lease, folder))
        if lease is None or self._grace.over or self._grace.reason or lease.link.fault is not None:
            await asyncio.shield(clearing)

    async def _clean_up(self, lease: Lease | None, folder: Path | None) -> None:
        if lease is not None:
            await lease.wait_gone()
        if folder is not None and not await self._resources.scratch.remove(folder):
            text = f"the scratch directory {folder} could not be removed; the next start of the host tries again"
            self._resources.journal.note(self.record.package_id, "scratch_left", text)

    async def _close(self, outcome: CallFinished | Failure) -> None:
        failure = outcome if isinstance(outcome, Failure) else None
        status, reason = (Outcome.SUCCEEDED, None) if failure is None else self._status(failure)
        # A result within the grace period is a success.
        self.record = replace(
            self.record,
            ended_at=contexts.moment(self._resources.now()),
            status=status,
            status_reason=reason,
            error_code=None if failure is None else str(failure.detail.get("plugin_code") or failure.code),
            event_count=self._events,
            node=None if self._lease is None else self._lease.instance.node,
        )
        if failure is not None and failure.code in (Code.HANDSHAKE_FAILED, Code.PROTOCOL_VERSION_MISMATCH):
            self._resources.journal.note(self.record.package_id, "greeting_refused", failure.message, level="error")
        self._report_outcome(outcome, failure)
        await self._resources.log.closed(self.record)

    def _report_outcome(self, outcome: CallFinished | Failure, failure: Failure | None) -> None:
        on_ended = self._execution.request.on_ended
        if on_ended is None:
            return
        try:
            on_ended(self.record, self._result_of(outcome), failure)
        except Exception as error:  # a bug in the caller's callback; the record is closed all the same
            self._resources.journal.note(self.record.package_id, "outcome_lost", repr(error), level="error")

    def _result_of(self, outcome: CallFinished | Failure) -> msgspec.Raw | None:
        """The result as JSON; of a failure the one that the plugin answered with it."""
        if not isinstance(outcome, Failure):
            result: msgspec.Raw = outcome.value
            return result
        answered = outcome.detail.get("result")
        return None if answered is None else msgspec.Raw(self._resources.codec.encode(answered))

    def _status(self, failure: Failure) -> tuple[str, str | None]:
        """The terminal status and the reason of a cancellation."""
        if failure.detail.get("plugin_code") == QUOTA:
            return Outcome.FAILED, QUOTA.partition(".")[2]
        reason = self._cancel_reason or self._grace.reason
        if not reason and is_over(self._deadline):
            reason = DEADLINE
        if reason and failure.code in _STOPPED:
            return Outcome.CANCELLED, reason
        return failure.outcome, None


def is_over(deadline: Deadline) -> bool:
    """Whether the deadline has passed, within the precision of timers."""
    return deadline.left() <= TIMER_ROUNDING


def _quota_exceeded(why: str) -> Failure:
    text = f"its scratch directory is too full: {why}"
    return Failure(Code.PLUGIN_ERROR, text, origin=Origin.PLUGIN, detail={"plugin_code": QUOTA})
