"""Delegated tokens, stored as SHA-256 only, and their spending."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import asdict
from sqlalchemy import ColumnElement, bindparam, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store.statements import Prepared, Write, insert_new
from plugbay.store.tables import SPENDING, TOKENS

_ALIVE = TOKENS.c.revoked_at.is_(None)
_INSERT = Prepared(insert(TOKENS))
_GET = Prepared(select(TOKENS).where(TOKENS.c.digest == bindparam("token")))
_REVOKE = Prepared(update(TOKENS).where(TOKENS.c.digest == bindparam("token"), _ALIVE), sets=("revoked_at",))
_REVOKE_OF_INVOCATION = Prepared(
    update(TOKENS).where(TOKENS.c.invocation_id == bindparam("invocation"), _ALIVE), sets=("revoked_at",)
)


class TokenRow(msgspec.Struct, frozen=True):
    """The scope and expiry of one token."""

    digest: bytes
    invocation_id: str
    binding_id: str | None
    org_id: str
    execution_id: str
    claims: dict[str, Any]
    issued_at: float
    expires_at: float
    revoked_at: float | None = None


async def add(tx: AsyncConnection, row: TokenRow) -> None:
    """Insert a token."""
    await _INSERT.run(tx, asdict(row))


async def get(tx: AsyncConnection, digest: bytes) -> TokenRow | None:
    """Find a token by SHA-256, whether or not it is valid."""
    found = (await _GET.run(tx, {"token": digest})).first
    return None if found is None else TokenRow(**found)


async def revoke(tx: AsyncConnection, digest: bytes, at: float) -> None:
    """Revoke a token."""
    await _REVOKE.run(tx, {"token": digest, "revoked_at": at})


def revoking(invocation_id: str, at: float) -> Write:
    """Revoke all tokens of an invocation."""
    return _REVOKE_OF_INVOCATION, {"invocation": invocation_id, "revoked_at": at}


async def revoke_of_binding(tx: AsyncConnection, binding_id: str, at: float) -> None:
    """Revoke all tokens of all invocations of a binding."""
    await _revoke(tx, TOKENS.c.binding_id == binding_id, at)


async def revoke_all(tx: AsyncConnection, at: float) -> int:
    """Revoke all tokens; returns how many were valid."""
    return await _revoke(tx, TOKENS.c.digest.is_not(None), at)


async def revoke_of_invocations(tx: AsyncConnection, ids: Sequence[str], at: float) -> int:
    """Revoke all tokens of these invocations; returns how many were valid."""
    return await _revoke(tx, TOKENS.c.invocation_id.in_(ids), at) if ids else 0


async def _revoke(tx: AsyncConnection, which: ColumnElement[bool], at: float) -> int:
    statement = update(TOKENS).where(which, _ALIVE).values(revoked_at=at)
    return (await tx.execute(statement)).rowcount


async def spent(tx: AsyncConnection, org_id: str, execution_id: str) -> dict[str, int]:
    """The units that an execution has spent, by their kind."""
    own = (SPENDING.c.org_id == org_id, SPENDING.c.execution_id == execution_id)
    found = await tx.execute(select(SPENDING.c.what, SPENDING.c.spent).where(*own))
    return {row.what: row.spent for row in found.all()}


async def spend(
    tx: AsyncConnection, org_id: str, execution_id: str, what: str, limit: int | None, at: float
) -> int | None:
    """Spend one unit; returns the new total, or None when that would exceed `limit`."""
    key = {"org_id": org_id, "execution_id": execution_id, "what": what}
    await insert_new(tx, SPENDING, {**key, "spent": 0, "updated_at": at})
    statement = update(SPENDING).where(*(SPENDING.c[name] == value for name, value in key.items()))
    if limit is not None:
        statement = statement.where(SPENDING.c.spent < limit)
    done = await tx.execute(statement.values(spent=SPENDING.c.spent + 1, updated_at=at).returning(SPENDING.c.spent))
    spent: int | None = done.scalar_one_or_none()
    return spent
