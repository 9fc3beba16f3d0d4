"""`ServedCall`: one call on a node, from its arrival to its last frame.

A call is either refused, before a plugin has received it, or done. The line between both is one moment: the write of
the operation to the link of an instance.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec

from plugbay.cluster import envelope, outcomes
from plugbay.cluster.chunks import MAX_BODY
from plugbay.cluster.envelope import Call
from plugbay.cluster.files import Contents, artifacts_of, context_of, join, write
from plugbay.cluster.hosts import NodeHosts
from plugbay.cluster.keeper import Keeper, LeaseRefused
from plugbay.cluster.releases import FINAL
from plugbay.host.confinement.scratch import Scratch
from plugbay.host.host import Host
from plugbay.host.invocations.artifacts import BadArtifact
from plugbay.host.invocations.context import moment
from plugbay.host.recording.org_logs import OrgLogs
from plugbay.host.supervision.instance import Deadline
from plugbay.host.supervision.supervisor import Lease, Supervisor
from plugbay.link.in_flight import Grace
from plugbay.model.errors import Code, Failure, Origin, PlugbayError
from plugbay.model.values import Value
from plugbay.packages.errors import PackageRefused
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import Malformed

ELSEWHERE = frozenset({Code.OVERLOADED, Code.UNAVAILABLE, Code.SANDBOX_UNAVAILABLE})
"""Codes of a start that may succeed on another node."""

QUOTA = "invocation.scratch_quota_exceeded"


class Outcome(msgspec.Struct, frozen=True):
    """The end of a call: a value, a failure, or a refusal."""

    value: bytes = b""
    failure: Failure | None = None
    refused: bool = False
    elsewhere: bool = False
    files: Contents = msgspec.field(default_factory=list)
    """The artifacts of the result."""


def refuse(failure: Failure, *, elsewhere: bool) -> Outcome:
    """The end of a call that no plugin has received."""
    return Outcome(failure=failure, refused=True, elsewhere=elsewhere)


class ServedCall:
    """One call. `run` it once."""

    def __init__(
        self,
        call: Call,
        node: str,
        on_progress: Callable[[ServedCall, bytes], None],
        in_doubt: Callable[[], bool],
        keeper: Keeper | None = None,
    ) -> None:
        """`in_doubt`: whether the node stood still, so that the gateway may have given the call to another node.

        `keeper` has the leases of the node.
        """
        self.call = call
        self.seq = 0
        self._node = node
        self._on_progress = on_progress
        self._in_doubt = in_doubt
        self._keeper = keeper
        self._deadline = Deadline(call.budget_ms / 1000)
        self._grace = Grace(0.0)
        self._received = False
        self._task: asyncio.Task[Any] | None = None
        self._early: Outcome | None = None
        """Why it ended before a plugin received it."""
        self._quota: Failure | None = None
        self._files: Contents = []

    def cancel(self, reason: str) -> None:
        """Cancel it: at once before a plugin has received it, else with the plugin's grace period."""
        if self._received:
            self._grace.cancel(reason)
        else:
            text = f"it was cancelled before the plugin was called: {reason}"
            self._end_early(Outcome(failure=Failure(Code.CANCELLED, text, detail={"asked": False})))

    def refuse_unreceived(self) -> None:
        """The node stood still: refuse the call unless a plugin has received it."""
        if not self._received:
            self._end_early(self._stalled())

    def _end_early(self, outcome: Outcome) -> None:
        if self._early is None and self._task is not None:
            self._early = outcome
            self._task.cancel()

    async def run(
        self,
        op: Value | None,
        hosts: NodeHosts,
        turns: asyncio.Semaphore,
        settings: bytes = b"",
        files: Contents | None = None,
    ) -> Outcome:
        """Carry it out when it is its turn; every failure is a value here. Without an operation, start the plugin.

        `files` are for its scratch folder.
        """
        self._files = files or []
        self._task = asyncio.current_task()
        try:
            async with turns:
                return await self._run(op, hosts, settings)
        except asyncio.CancelledError:
            if self._early is None or self._task is None:
                raise
            self._task.uncancel()
            return self._early
        finally:
            self._task = None

    def _host(self, hosts: NodeHosts, settings: bytes) -> AbstractAsyncContextManager[Host]:
        if not settings:
            return hosts.host(self.call.package, self.call.access)
        assert self._keeper is not None, "a node has one"
        if self.call.lease:
            return self._keeper.host(self.call, settings)
        return hosts.host(self.call.package, self.call.access, settings, elsewhere=self._keeper.asking)

    async def _run(self, op: Value | None, hosts: NodeHosts, settings: bytes) -> Outcome:
        try:
            async with self._host(hosts, settings) as host:
                return await self._lease_and_call(host, op, None if hosts.logs is None else hosts.logs.written)
        except LeaseRefused as error:
            return refuse(error.failure, elsewhere=True)
        except Malformed as error:
            return refuse(outcomes.malformed(self._node, str(error)), elsewhere=False)
        except PackageRefused as error:
            detail = {"reason": str(error.reason), "node": self._node}
            failure = Failure(Code.LAUNCH_FAILED, error.message, origin=Origin.SYSTEM, detail=detail)
            return refuse(failure, elsewhere=error.reason not in FINAL)
        except PlugbayError as error:
            return self._refuse("no_host", str(error))

    async def _lease_and_call(self, host: Host, op: Value | None, logs: OrgLogs | None) -> Outcome:
        call, supervisor = self.call, host.calls.supervisor(self.call.package.id)
        if supervisor is None:
            return self._refuse("no_plugin", f"{call.package.id} is not running on the node {self._node}")
        if call.execution_class:
            exports = supervisor.binding.spec.exports
            export = next((each for each in exports if (each.kind, each.name) == (call.kind, call.export)), None)
            if export is None:
                return self._refuse("no_export", f"{call.package.id} has no {call.kind} {call.export}")
            supervisor = supervisor.for_export(call.execution_class, call.org, export)
        lease = supervisor.try_lease() or await supervisor.lease(self._deadline)
        self._log(lease, logs)
        if isinstance(lease, Failure):
            return refuse(lease, elsewhere=lease.code in ELSEWHERE)
        if op is None:
            lease.release()
            return Outcome(_greeting(lease))
        folder: Path | Failure | None = None
        try:
            context = context_of(op)
            folder = await self._make_folder(context, supervisor, lease)
            if isinstance(folder, Failure):
                return refuse(folder, elsewhere=True)
            if self._in_doubt():
                return self._stalled()
            if self._deadline.left() <= 0:
                late = Failure(Code.TIMEOUT, "the deadline passed before the plugin was called")
                return Outcome(failure=late.replace_detail(asked=False))
            _prepare(context, folder, self._deadline)
            return await self._ask(op, lease, folder, supervisor)
        finally:
            lease.release()
            if isinstance(folder, Path) and supervisor.binding.scratch is not None:
                await _remove(lease, folder, supervisor.binding.scratch)

    def _log(self, lease: Lease | Failure, logs: OrgLogs | None) -> None:
        """Copy the output of the process to the log of its org; of one that did not start, the last lines."""
        if logs is None:
            return
        org, plugin = self.call.org, self.call.package.id
        if not isinstance(lease, Failure):
            if lease.instance.stderr is not None:
                logs.attach(org, plugin, lease.instance.stderr)
        elif lease.detail.get("stderr_tail"):
            logs.write(org, plugin, lease.detail["stderr_tail"])

    async def _make_folder(
        self, context: dict[str, Any] | None, supervisor: Supervisor, lease: Lease
    ) -> Path | Failure | None:
        """The scratch folder of a call whose plugin may have one."""
        if context is None or context.get("permissions", {}).get("filesystem") != "scratch":
            return None
        scratch, instance_folder = supervisor.binding.scratch, lease.instance.scratch_folder
        if scratch is None or instance_folder is None:
            return None
        folder = await scratch.open(instance_folder, self.call.id)
        if isinstance(folder, Failure) or not self._files:
            return folder
        try:
            await write(folder, self._files)
        except (OSError, BadArtifact) as error:
            await scratch.remove(folder)
            return Failure(Code.UNAVAILABLE, f"its scratch directory cannot be filled: {error}", origin=Origin.SYSTEM)
        return folder

    async def _ask(self, op: Value, lease: Lease, folder: Path | None, supervisor: Supervisor) -> Outcome:
        secrets, token = _secrets(op)
        lease.instance.redactor.learn(secrets, () if token is None else (token,))
        self._grace.seconds = supervisor.binding.spec.timeouts.grace
        watch = None
        if folder is not None and supervisor.binding.scratch is not None:
            watch = asyncio.get_running_loop().create_task(self._watch(supervisor.binding.scratch, folder))
        answered = False
        try:
            self._received = True
            on_progress = self._progress if self.call.stream else None
            answer = await lease.link.call(
                op,  # type: ignore[arg-type]
                self._deadline.left(),
                on_progress,
                self._grace,
            )
            answer = await lease.conclude(answer, self._deadline)
            answered = not self._grace.over
        finally:
            if watch is not None:
                watch.cancel()
            if not answered:
                lease.abandon()
            if token is not None:
                lease.instance.redactor.expire(token)
        if self._quota is not None:
            return Outcome(failure=self._quota)
        value = b"" if answer.failure is not None else bytes(answer.value)
        if folder is None:
            return Outcome(value, answer.failure)
        result = msgspec.json.decode(value) if answer.failure is None else answer.failure.detail.get("result")
        try:
            return Outcome(value, answer.failure, files=await artifacts_of(folder, result, MAX_BODY - len(value)))
        except BadArtifact as error:
            return Outcome(failure=Failure(Code.PLUGIN_ERROR, str(error), origin=Origin.SYSTEM))

    async def _watch(self, scratch: Scratch, folder: Path) -> None:
        """End the call when its scratch folder exceeds its quota."""
        why = await scratch.wait_over_quota(folder)
        text = f"its scratch directory is too full: {why}"
        self._quota = Failure(Code.PLUGIN_ERROR, text, origin=Origin.PLUGIN, detail={"plugin_code": QUOTA})
        self._grace.cancel(QUOTA)

    def _progress(self, item: Any) -> None:
        self._on_progress(self, bytes(item))

    def _stalled(self) -> Outcome:
        return self._refuse(
            outcomes.STALLED, f"the node {self._node} stood still, and the call may be elsewhere by now"
        )

    def _refuse(self, reason: str, text: str) -> Outcome:
        return refuse(outcomes.refused(reason, text, self._node), elsewhere=True)


def _prepare(context: dict[str, Any] | None, folder: Path | None, deadline: Deadline) -> None:
    """Enter the scratch folder of this machine, and the deadline by its clock."""
    if context is not None:
        context["scratch_dir"] = None if folder is None else str(folder)
        context["deadline_at"] = moment(time.time() + deadline.left())


def _secrets(op: Value) -> tuple[dict[str, str], str | None]:
    """The secrets and the token of an operation, which must not appear in logs."""
    context = getattr(op, "context", None)
    if not isinstance(context, dict) or not context:
        return {}, None
    secrets = {name: value for name, value in (context.get("secrets") or {}).items() if isinstance(value, str)}
    inner = context_of(op)
    token = None if inner is None else (inner.get("gateway") or {}).get("delegation_token")
    return secrets, token if isinstance(token, str) else None


def _greeting(lease: Lease) -> bytes:
    """What a resident plugin has said of itself, as JSON."""
    hello = getattr(lease.link, "hello", None)
    return MsgspecCodec().encode({} if hello is None else hello.hello)


async def _remove(lease: Lease, folder: Path, scratch: Scratch) -> None:
    """Remove a scratch folder; an instance for this call alone ends first."""
    if not lease.shared:
        await lease.wait_gone()
    await scratch.remove(folder)


def frame_of(call: Call, node: str, seq: int, outcome: Outcome) -> tuple[envelope.Frame, bytes]:
    """The last frame of a call."""
    failure = None if outcome.failure is None else envelope.failure_to_json(outcome.failure)
    files, body = join(outcome.value, outcome.files)
    frame = envelope.Frame(
        call=call.id,
        node=node,
        seq=seq,
        kind="refused" if outcome.refused else "done",
        failure=failure,
        elsewhere=outcome.elsewhere,
        files=files,
    )
    return frame, body
