"""API keys, stored as SHA-256 only."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Row, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store.pages import Page, Part, matching, select_page
from plugbay.store.tables import API_KEYS


class ApiKey(msgspec.Struct, frozen=True):
    """A key of an org or project."""

    id: str
    org_id: str
    project_id: str | None
    name: str
    role: str
    hint: str
    """Its last characters, for recognition."""
    created_at: float
    expires_at: float | None
    revoked_at: float | None


async def insert(tx: AsyncConnection, key: ApiKey, digest: bytes) -> None:
    await tx.execute(
        API_KEYS.insert().values(
            id=key.id,
            org_id=key.org_id,
            project_id=key.project_id,
            name=key.name,
            role=key.role,
            digest=digest,
            hint=key.hint,
            created_at=key.created_at,
            expires_at=key.expires_at,
            revoked_at=key.revoked_at,
        )
    )


async def get(tx: AsyncConnection, id: str) -> ApiKey | None:
    row = (await tx.execute(select(API_KEYS).where(API_KEYS.c.id == id))).first()
    return None if row is None else _key(row)


async def by_digest(tx: AsyncConnection, digest: bytes) -> ApiKey | None:
    row = (await tx.execute(select(API_KEYS).where(API_KEYS.c.digest == digest))).first()
    return None if row is None else _key(row)


async def revoke(tx: AsyncConnection, id: str, at: float) -> bool:
    """Revoke a key; False when it was revoked before or does not exist."""
    open_one = (API_KEYS.c.id == id) & API_KEYS.c.revoked_at.is_(None)
    return (await tx.execute(update(API_KEYS).where(open_one).values(revoked_at=at))).rowcount == 1


async def page(
    tx: AsyncConnection, page: Page, *, org_id: str | None, project_id: str | None = None, search: str | None = None
) -> Part[ApiKey]:
    """Keys of an org or project; all keys when neither is given. `search` is part of an id, a name or a hint."""
    query = select(API_KEYS).where(*matching(search, API_KEYS.c.id, API_KEYS.c.name, API_KEYS.c.hint))
    if org_id is not None:
        query = query.where(API_KEYS.c.org_id == org_id)
    if project_id is not None:
        query = query.where(API_KEYS.c.project_id == project_id)
    return await select_page(tx, query, API_KEYS.c.created_at, API_KEYS.c.id, page, _key)


def _key(row: Row[Any]) -> ApiKey:
    return ApiKey(
        row.id,
        row.org_id,
        row.project_id,
        row.name,
        row.role,
        row.hint,
        row.created_at,
        row.expires_at,
        row.revoked_at,
    )
