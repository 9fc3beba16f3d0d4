"""Facts on which all gateways of a database must agree: the first gateway writes them, the others compare."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store.statements import insert_new, upsert
from plugbay.store.tables import CLUSTER_SETTINGS


async def agree(tx: AsyncConnection, name: str, value: bytes) -> bytes:
    """The value that all gateways have; this one if there was none."""
    if await insert_new(tx, CLUSTER_SETTINGS, {"name": name, "value": value}):
        return value
    found = await tx.scalar(select(CLUSTER_SETTINGS.c.value).where(CLUSTER_SETTINGS.c.name == name))
    return value if found is None else bytes(found)


async def replace(tx: AsyncConnection, name: str, value: bytes) -> None:
    """Set another value, when no other gateway runs."""
    await upsert(tx, CLUSTER_SETTINGS, {"name": name, "value": value})
