"""`Calls`: the pipeline of every call: resolve, authorize, lease, call, conclude, record.

All calls of plugins go through here: the public API, hooks, channels, language models, vector backends. Each call makes
exactly one record, however it ends. This is the hot path: a call that needs no waiting awaits nothing but the link.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from plugbay.host.authorization import policy
from plugbay.host.authorization.policy import Decision
from plugbay.host.catalog.catalog import Catalog, Entry
from plugbay.host.catalog.operation import operation
from plugbay.host.invocations.attempt import failed
from plugbay.host.invocations.context import ID_BYTES, InvocationRequest, new_id
from plugbay.host.invocations.invocations import Invocations
from plugbay.host.ports import CallLog, CallRecord, InvocationRecord, Trace
from plugbay.host.supervision.instance import Deadline
from plugbay.host.supervision.supervisor import Supervisor
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.events import CallFinished
from plugbay.model.ids import CALL_ID_BYTES, call_ids
from plugbay.model.operations import Chat
from plugbay.model.spec import PluginSpec
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import Unencodable

if TYPE_CHECKING:
    from plugbay.model.operations import PluginOp

    MakeOperation = Callable[[Entry], PluginOp | Failure]
    """Makes the operation for an export as it is known now; a `Failure` when that is not possible."""

    Started = Coroutine[Any, Any, CallFinished] | Failure
    """The coroutine to await, or why there is none."""

    FindUnknown = Callable[[str, float | None], Coroutine[Any, Any, Failure | None]]
    """Given a name and a timeout: starts plugins that may have it. A `Failure` says why that was not possible."""

MAX_INPUT = 60 << 20
"""Bytes of one input: with its message, less than the 64 MiB that a plugin must be able to buffer."""

IDS_AT_ONCE = 64

LONGEST_CALL = 3600.0
"""Seconds; the upper bound of every timeout."""


class CallResult(msgspec.Struct, frozen=True, gc=False):
    """How one call ended. `output` is JSON bytes; `value()` decodes them."""

    record: CallRecord
    output: Any
    codec: MsgspecCodec

    @property
    def failure(self) -> Failure | None:
        return self.record.failure

    def value(self) -> Any:
        """The output as Python values; None when there is none."""
        return None if self.output is None else self.codec.load(self.output)

    def value_or_raise(self) -> Any:
        """The output as Python values; raises `CallFailed` when the call failed."""
        if self.record.failure is not None:
            raise CallFailed(self.record.failure, self.record.call_id)
        return None if self.output is None else self.codec.load(self.output)


class Calls:
    """The call pipeline of one host."""

    def __init__(
        self,
        catalog: Catalog,
        decisions: Mapping[str, Decision],
        call_log: CallLog,
        codec: MsgspecCodec,
        trace: Trace | None = None,
    ) -> None:
        self.catalog = catalog
        self.supervisors: dict[str, Supervisor] = {}
        """By plugin; empty while the host is not running."""
        self.invocations: Invocations | None = None
        """Runs the calls of exports that have an execution class."""
        self.find_unknown: FindUnknown | None = None
        """Starts plugins with unknown exports when a name is not found."""
        self._decisions = decisions
        self._call_log = call_log
        self._codec = codec
        self._trace = trace
        self._ids: list[str] = []
        """Drawn in batches: random bytes from the system cost as much as half a record."""

    def supervisor(self, plugin_id: str) -> Supervisor | None:
        """The supervisor of a plugin; None for an unknown id, or while the host is not running."""
        return self.supervisors.get(plugin_id)

    def admits(self, entry: Entry) -> bool:
        """Whether the plugin of this export may be started at all."""
        return policy.admit(entry.spec, self._decisions[entry.spec.id]) is None

    def with_input(self, input: Any, context: Mapping[str, Any], *, stream: bool = False) -> MakeOperation:
        """Operations with this input, which must be JSON, match the export's schema and not be too large."""

        def make_operation(entry: Entry) -> PluginOp | Failure:
            try:
                payload = self._codec.payload(input)
            except Unencodable as error:
                return Failure(Code.INVALID_INPUT, f"the input is not JSON: {error}")
            if len(payload) > MAX_INPUT:
                return Failure(Code.FRAME_TOO_LARGE, f"the input has more than {MAX_INPUT:,} bytes")
            refusal = entry.check_input(payload, self._codec)
            if refusal is not None:
                return refusal
            return operation(entry.export, msgspec.Raw(payload), self._codec, context, stream)

        return make_operation

    async def attempt(
        self,
        name: str,
        make_operation: MakeOperation,
        timeout: float | None = None,
        on_progress: Callable[[Any], None] | None = None,
        kind: str = "",
        request: InvocationRequest | None = None,
    ) -> CallResult:
        """One call, from name to record; a failure is a value here. `kind` distinguishes exports of one name."""
        if timeout is not None and not isinstance(timeout, int | float):
            raise TypeError(f"timeout is a number of seconds, such as 5 or 0.5, not {timeout!r}")
        started_at, began = time.time(), time.monotonic_ns()
        if self._trace is not None:
            self._trace("host.call")
            self._trace("catalog.resolve")
        entry = self.catalog.resolve(name, kind)
        output, failure = None, None
        try:
            if isinstance(entry, Failure) and entry.code == Code.NOT_FOUND and self.find_unknown is not None:
                entry = await self.find_unknown(name, timeout) or self.catalog.resolve(name, kind)
                timeout = None if timeout is None else max(0.0, timeout - (time.monotonic_ns() - began) / 1e9)
            started = self._start(entry, make_operation, timeout, on_progress, request)
            if isinstance(started, Failure):
                failure = started
            else:
                finished = await started
                output, failure = finished.value, finished.failure
        except Exception as error:
            failure = Failure(Code.INTERNAL, f"a bug in plugbay: {error!r}")
        except BaseException:
            failure = _cancelled(entry)
            raise
        finally:
            milliseconds = (time.monotonic_ns() - began) // 1000 / 1000
            record = self._record(name, entry, started_at, milliseconds, failure)
        return CallResult(record, output, self._codec)

    def tell(self, plugin_id: str, op: PluginOp) -> bool:
        """Send a notification to a plugin; False when it is not running: a notification starts no process."""
        supervisor = self.supervisors.get(plugin_id)
        return supervisor is not None and supervisor.notify(op)

    def with_parent(self, carrier: Mapping[str, Any]) -> AbstractContextManager[None]:
        """Calls inside belong to the trace that `carrier` names, if the host has a tracer."""
        return nullcontext()

    def new_trace(self) -> str:
        """A trace id for an invocation whose request has none."""
        return new_id("tr", os.urandom(ID_BYTES))

    def _start(
        self,
        entry: Entry | Failure,
        make_operation: MakeOperation,
        timeout: float | None,
        on_progress: Callable[[Any], None] | None,
        request: InvocationRequest | None,
    ) -> Started:
        """Authorize, make the operation, lease an instance, call it. Returns what to await, not awaited yet."""
        if isinstance(entry, Failure):
            return entry
        if entry.by_invocation:
            return self._invoke(entry, make_operation, timeout, on_progress, request)
        plugin_id = entry.spec.id
        if self._trace is not None:
            self._trace("policy.authorize")
        op = policy.authorize(entry.spec, entry.export, self._decisions[plugin_id]) or make_operation(entry)
        if isinstance(op, Failure):
            return op
        supervisor = self.supervisors.get(plugin_id)
        if supervisor is None:
            return Failure(Code.UNAVAILABLE, "the host is not running; start it, or use `async with`")
        wanted = _default_timeout(supervisor.binding.spec, op) if timeout is None else timeout
        seconds = min(wanted, LONGEST_CALL)
        lease = supervisor.try_lease()
        if lease is None:
            return self._call_with_lease(entry, make_operation, op, supervisor, Deadline(seconds), on_progress)
        return lease.link.call(op, seconds, on_progress, over=lease.release)

    def _invoke(
        self,
        entry: Entry,
        make_operation: MakeOperation,
        timeout: float | None,
        on_progress: Callable[[Any], None] | None,
        request: InvocationRequest | None,
    ) -> Started:
        """The same for an invocation: it may run with fewer permissions than its manifest requests."""
        plugin_id = entry.spec.id
        if self._trace is not None:
            self._trace("policy.authorize")
        op = policy.admit(entry.spec, self._decisions[plugin_id]) or make_operation(entry)
        if isinstance(op, Failure):
            return op
        assert self.invocations is not None
        granted = policy.effective(entry.spec, self._decisions[plugin_id])
        find = functools.partial(self.supervisors.get, plugin_id)
        return self.invocations.run(entry, op, find, granted, timeout, on_progress, request)

    async def _call_with_lease(
        self,
        entry: Entry,
        make_operation: MakeOperation,
        op: PluginOp | Failure,
        supervisor: Supervisor,
        deadline: Deadline,
        on_progress: Callable[[Any], None] | None,
    ) -> CallFinished:
        """Wait for an instance, or for one of this call's own, call it and conclude."""
        lease = await supervisor.lease(deadline)
        if isinstance(lease, Failure):
            return failed(lease)
        try:
            known = self.catalog.current(entry)
            if known is not entry:  # its greeting has changed the export
                op = known if isinstance(known, Failure) else make_operation(known)
            if isinstance(op, Failure):
                return failed(op)
            answer = await lease.link.call(op, deadline.left(), on_progress)
            return await lease.conclude(answer, deadline)
        finally:
            lease.release()

    def _record(
        self,
        name: str,
        entry: Entry | Failure,
        started_at: float,
        milliseconds: float,
        failure: Failure | None,
    ) -> CallRecord:
        if not self._ids:
            self._ids = call_ids(os.urandom(CALL_ID_BYTES * IDS_AT_ONCE))
        id = self._ids.pop()
        if isinstance(entry, Failure):
            record = CallRecord(id, "", "", "", name, started_at, milliseconds, failure)
        else:
            spec = entry.spec
            failure = failure and failure.with_detail(spec.id)
            record = CallRecord(
                id, spec.id, spec.version, spec.contract, entry.export.name, started_at, milliseconds, failure
            )
        self._call_log.finished(record)
        if self._trace is not None:
            self._trace("host.call.finished")
        return record


def _default_timeout(spec: PluginSpec, op: PluginOp) -> float:
    """The contract's timeout for this operation, else the one for any call."""
    if not spec.patience:
        return spec.timeouts.call
    name = "Chat.stream" if type(op) is Chat and op.stream else type(op).__name__
    return spec.patience.get(name, spec.timeouts.call)


def _cancelled(entry: Entry | Failure) -> Failure:
    """The failure of a cancelled call; some contracts report it as a timeout."""
    as_timeout = isinstance(entry, Entry) and entry.spec.cancelled_is_timeout
    return Failure(Code.TIMEOUT if as_timeout else Code.CANCELLED, "the caller cancelled the call")


@dataclass(frozen=True, slots=True)
class InvocationResult:
    """The result of `Host.invoke`; a failure is a value here."""

    call: CallResult
    records: tuple[InvocationRecord, ...]
    """One for each attempt, in order; none when the request was refused before the first."""

    @property
    def record(self) -> InvocationRecord | None:
        """The record of the last attempt."""
        return self.records[-1] if self.records else None

    @property
    def status(self) -> str:
        """One of the four terminal statuses."""
        status = None if self.record is None else self.record.status
        return status or self.call.record.status

    @property
    def failure(self) -> Failure | None:
        return self.call.failure

    def value(self) -> Any:
        """The result as Python values; None when there is none."""
        return self.call.value()

    def value_or_raise(self) -> Any:
        """The same; raises `CallFailed` when the invocation failed."""
        return self.call.value_or_raise()
