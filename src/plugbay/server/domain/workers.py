"""Requests between conversations and plugins, in both directions.

`Workers` finds and runs bound exports; `BoundWorkers` implements it with bindings and invocations, and tests replace
it. `find_provenance` names the run, execution and event behind a request that a plugin sends back, and `charge_budget`
charges it: nesting and chains of events are limited, so a hook that starts a run whose end calls the hook again
terminates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from plugbay.host.request import CallRequest, CallResult
from plugbay.model.errors import Failure, Outcome
from plugbay.server.domain.background import INTERNAL
from plugbay.server.domain.bindings import ACTIVE, Bindings, ResolvedBinding
from plugbay.server.domain.errors import GatewayError, stored_failure, unavailable
from plugbay.server.domain.invocations import Invocations
from plugbay.server.domain.principal import Principal
from plugbay.store import compactions, deliveries, events, harnesses, runs
from plugbay.store.database import Tx
from plugbay.store.failures import StoreUnavailable

INVALID_SEED = "compactor.invalid_seed"
"""The error code of a compactor whose output the host refused."""


class BoundExport(msgspec.Struct, frozen=True):
    """One bound export."""

    binding_id: str
    package_id: str
    export_id: str
    kind: str
    description: str = ""
    input_schema: Any = None
    facts: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """The table of its kind in the manifest: effect class, subscriptions, fidelity."""
    limits: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """The limits that its policies set on the work it starts."""

    @property
    def full_name(self) -> str:
        return f"{self.package_id}/{self.export_id}"

    @property
    def names(self) -> tuple[str, ...]:
        """The names under which requests may name it."""
        return self.binding_id, self.export_id, self.full_name


class Workers(Protocol):
    """Finds and runs bound exports."""

    async def serving(
        self, kind: str, org_id: str, project_id: str | None, key: str, event: str | None = None
    ) -> Sequence[BoundExport]:
        """The bound exports of a kind, selected for a key such as a session; for hooks: those subscribed to `event`."""
        ...

    async def bound(self, kind: str, org_id: str, project_id: str | None, binding_id: str) -> BoundExport | None:
        """An active binding of this kind at this scope; None if there is none."""
        ...

    async def do(self, request: CallRequest) -> CallResult:
        """Run an invocation; raises `GatewayError` if it was not started.

        When cancelled, returns only after the invocation has ended.
        """
        ...


def error_code(failure: Failure) -> str:
    """The plugin's own error code if it gave one, else the host's."""
    return str(failure.detail.get("plugin_code") or failure.code)


def is_inactive(refused: GatewayError) -> bool:
    """Whether work was refused because its binding is not active; otherwise it may work later."""
    return refused.code in ("binding.not_found", "binding.not_active")


class WorkOutcome(msgspec.Struct, frozen=True):
    """The end of a compaction or of a harness execution."""

    status: str
    value: dict[str, Any] | None = None
    """The value of a success."""
    error: dict[str, Any] | None = None
    invoked: CallResult | None = None
    """None if the work was refused or cut off."""
    refused: GatewayError | None = None


async def perform(workers: Workers, request: CallRequest) -> WorkOutcome:
    """Run an invocation; its failure and its refusal are outcomes too."""
    try:
        result = await workers.do(request)
    except GatewayError as refused:
        return replace(failed_outcome(refused.code, refused.message), refused=refused)
    failure = result.failure
    if failure is None:
        return WorkOutcome(Outcome.SUCCEEDED, result.value(), invoked=result)
    return WorkOutcome(result.status, error=_work_error(failure), invoked=result)


def _work_error(failure: Failure) -> dict[str, Any]:
    """Code and message, and as `detail` what the command line shows: exit code, cause, last lines of stderr."""
    error: dict[str, Any] = {"code": error_code(failure), "message": failure.message}
    if error["code"] == INVALID_SEED:
        error["breaches"] = failure.detail["breaches"]
    known = stored_failure(failure)["detail"]
    detail = {name: value for name, value in known.items() if name not in ("plugin_code", "breaches")}
    return {**error, "detail": detail} if detail else error


def failed_outcome(code: str, message: str, status: str = Outcome.FAILED) -> WorkOutcome:
    return WorkOutcome(status, error={"code": code, "message": message})


def cut_off_outcome(kind: str, reason: str) -> WorkOutcome:
    """The outcome of work that `BackgroundJobs` cut off for this reason."""
    if reason == INTERNAL:
        return failed_outcome(f"{kind}.internal", "a bug in plugbay; the server's log has the details")
    return failed_outcome(f"{kind}.cancelled", reason, Outcome.CANCELLED)


class BoundWorkers:
    """`Workers` over the bindings of one gateway."""

    def __init__(self, bindings: Bindings, invocations: Invocations) -> None:
        self._bindings = bindings
        self._invocations = invocations

    async def serving(
        self, kind: str, org_id: str, project_id: str | None, key: str, event: str | None = None
    ) -> Sequence[BoundExport]:
        found = await self._bindings.serving(org_id, project_id, kind, key)
        wanted = [each for each in found if event is None or event in each.export.facts.get("subscribes_to", ())]
        return [_bound(each) for each in wanted]

    async def bound(self, kind: str, org_id: str, project_id: str | None, binding_id: str) -> BoundExport | None:
        found = await self._bindings.bound(binding_id)
        if found is None or found.row.org_id != org_id or found.row.project_id not in (None, project_id):
            return None
        if found.row.status != ACTIVE or found.row.export_kind != kind:
            return None
        return _bound(found)

    async def do(self, request: CallRequest) -> CallResult:
        try:
            return await self._invocations.invoke(request)
        except StoreUnavailable as error:
            raise unavailable("store.unavailable", str(error)) from None


def _bound(found: ResolvedBinding) -> BoundExport:
    export = found.export
    return BoundExport(
        binding_id=found.row.id,
        package_id=found.row.package_id,
        export_id=found.row.export_id,
        kind=export.kind,
        description=export.description,
        input_schema=export.input_schema,
        facts=export.facts,
        limits=found.policy.limits(),
    )


# Requests of plugins.

MAX_EVENT_DEPTH = 4
"""Length of a chain of events; deliveries of later events are dropped."""


class Budgets(Protocol):
    """Budgets of plugins with delegated tokens."""

    async def spend(self, principal: Principal, what: Literal["child_run", "compaction"], *, depth: int = 1) -> None:
        """Spend one unit of the budget; raises `policy.limit_exceeded`. People have no limits."""
        ...


class Provenance(msgspec.Struct, frozen=True):
    """The origin of a request. All empty for a person's request."""

    events: int = 0
    """Length of the chain of events that led here."""
    depth: int = 0
    """Nesting depth in runs and executions."""
    run_id: str | None = None
    execution_id: str | None = None
    """The execution of a harness."""
    trace_id: str | None = None


async def find_provenance(tx: Tx, caller: Principal) -> Provenance:
    """The origin of a caller's request."""
    work, trace = caller.claims.get("execution_id"), caller.claims.get("trace_id")
    if caller.kind != "delegated" or work is None:
        return Provenance()
    of_kind = {"hook": _of_delivery, "harness": _of_execution, "tool": _of_tool, "compactor": _of_compaction}
    find = of_kind.get(str(caller.claims.get("export_kind")))
    found = None if find is None else await find(tx, work)
    found = found or Provenance(depth=1)
    return Provenance(found.events, found.depth, found.run_id, found.execution_id, trace)


async def charge_budget(
    tx: Tx, budgets: Budgets, caller: Principal, cause: Provenance, what: Literal["child_run", "compaction"], depth: int
) -> None:
    """Charge a plugin for starting work at this depth; raises `policy.limit_exceeded`.

    Work started by tools of a harness's runs is charged to the harness, so its limits cannot be bypassed.
    """
    execution = None if cause.execution_id is None else await harnesses.find(tx, cause.execution_id)
    if execution is not None:
        claims = {**caller.claims, "execution_id": execution.id, "policy": execution.policy}
        caller, depth = replace(caller, claims=claims), depth - execution.depth
    await budgets.spend(caller, what, depth=depth)


class NamedTool(Protocol):
    """A bound tool."""

    @property
    def package_id(self) -> str: ...
    @property
    def export_id(self) -> str: ...


Tool = TypeVar("Tool", bound=NamedTool)


async def given_tools(tx: Tx, caller: Principal, tools: Sequence[Tool]) -> Sequence[Tool]:
    """Those of these tools that the caller may use: for a harness and the tools of its runs, those in its policy."""
    cause = await find_provenance(tx, caller)
    execution = None if cause.execution_id is None else await harnesses.find(tx, cause.execution_id)
    names = None if execution is None else execution.policy.get("tools")
    return tools if names is None else [tool for tool in tools if f"{tool.package_id}/{tool.export_id}" in names]


async def _of_delivery(tx: Tx, id: str) -> Provenance | None:
    delivery = await deliveries.find(tx, id)
    event = None if delivery is None else await events.find(tx, delivery.event_id)
    return None if event is None else Provenance(event.cause_depth, 1, event.run_id)


async def _of_execution(tx: Tx, id: str) -> Provenance | None:
    execution = await harnesses.find(tx, id)
    return None if execution is None else Provenance(execution.cause_depth, execution.depth + 1, None, id)


async def _of_tool(tx: Tx, id: str) -> Provenance | None:
    tool = await runs.find_tool(tx, id)
    run = None if tool is None else await runs.find(tx, tool.run_id)
    return None if run is None else Provenance(run.cause_depth, run.depth + 1, run.id, run.execution_id)


async def _of_compaction(tx: Tx, id: str) -> Provenance | None:
    compaction = await compactions.find(tx, id)
    return None if compaction is None else Provenance(compaction.cause_depth, 1, compaction.created_by_run_id)
