"""`CallRequest` and `CallResult`: one call, from its caller to its record; the same for plain and recorded calls.

A recorded call (an invocation) runs for an org, under the binding of its export, with ids that its plugin sees. Ids
come from callers and end up in paths and URLs: `request_problem` must check a request before one is used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from plugbay.host.ports import DEFAULT_ORG, CallRecord, InvocationRecord
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.guarded import Guarded
from plugbay.wire.fast_json import MsgspecCodec

if TYPE_CHECKING:
    from plugbay.host.catalog.catalog import Entry
    from plugbay.model.operations import PluginOp

    MakeOperation = Callable[[Entry], PluginOp | Failure]
    """Makes the operation for an export as it is known now; a `Failure` when that is not possible."""

MAX_ID = 200
"""Characters of an id that a caller supplies."""

IDS = ("org_id", "project_id", "session_id", "chain_id", "run_id", "trace_id", "execution_id")

ID_BYTES = 10
"""80 random bits."""

_ALIASES = {"tool_execution_id": "execution_id", "delivery_id": "execution_id", "compaction_id": "execution_id"}
_ID = re.compile(rf"(?!\.\.?$)[^/:\\ ]{{1,{MAX_ID}}}")


class Policy(msgspec.Struct, frozen=True):
    """The restrictions of a binding; None restricts nothing."""

    timeout_ms: int | None = None
    network: str | None = None
    gateway_api_scopes: tuple[str, ...] | None = None
    execution_class: str | None = None
    max_concurrency: int | None = None
    filesystem: str | None = None
    secret_slots: tuple[str, ...] | None = None
    limits: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Limits on the work that a plugin starts with its token: max_depth, max_child_runs, allow_compaction."""

    def __hash__(self) -> int:
        """A policy is a part of a key, and the mapping of limits has no hash."""
        return hash((self.network, self.filesystem, self.execution_class, self.secret_slots))


class ExportBinding(Guarded, msgspec.Struct, frozen=True):
    """One export attached to an org or a project. Secrets are resolved values here."""

    HIDDEN = ("secrets",)
    binding_id: str | None = None
    config: Mapping[str, Any] = msgspec.field(default_factory=dict)
    secrets: Mapping[str, str] = msgspec.field(default_factory=dict)
    policy: Policy = msgspec.field(default_factory=Policy)
    org_id: str = DEFAULT_ORG
    project_id: str | None = None


class CallRequest(msgspec.Struct, frozen=True):
    """One call of an export by its name. The fields from `org_id` on are for recorded calls.

    Ids that are missing are null for the plugin, or generated. `execution_id` is the same over all attempts: the
    tool_execution_id, delivery_id, compaction_id or execution_id of the four kinds.
    """

    name: str = ""
    """Empty where a gateway finds the export by its `binding_id`."""
    input: Any = None
    """None: an empty object."""
    kind: str = ""
    """Distinguishes exports of one name."""
    timeout: float | None = None
    """Seconds, for all attempts together."""
    on_progress: Callable[[Any], None] | None = None
    context: Mapping[str, Any] = {}
    make_operation: MakeOperation | None = None
    """Makes the operation; None: it is made from the input, which must match the schema of the export."""
    org_id: str | None = None
    project_id: str | None = None
    session_id: str | None = None
    chain_id: str | None = None
    run_id: str | None = None
    trace_id: str | None = None
    execution_id: str | None = None
    attempt: int = 1
    """From 1; more where the caller tried the same execution before, as with the delivery of a hook."""
    scopes: Collection[str] | None = None
    """Gateway scopes the caller has itself; None: it does not narrow them."""
    binding: ExportBinding | None = None
    """None: as the operator bound the export in plugbay.toml."""
    binding_id: str | None = None
    """For a gateway: the binding to use; None: the one that serves the export."""
    on_opened: Callable[[InvocationRecord], None] | None = None
    """Called with the record of each attempt when it is open, before a process is started. Must not raise."""
    on_ended: Callable[[InvocationRecord, msgspec.Raw | None, Failure | None], None] | None = None
    """Called with the final record of each attempt, its result as JSON and its failure, before the record is closed.
    Must not raise."""
    stays: bool = False
    """Whether a cancelled caller waits until the cancelled execution has ended, instead of returning at once."""
    queue_seconds: float | None = None
    """Seconds that it may wait for its turn: it is refused as `overloaded` if it would wait longer. None: until its
    timeout."""


def with_ids_of_context(request: CallRequest) -> CallRequest | Failure:
    """The request with the ids in the `context` of a plain call, and the `attempt` of a delivery."""
    given = {_ALIASES.get(name, name): value for name, value in request.context.items() if value is not None}
    unknown = next((name for name in given if name not in (*IDS, "attempt")), None)
    if unknown is not None:
        return _invalid_field(unknown, f"is not one of {', '.join((*IDS, *_ALIASES, 'attempt'))}")
    return replace(request, **given) if given else request


def request_problem(request: CallRequest) -> Failure | None:
    """Why the ids of a request cannot be used."""
    if type(request.attempt) is not int or request.attempt < 1:
        return _invalid_field("attempt", "must be a whole number from 1")
    for name in IDS:
        value = getattr(request, name)
        if value is not None and (not isinstance(value, str) or not _ID.fullmatch(value) or not value.isprintable()):
            return _invalid_field(name, id_problem(value) or "")
    return None


def id_problem(value: Any) -> str | None:
    """Why a value cannot be an id: ids are used in paths and URLs."""
    if not isinstance(value, str) or not value or len(value) > MAX_ID:
        return f"must be a text of 1 to {MAX_ID} characters"
    if not _ID.fullmatch(value) or not value.isprintable():
        return "must have no slash, colon, space or control character"
    return None


def new_id(prefix: str) -> str:
    """`inv_`, `tr_` and the like, with random hex digits."""
    return f"{prefix}_{os.urandom(ID_BYTES).hex()}"


def _invalid_field(name: str, why: str) -> Failure:
    return Failure(Code.INVALID_INPUT, f"the context cannot be used: {name} {why}", detail={"path": f"context.{name}"})


class CallResult(msgspec.Struct, frozen=True, gc=False):
    """How one call ended. `output` is JSON bytes; `value()` decodes them. A failed call may have an output too: the
    result that the plugin answered with its failure."""

    record: CallRecord
    output: Any
    codec: MsgspecCodec
    invocations: tuple[InvocationRecord, ...] = ()
    """Of a recorded call: the record of each attempt, in order; none when it was refused before the first."""

    @property
    def invocation(self) -> InvocationRecord | None:
        """The record of the last attempt."""
        return self.invocations[-1] if self.invocations else None

    @property
    def status(self) -> str:
        """One of the four terminal statuses."""
        status = self.invocations[-1].status if self.invocations else None
        return status or self.record.status

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
