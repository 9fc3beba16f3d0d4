"""Records of all ages and states for retention tests, and which of them are deletable, computed without SQL."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from msgspec.structs import asdict, replace
from sqlalchemy import insert, select

from plugbay.host.ports import CallRecord
from plugbay.store import audit, calls, rows
from plugbay.store.database import Tx
from plugbay.store.deliveries import Attempt
from plugbay.store.retention import KINDS, Cutoffs
from plugbay.store.tables import (
    CHAINS,
    COMPACTIONS,
    DELIVERIES,
    DELIVERY_ATTEMPTS,
    EVENTS,
    HARNESS_EXECUTIONS,
    IDEMPOTENCY,
    INVOCATIONS,
    JOURNEYS,
    RUNS,
    SESSIONS,
    SPENDING,
    TOKENS,
)
from tests.store.conversing_rows import chain, compaction, delivery, event, execution, run_row, session
from tests.store.test_audit import ENTRY
from tests.store.test_invocations import record

CUTOFFS: Cutoffs = {
    "calls": 50.0,
    "deliveries": 60.0,
    "dead_letters": 20.0,
    "events": 40.0,
    "invocations": 70.0,
    "spending": 70.0,
    "audit": 30.0,
    "answers": 80.0,
    "tokens": 10.0,
    "journeys": 50.0,
}

MOMENTS = range(0, 101, 5)
"""Ages, including exactly those of the cutoffs."""

STATUSES = ("pending", "delivering", "delivered", "failed", "dead_letter", "dropped")

NUMBER = 60
"""Records per kind: enough for every combination."""


async def insert_all(tx: Tx, chance: random.Random) -> None:
    """Records of every kind, of any age and state, with references between them."""

    def moment() -> float:
        return float(chance.choice(MOMENTS))

    await rows.insert(tx, SESSIONS, session("sess_1"))
    await rows.insert(tx, CHAINS, chain("ch_1"))
    await calls.insert(tx, [CallRecord(f"call_{n}", "p", "1", "rune", "t", moment(), 1.0, None) for n in range(NUMBER)])
    for number in range(NUMBER):
        await audit.append(tx, [replace(ENTRY, id=f"aud_{number}", at=moment(), org_id=f"org_{number}")])
        await insert_invocation(tx, number, moment(), chance.choice([None, moment()]))
        await rows.insert(tx, EVENTS, event(f"evt_{number}", occurred_at=moment()))
    for number in range(NUMBER):
        status = chance.choice(STATUSES)
        completed = moment() if status in STATUSES[2:] else None
        named = f"evt_{chance.randrange(NUMBER)}"
        await insert_delivery(tx, number, named, status, completed, chance.choice([None, f"inv_{number}"]))
    for number in range(0, NUMBER, 7):
        by = {"invocation_id": f"inv_{number}"}
        await rows.insert(tx, RUNS, run_row(f"run_{number}", status="completed", completed_at=1.0, **by))
        await rows.insert(
            tx, COMPACTIONS, compaction(f"cmp_{number}", status="succeeded", invocation_id=f"inv_{number + 1}")
        )
    for number in range(2, NUMBER, 3):
        await rows.insert(tx, HARNESS_EXECUTIONS, execution(f"exec_{number}", status="retryable_failure"))
    await _insert_short_lived(tx, chance)


async def _insert_short_lived(tx: Tx, chance: random.Random) -> None:
    for number in range(NUMBER):
        at = float(chance.choice(MOMENTS))
        spent = {"org_id": "org_1", "execution_id": f"exec_{number + 3}", "what": "child_run", "spent": 1}
        await tx.execute(insert(SPENDING).values(**spent, updated_at=at))
        await tx.execute(insert(JOURNEYS).values(key=f"key_{number}", updated_at=at))
        asked = {
            "key": bytes([number]) * 32,
            "digest": b"d" * 32,
            "state": chance.choice(["running", "done", "unknown"]),
        }
        await tx.execute(insert(IDEMPOTENCY).values(**asked, created_at=0.0, expires_at=at))
        token = {"digest": bytes([number]) * 32, "org_id": "org_1", "execution_id": "exec_1", "claims": {}}
        whose = {"invocation_id": f"inv_{number}", "issued_at": 0.0, "expires_at": at}
        await tx.execute(insert(TOKENS).values(**token, **whose))


async def insert_invocation(tx: Tx, number: int, started: float, ended: float | None) -> None:
    """An invocation, open or ended."""
    values = asdict(record(number, execution_id=f"exec_{number}"))
    id, status = values.pop("invocation_id"), None if ended is None else "succeeded"
    times = {"started_at": started, "ended_at": None if ended is None else max(started, ended)}
    await tx.execute(insert(INVOCATIONS).values(**{**values, **times, "id": id, "status": status}))


async def insert_delivery(
    tx: Tx, number: int, event_id: str, status: str, completed: float | None, invocation_id: str | None = None
) -> None:
    """A delivery with one attempt."""
    ended = {"status": status, "completed_at": completed, "attempts": 1}
    await rows.insert(tx, DELIVERIES, delivery(f"del_{number}", event_id=event_id, **ended))
    attempt = Attempt(
        delivery_id=f"del_{number}",
        attempt=1,
        outcome=None,
        error_code=None,
        invocation_id=invocation_id,
        started_at=0.0,
        ended_at=None,
    )
    await rows.insert(tx, DELIVERY_ATTEMPTS, attempt)


Rows = dict[str, list[Any]]
"""All rows by table."""


async def everything(tx: Tx) -> Rows:
    """All rows of tables that retention deletes from, or that refer to them."""
    tables = {kind.table for kind in KINDS.values()} | {DELIVERY_ATTEMPTS, RUNS, COMPACTIONS, HARNESS_EXECUTIONS}
    return {table.name: list((await tx.execute(select(table))).all()) for table in tables}


def expected_gone(before: Rows, cutoffs: Cutoffs) -> dict[str, int]:
    """How many records of each kind are deletable."""

    def old(at: float | None, kind: str) -> bool:
        cutoff = cutoffs[kind]
        return cutoff is not None and at is not None and at < cutoff

    def gone(table: str, kind: str, at: str) -> int:
        return sum(old(getattr(row, at), kind) for row in before[table])

    told = {
        row.id
        for row in before["deliveries"]
        if (row.status in ("delivered", "failed", "dropped") and old(row.completed_at, "deliveries"))
        or (row.status == "dead_letter" and old(row.completed_at, "dead_letters"))
    }
    dead = {row.id for row in before["deliveries"] if row.id in told and row.status == "dead_letter"}
    awaited = {row.event_id for row in before["deliveries"] if row.id not in told}
    named = {row.invocation_id for row in (*before["runs"], *before["compactions"])} | {
        row.invocation_id for row in before["delivery_attempts"] if row.delivery_id not in told
    }
    invoked = {
        row.id: row.execution_id
        for row in before["plugin_invocations"]
        if row.status
        and old(row.started_at, "invocations")
        and old(row.ended_at, "invocations")
        and row.id not in named
    }
    kept = [row for row in before["plugin_invocations"] if row.id not in invoked]
    at_work = {row.execution_id for row in kept} | {row.id for row in before["harness_executions"]}
    return {
        "calls": gone("calls", "calls", "started_at"),
        "deliveries": len(told - dead),
        "dead_letters": len(dead),
        "events": sum(old(row.occurred_at, "events") and row.id not in awaited for row in before["events"]),
        "invocations": len(invoked),
        "spending": _count(
            old(row.updated_at, "spending") and row.execution_id not in at_work for row in before["plugin_spending"]
        ),
        "audit": gone("audit", "audit", "at"),
        "answers": _count(row.state != "running" and old(row.expires_at, "answers") for row in before["idempotency"]),
        "tokens": _count(
            old(row.expires_at, "tokens") and row.invocation_id not in invoked for row in before["plugin_tokens"]
        ),
        "journeys": gone("plugin_journeys", "journeys", "updated_at"),
    }


def _count(conditions: Iterable[bool]) -> int:
    return sum(conditions)
