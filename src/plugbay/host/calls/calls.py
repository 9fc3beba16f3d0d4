"""`Calls`: the one page that tells the story of a call — resolve, authorize, lease, ask, conclude, record.

Owns the order of these steps and the record of how they ended; every step is somebody else's. Whoever wants something
from a plugin comes through here: the public API, hooks, channels, language models, vector backends.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import msgspec

from plugbay.host.authorization import policy
from plugbay.host.authorization.policy import Decision
from plugbay.host.catalog.catalog import Catalog, Entry
from plugbay.host.catalog.operation import operation
from plugbay.host.invocations.context import ID_BYTES, Order, new_id
from plugbay.host.invocations.invocations import Invocations
from plugbay.host.ports import CallLog, CallRecord, Trace
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

    Ask = Callable[[Entry], PluginOp | Failure]
    """What to ask the plugin, given what is known of its export; a `Failure` when that is not possible."""

    Begun = Coroutine[Any, Any, CallFinished] | Failure
    """What to wait for, or why there is nothing."""

    Meet = Callable[[str, float | None], Coroutine[Any, Any, Failure | None]]
    """Given a name and the seconds there are: start who may offer it. A `Failure` says why that could not be."""

MAX_INPUT = 60 << 20
"""Bytes of one input: with the message around it, less than the 64 MiB a plugin must be ready to buffer."""

IDS_AT_ONCE = 64

LONGEST_CALL = 3600.0
"""Seconds; no caller may wait longer, whatever it asks for."""


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
    """Everything a call passes through between whoever asks and the child that answers."""

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
        """Who looks after each plugin; empty while the host is not running."""
        self.invocations: Invocations | None = None
        """Who has the work done of exports that say how it is to be done."""
        self.meet: Meet | None = None
        """Makes the plugins known that may have what nobody knows by its name."""
        self._decisions = decisions
        self._call_log = call_log
        self._codec = codec
        self._trace = trace
        self._ids: list[str] = []
        """Drawn ahead: asking the system for random bytes costs as much as half a record."""

    def admits(self, entry: Entry) -> bool:
        """Whether the plugin of this export may be started at all."""
        return policy.admit(entry.spec, self._decisions[entry.spec.id]) is None

    def with_input(self, input: Any, context: Mapping[str, Any], *, stream: bool = False) -> Ask:
        """Ask for an export with an input: it must be JSON, fit the export's schema, and not be too large."""

        def ask(entry: Entry) -> PluginOp | Failure:
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

        return ask

    async def attempt(
        self,
        name: str,
        ask: Ask,
        timeout: float | None = None,
        on_progress: Callable[[Any], None] | None = None,
        kind: str = "",
        order: Order | None = None,
    ) -> CallResult:
        """One call, from its name to its record; a failure is a value here. `kind` tells exports of one name apart."""
        if timeout is not None and not isinstance(timeout, int | float):
            raise TypeError(f"timeout is a number of seconds, such as 5 or 0.5, not {timeout!r}")
        started_at, began = time.time(), time.monotonic_ns()
        if self._trace is not None:
            self._trace("host.call")
            self._trace("catalog.resolve")
        entry = self.catalog.resolve(name, kind)
        output, failure = None, None
        try:
            if isinstance(entry, Failure) and entry.code == Code.NOT_FOUND and self.meet is not None:
                entry = await self.meet(name, timeout) or self.catalog.resolve(name, kind)
                timeout = None if timeout is None else max(0.0, timeout - (time.monotonic_ns() - began) / 1e9)
            begun = self._begin(entry, ask, timeout, on_progress, order)
            if isinstance(begun, Failure):
                failure = begun
            else:
                finished = await begun
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
        """Tell a plugin something; False when it is not running, because nothing is started for this."""
        supervisor = self.supervisors.get(plugin_id)
        return supervisor is not None and supervisor.notify(op)

    def following(self, carrier: Mapping[str, Any]) -> AbstractContextManager[None]:
        """While this lasts, calls belong to the trace that `carrier` names, where anybody keeps traces."""
        return nullcontext()

    def new_trace(self) -> str:
        """The id of a trace, for work of which nobody says what it belongs to."""
        return new_id("tr", os.urandom(ID_BYTES))

    def _begin(
        self,
        entry: Entry | Failure,
        ask: Ask,
        timeout: float | None,
        on_progress: Callable[[Any], None] | None,
        order: Order | None,
    ) -> Begun:
        """The story: judge what is asked, lease a child, ask it. Whatever has to be waited for comes back unawaited."""
        if isinstance(entry, Failure):
            return entry
        if entry.by_invocation:
            return self._invoke(entry, ask, timeout, on_progress, order)
        plugin_id = entry.spec.id
        if self._trace is not None:
            self._trace("policy.authorize")
        op = policy.authorize(entry.spec, entry.export, self._decisions[plugin_id]) or ask(entry)
        if isinstance(op, Failure):
            return op
        supervisor = self.supervisors.get(plugin_id)
        if supervisor is None:
            return Failure(Code.UNAVAILABLE, "the host is not running; start it, or use `async with`")
        patience = _patience(supervisor.binding.spec, op) if timeout is None else timeout
        seconds = min(patience, LONGEST_CALL)
        lease = supervisor.try_lease()
        if lease is None:
            return self._ask_later(entry, ask, op, supervisor, Deadline(seconds), on_progress)
        return lease.link.call(op, seconds, on_progress, over=lease.release)

    def _invoke(
        self,
        entry: Entry,
        ask: Ask,
        timeout: float | None,
        on_progress: Callable[[Any], None] | None,
        order: Order | None,
    ) -> Begun:
        """The story of work that is done in invocations: those go on with less than was requested."""
        plugin_id = entry.spec.id
        if self._trace is not None:
            self._trace("policy.authorize")
        op = policy.admit(entry.spec, self._decisions[plugin_id]) or ask(entry)
        if isinstance(op, Failure):
            return op
        assert self.invocations is not None
        granted = policy.effective(entry.spec, self._decisions[plugin_id])
        find = functools.partial(self.supervisors.get, plugin_id)
        return self.invocations.run(entry, op, find, granted, timeout, on_progress, order)

    async def _ask_later(
        self,
        entry: Entry,
        ask: Ask,
        op: PluginOp | Failure,
        supervisor: Supervisor,
        deadline: Deadline,
        on_progress: Callable[[Any], None] | None,
    ) -> CallFinished:
        """Ask a child that has to be waited for, or that serves this call alone, and see it off."""
        lease = await supervisor.lease(deadline)
        if isinstance(lease, Failure):
            return CallFinished(0, None, lease)
        try:
            known = self.catalog.current(entry)
            if known is not entry:  # its greeting has just told us more about it
                op = known if isinstance(known, Failure) else ask(known)
            if isinstance(op, Failure):
                return CallFinished(0, None, op)
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


def _patience(spec: PluginSpec, op: PluginOp) -> float:
    """Seconds for this operation where the contract has its own, else those for any call."""
    if not spec.patience:
        return spec.timeouts.call
    name = "Chat.stream" if type(op) is Chat and op.stream else type(op).__name__
    return spec.patience.get(name, spec.timeouts.call)


def _cancelled(entry: Entry | Failure) -> Failure:
    """How a call ends whose caller went away: contracts differ in the word for it."""
    as_timeout = isinstance(entry, Entry) and entry.spec.cancelled_is_timeout
    return Failure(Code.TIMEOUT if as_timeout else Code.CANCELLED, "the caller cancelled the call")
