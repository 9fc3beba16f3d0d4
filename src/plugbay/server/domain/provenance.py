"""What led to a request: the run, the execution, the event behind the plugin that makes it.

Owns how deep work may be nested and how far events may lead to events. Everything a plugin does with its token hangs on
what the plugin was called for, so a hook that starts a run whose end calls the hook again comes to an end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from plugbay.server.domain.principal import Principal
from plugbay.server.domain.workers import Budgets
from plugbay.store import compactions, deliveries, events, harnesses, runs
from plugbay.store.database import Tx

MAX_CAUSES = 4
"""Events that may follow from one another; what hooks would be told of beyond that, they are not told."""


@dataclass(frozen=True, slots=True)
class Cause:
    """What a request hangs on. All empty for one that a person makes."""

    events: int = 0
    """Events that led here."""
    depth: int = 0
    """Runs and executions that it is nested in."""
    run_id: str | None = None
    execution_id: str | None = None
    """The execution of a harness."""
    trace_id: str | None = None


async def cause_of(tx: Tx, caller: Principal) -> Cause:
    """What a caller's request hangs on."""
    work, trace = caller.claims.get("execution_id"), caller.claims.get("trace_id")
    if caller.kind != "delegated" or work is None:
        return Cause()
    of_kind = {"hook": _delivery, "harness": _execution, "tool": _tool, "compactor": _compaction}
    find = of_kind.get(str(caller.claims.get("export_kind")))
    found = None if find is None else await find(tx, work)
    found = found or Cause(depth=1)
    return Cause(found.events, found.depth, found.run_id, found.execution_id, trace)


async def spend(
    tx: Tx, budgets: Budgets, caller: Principal, cause: Cause, what: Literal["child_run", "compaction"], depth: int
) -> None:
    """Charge what a plugin starts, so many steps below all it is nested in; raises `policy.limit_exceeded`.

    What the tools of a harness's runs start is charged to the harness: nobody gets round its limits by a detour.
    """
    execution = None if cause.execution_id is None else await harnesses.find(tx, cause.execution_id)
    if execution is not None:
        claims = {**caller.claims, "execution_id": execution.id, "policy": execution.policy}
        caller, depth = replace(caller, claims=claims), depth - execution.depth
    await budgets.spend(caller, what, depth=depth)


async def _delivery(tx: Tx, id: str) -> Cause | None:
    delivery = await deliveries.find(tx, id)
    event = None if delivery is None else await events.find(tx, delivery.event_id)
    return None if event is None else Cause(event.cause_depth, 1, event.run_id)


async def _execution(tx: Tx, id: str) -> Cause | None:
    execution = await harnesses.find(tx, id)
    return None if execution is None else Cause(execution.cause_depth, execution.depth + 1, None, id)


async def _tool(tx: Tx, id: str) -> Cause | None:
    tool = await runs.find_tool(tx, id)
    run = None if tool is None else await runs.find(tx, tool.run_id)
    return None if run is None else Cause(run.cause_depth, run.depth + 1, run.id, run.execution_id)


async def _compaction(tx: Tx, id: str) -> Cause | None:
    compaction = await compactions.find(tx, id)
    return None if compaction is None else Cause(compaction.cause_depth, 1, compaction.created_by_run_id)
