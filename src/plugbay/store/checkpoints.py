"""Checkpoints of harness executions, for resuming after a crash."""

from __future__ import annotations

from msgspec.structs import asdict
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.host.ports import ResumeState
from plugbay.store.statements import upsert
from plugbay.store.tables import JOURNEYS


async def save(tx: AsyncConnection, key: str, journey: ResumeState, at: float) -> None:
    """Store the latest checkpoint."""
    values = asdict(journey)
    await upsert(tx, JOURNEYS, {"key": key, **values, "updated_at": at})


async def load(tx: AsyncConnection, key: str) -> ResumeState | None:
    """The latest checkpoint; None when there is none."""
    columns = (JOURNEYS.c.trigger, JOURNEYS.c.checkpoint, JOURNEYS.c.summary, JOURNEYS.c.attempts)
    found = (await tx.execute(select(*columns).where(JOURNEYS.c.key == key))).first()
    return None if found is None else ResumeState(*found)
