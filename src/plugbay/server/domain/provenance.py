"""Which run, execution and event a plugin's request comes from.

Limits how deep work may be nested and how far events may trigger events, so a hook that starts a run whose end calls
the hook again terminates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from plugbay.server.domain.principal import Principal
from plugbay.server.domain.workers import Budgets
from plugbay.store import compactions, deliveries, events, harnesses, runs
from plugbay.store.database import Tx

MAX_EVENT_DEPTH = 4
"""Length of a chain of events; deliveries of later events are dropped."""


@dataclass(frozen=True, slots=True)
class Provenance:
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
