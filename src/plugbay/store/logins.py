"""Links to the dashboard and its sessions, if several gateways share the database.

The secrets of links and cookies are stored as digests; all else is sealed.
"""

from __future__ import annotations

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store.statements import upsert
from plugbay.store.tables import LOGINS

LINK, BROWSER = "link", "browser"


async def put(tx: AsyncConnection, digest: bytes, kind: str, sealed: bytes, ends_at: float) -> None:
    """Insert or replace one."""
    await upsert(tx, LOGINS, {"digest": digest, "kind": kind, "sealed": sealed, "ends_at": ends_at})


async def find(tx: AsyncConnection, digest: bytes, kind: str, now: float) -> tuple[bytes, float] | None:
    """The sealed value and the end of one that has not ended."""
    wanted = (LOGINS.c.digest == digest, LOGINS.c.kind == kind, LOGINS.c.ends_at > now)
    found = (await tx.execute(select(LOGINS.c.sealed, LOGINS.c.ends_at).where(*wanted))).first()
    return None if found is None else (bytes(found.sealed), found.ends_at)


async def take(tx: AsyncConnection, digest: bytes, kind: str, now: float) -> tuple[bytes, float] | None:
    """The same, and remove it: of two that ask at the same time, one gets it."""
    wanted = (LOGINS.c.digest == digest, LOGINS.c.kind == kind)
    removed = await tx.execute(delete(LOGINS).where(*wanted).returning(LOGINS.c.sealed, LOGINS.c.ends_at))
    found = removed.first()
    return None if found is None or found.ends_at <= now else (bytes(found.sealed), found.ends_at)


async def remove(tx: AsyncConnection, digest: bytes, now: float) -> None:
    """Remove one, and all that have ended."""
    await tx.execute(delete(LOGINS).where((LOGINS.c.digest == digest) | (LOGINS.c.ends_at <= now)))
