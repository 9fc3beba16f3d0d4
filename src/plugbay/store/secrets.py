"""Encrypted secrets. Keys and plaintext never reach this module."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import asdict
from sqlalchemy import Row, delete, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store.pages import Page, Part, matching, select_page
from plugbay.store.statements import upsert
from plugbay.store.tables import SECRETS


class SecretRow(msgspec.Struct, frozen=True):
    """One encrypted secret."""

    id: str
    org_id: str
    scope: str
    """The org, or one of its projects."""
    name: str
    version: int
    """Incremented with each new value."""
    key_id: str
    """Id of the encryption key."""
    nonce: bytes
    sealed: bytes
    created_at: float
    updated_at: float


async def put(tx: AsyncConnection, row: SecretRow) -> None:
    """Insert or replace a secret."""
    await upsert(tx, SECRETS, asdict(row))


async def get(tx: AsyncConnection, org_id: str, scope: str, name: str) -> SecretRow | None:
    """Find a secret by name."""
    query = select(SECRETS).where(SECRETS.c.org_id == org_id, SECRETS.c.scope == scope, SECRETS.c.name == name)
    found = (await tx.execute(query)).first()
    return None if found is None else _row(found)


async def settle(tx: AsyncConnection) -> None:
    """Wait for transactions that are setting secrets; not needed on SQLite, which has one writer."""
    if tx.dialect.name == "postgresql":
        await tx.execute(text(f"LOCK TABLE {SECRETS.name} IN ACCESS EXCLUSIVE MODE"))


async def remove(tx: AsyncConnection, org_id: str, scope: str, name: str) -> bool:
    """Delete; False when there was none."""
    statement = delete(SECRETS).where(SECRETS.c.org_id == org_id, SECRETS.c.scope == scope, SECRETS.c.name == name)
    return bool((await tx.execute(statement)).rowcount)


async def select_part(
    tx: AsyncConnection, org_id: str | None, scopes: tuple[str, ...] | None, page: Page, search: str | None = None
) -> Part[SecretRow]:
    """A page of the secrets of an org, or of some of its scopes; `search` is part of a name."""
    query = select(SECRETS).where(*matching(search, SECRETS.c.name))
    query = query if org_id is None else query.where(SECRETS.c.org_id == org_id)
    query = query if scopes is None else query.where(SECRETS.c.scope.in_(scopes))
    return await select_page(tx, query, SECRETS.c.created_at, SECRETS.c.id, page, _row)


async def encrypted_with_other_key(tx: AsyncConnection, key_id: str, limit: int) -> list[SecretRow]:
    """Secrets encrypted with another key than this one, locked until the transaction ends."""
    query = select(SECRETS).where(SECRETS.c.key_id != key_id)
    query = query.order_by(SECRETS.c.org_id, SECRETS.c.scope, SECRETS.c.name).limit(limit).with_for_update()
    return [_row(row) for row in (await tx.execute(query)).all()]


def _row(row: Row[Any]) -> SecretRow:
    return SecretRow(**row._mapping)
