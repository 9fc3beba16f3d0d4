"""Chains and their blocks. Blocks are never changed or deleted here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store import rows
from plugbay.store.pages import Page, Part
from plugbay.store.rows import Tenant
from plugbay.store.tables import BLOCKS, CHAINS


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """One chain, without its blocks."""

    id: str
    org_id: str
    project_id: str | None
    session_id: str
    status: str
    chain_version: int
    block_count: int
    token_estimate: int
    digest: str
    parent_chain_id: str | None
    forked_from_run_id: str | None
    created_by_compaction_id: str | None
    defaults: dict[str, Any]
    metadata: dict[str, Any]
    created_at: float
    updated_at: float


class StoredBlock(msgspec.Struct, frozen=True, kw_only=True):
    """One block; `body` is its JSON."""

    chain_id: str
    sequence: int
    id: str
    kind: str
    run_id: str | None
    body: bytes
    digest: str
    created_at: float


async def insert(tx: AsyncConnection, chain: Chain) -> None:
    await rows.insert(tx, CHAINS, chain)


async def find(tx: AsyncConnection, id: str, *, lock: bool = False) -> Chain | None:
    return await rows.find(tx, CHAINS, Chain, id, lock=lock)


async def by_compaction(tx: AsyncConnection, compaction_id: str) -> Chain | None:
    """The chain that a compaction produced."""
    found = await rows.find_all(tx, select(CHAINS).where(CHAINS.c.created_by_compaction_id == compaction_id), Chain)
    return found[0] if found else None


async def change(tx: AsyncConnection, id: str, *only_if: ColumnElement[bool], **values: Any) -> bool:
    return await rows.change(tx, CHAINS, id, *only_if, **values)


SEARCHED = ("id", "session_id")


async def page(
    tx: AsyncConnection,
    part: Page,
    tenant: Tenant,
    *,
    only: frozenset[str] | None = None,
    search: str | None = None,
    **filters: str | None,
) -> Part[Chain]:
    """A page of the chains of a tenant; `filters` are column values, `only` by session, `search` in `SEARCHED`."""
    also = () if only is None else (CHAINS.c.session_id.in_(only),)
    return await rows.page(tx, CHAINS, Chain, part, tenant, filters, also, search=search, searched=SEARCHED)


async def append(tx: AsyncConnection, blocks: Sequence[StoredBlock]) -> None:
    """Insert blocks; raises `IntegrityError` when a sequence number exists already."""
    await rows.insert(tx, BLOCKS, *blocks)


async def blocks(
    tx: AsyncConnection, chain_id: str, *, after: int = 0, through: int | None = None, limit: int | None = None
) -> list[StoredBlock]:
    """Blocks of a chain in order, after one sequence number, up to another."""
    query = select(BLOCKS).where(BLOCKS.c.chain_id == chain_id, BLOCKS.c.sequence > after)
    query = query if through is None else query.where(BLOCKS.c.sequence <= through)
    return await rows.find_all(tx, query.order_by(BLOCKS.c.sequence).limit(limit), StoredBlock)


async def last_kind(tx: AsyncConnection, chain_id: str, *, without: Sequence[str]) -> str | None:
    """Type of the last block that has none of these types; None when there is none."""
    query = select(BLOCKS.c.kind).where(BLOCKS.c.chain_id == chain_id, BLOCKS.c.kind.not_in(without))
    found: str | None = await tx.scalar(query.order_by(BLOCKS.c.sequence.desc()).limit(1))
    return found


async def last_of_run(tx: AsyncConnection, chain_id: str, run_id: str) -> int | None:
    """Sequence number of the last block that a run added; None when it added none."""
    query = select(func.max(BLOCKS.c.sequence)).where(BLOCKS.c.chain_id == chain_id, BLOCKS.c.run_id == run_id)
    found: int | None = await tx.scalar(query)
    return found
