"""`Calls`: the pipeline of every call: resolve, authorize, validate, lease, call, conclude, record.

All calls of plugins go through `run`: the public API, hooks, channels, language models, vector backends. A call of an
export with an execution class is an invocation: `invocations` leases and calls, as often as its retry policy allows,
with a durable record of each attempt. Each call makes exactly one call record, however it ends. This is the hot path: a
call that needs no waiting awaits nothing but the link.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from plugbay.host.authorization import policy
from plugbay.host.authorization.policy import Decision
from plugbay.host.catalog.catalog import Catalog, Entry
from plugbay.host.catalog.operation import operation
from plugbay.host.catalog.plans import Plans
from plugbay.host.invocations.invocations import NOT_RUNNING, Invocations
from plugbay.host.nesting import CAUSE, Cause
from plugbay.host.ports import CallLog, CallRecord, InvocationRecord, Trace
from plugbay.host.request import CallRequest, CallResult, new_id
from plugbay.host.supervision.instance import Deadline
from plugbay.host.supervision.supervisor import Supervisor
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import CallFinished
from plugbay.model.ids import CALL_ID_BYTES, call_ids
from plugbay.model.operations import Chat
from plugbay.model.spec import PluginSpec
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import Unencodable

if TYPE_CHECKING:
    from plugbay.model.operations import PluginOp

    Started = Coroutine[Any, Any, CallFinished | Failure] | Coroutine[Any, Any, CallFinished] | Failure
    """The coroutine to await, or why there is none."""

    FindUnknown = Callable[[str, float | None], Coroutine[Any, Any, Failure | None]]
    """Given a name and a timeout: starts plugins that may have it. A `Failure` says why that was not possible."""

MAX_INPUT = 60 << 20
"""Bytes of one input: with its message, less than the 64 MiB that a plugin must be able to buffer."""

IDS_AT_ONCE = 64

RESULT = "result"
"""The detail of a failure with the result that the plugin answered with it."""

LONGEST_CALL = 3600.0
"""Seconds; the upper bound of every timeout."""


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
        self._plans = Plans(decisions)
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

    async def run(self, request: CallRequest) -> CallResult:
        """One call, from name to record; a failure is a value here."""
        name, timeout = request.name, request.timeout
        if timeout is not None and not isinstance(timeout, int | float):
            raise TypeError(f"timeout is a number of seconds, such as 5 or 0.5, not {timeout!r}")
        started_at, began = time.time(), time.monotonic_ns()
        if self._trace is not None:
            self._trace("host.call")
            self._trace("catalog.resolve")
        entry = self.catalog.resolve(name, request.kind)
        output, failure = None, None
        attempts: list[InvocationRecord] = []
        try:
            if isinstance(entry, Failure) and entry.code == Code.NOT_FOUND and self.find_unknown is not None:
                entry = await self.find_unknown(name, timeout) or self.catalog.resolve(name, request.kind)
                if timeout is not None:
                    left = max(0.0, timeout - (time.monotonic_ns() - began) / 1e9)
                    request = replace(request, timeout=left)
            started = entry if isinstance(entry, Failure) else self._start(request, entry, attempts)
            finished = started if isinstance(started, Failure) else await started
            if isinstance(finished, Failure):
                failure = finished
            else:
                output, failure = finished.value, finished.failure
            if failure is not None and RESULT in failure.detail:
                output = msgspec.Raw(self._codec.encode(failure.detail[RESULT]))
        except MemoryError:
            failure = Failure(Code.OVERLOADED, "the host has no memory left for this call", origin=Origin.SYSTEM)
        except Exception as error:
            failure = Failure(Code.INTERNAL, f"a bug in plugbay: {error!r}")
        except BaseException:
            failure = _cancelled(entry)
            raise
        finally:
            milliseconds = (time.monotonic_ns() - began) // 1000 / 1000
            record = self._record(name, entry, started_at, milliseconds, failure, attempts)
        return CallResult(record, output, self._codec, tuple(attempts))

    def operation(self, request: CallRequest, entry: Entry) -> PluginOp | Failure:
        """The operation for the input of a request, which must be JSON, match the schema and not be too large."""
        try:
            payload = self._codec.payload({} if request.input is None else request.input)
        except Unencodable as error:
            return Failure(Code.INVALID_INPUT, f"the input is not JSON: {error}")
        if len(payload) > MAX_INPUT:
            return Failure(Code.FRAME_TOO_LARGE, f"the input has more than {MAX_INPUT:,} bytes")
        refusal = entry.check_input(payload, self._codec)
        if refusal is not None:
            return refusal
        stream = request.on_progress is not None
        return operation(entry.export, msgspec.Raw(payload), self._codec, request.context, stream)

    def tell(self, plugin_id: str, op: PluginOp) -> bool:
        """Send a notification to a plugin; False when it is not running: a notification starts no process."""
        supervisor = self.supervisors.get(plugin_id)
        return supervisor is not None and supervisor.notify(op)

    def with_parent(self, carrier: Mapping[str, Any]) -> AbstractContextManager[None]:
        """Calls inside belong to the trace that `carrier` names, if the host has a tracer."""
        return nullcontext()

    def new_trace(self) -> str:
        """A trace id for an invocation whose request has none."""
        return new_id("tr")

    def _make_operation(self, request: CallRequest, entry: Entry) -> PluginOp | Failure:
        make = request.make_operation
        return self.operation(request, entry) if make is None else make(entry)

    def _start(self, request: CallRequest, entry: Entry, attempts: list[InvocationRecord]) -> Started:
        """Authorize, validate, lease, call. Returns what to await, not awaited yet."""
        if self._trace is not None:
            self._trace("policy.authorize")
        plan = self._plans.get(entry)
        cause = CAUSE.get()
        nested = None if cause is None else cause.nest()
        op = plan.refusal or (nested if isinstance(nested, Failure) else self._make_operation(request, entry))
        if isinstance(op, Failure):
            return op
        if entry.by_invocation:
            assert self.invocations is not None
            if cause is not None and cause.until is not None:
                left = cause.left() if request.timeout is None else min(request.timeout, cause.left())
                request = replace(request, timeout=left)
            find = functools.partial(self.supervisors.get, entry.spec.id)
            return self.invocations.run(request, plan, op, find, attempts)
        supervisor = self.supervisors.get(entry.spec.id)
        if supervisor is None:
            return Failure(Code.UNAVAILABLE, NOT_RUNNING)
        timeout, spec = request.timeout, supervisor.binding.spec
        if timeout is None:
            timeout = spec.timeouts.call if not spec.patience else _patience(spec, op)
        seconds = min(timeout, LONGEST_CALL)
        if isinstance(nested, Cause):
            return self._call_with_lease(request, entry, op, supervisor, Deadline(min(seconds, nested.left())), nested)
        lease = supervisor.try_lease()
        if lease is None:
            return self._call_with_lease(request, entry, op, supervisor, Deadline(seconds, request.queue_seconds))
        return lease.link.call(op, seconds, request.on_progress, over=lease.release)

    async def _call_with_lease(
        self,
        request: CallRequest,
        entry: Entry,
        op: PluginOp | Failure,
        supervisor: Supervisor,
        deadline: Deadline,
        cause: Cause | None = None,
    ) -> CallFinished | Failure:
        """Wait for an instance, or for one of this call's own, call it and conclude."""
        lease = await supervisor.lease(deadline)
        if isinstance(lease, Failure):
            return lease
        try:
            known = self.catalog.current(entry)
            if known is not entry:  # its greeting has changed the export
                op = known if isinstance(known, Failure) else self._make_operation(request, known)
            if isinstance(op, Failure):
                return op
            with nullcontext() if cause is None else lease.instance.nested(cause):
                answer = await lease.link.call(op, deadline.left(), request.on_progress)
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
        attempts: list[InvocationRecord],
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


def _patience(spec: PluginSpec, op: PluginOp) -> float:
    """The contract's timeout for this operation, else the one for any call."""
    name = "Chat.stream" if type(op) is Chat and op.stream else type(op).__name__
    return spec.patience.get(name, spec.timeouts.call)


def _cancelled(entry: Entry | Failure) -> Failure:
    """The failure of a cancelled call; some contracts report it as a timeout."""
    as_timeout = isinstance(entry, Entry) and entry.spec.cancelled_is_timeout
    return Failure(Code.TIMEOUT if as_timeout else Code.CANCELLED, "the caller cancelled the call")
