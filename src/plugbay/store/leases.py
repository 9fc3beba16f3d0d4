"""Leases with epochs: which process holds a name, until when, and with which epoch.

    lease = await leases.take(tx, "duty/retention", "gw_1", 30.0)        None while another process holds it
    await leases.renew(tx, lease.fence, 30.0)                            False: it was taken by another process
    await leases.check(tx, lease.fence)                                  in the transaction of an effect

`until` is by the clock of the database alone. A fence is a name with its holder and its epoch. `check` locks the row of
the lease so that renewals pass and a take waits: an effect in the same transaction is of the holder, or is not at all.
`decide` is pure; what a holder may believe of its lease is in `model.tenure`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import asdict
from sqlalchemy import BigInteger, ColumnElement, delete, func, literal_column, select, true, update
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store.failures import StoreUnavailable
from plugbay.store.metadata import MICROSECONDS
from plugbay.store.statements import insert_missing
from plugbay.store.tables import LEASES

NOBODY = ""
"""The holder of a lease that was never taken, or was given back."""


class Fence(NamedTuple):
    """What an effect of a holder is checked by."""

    name: str
    holder: str
    epoch: int


class Lease(msgspec.Struct, frozen=True):
    """One row."""

    name: str
    holder: str
    epoch: int
    until: float
    facts: dict[str, Any]

    @property
    def fence(self) -> Fence:
        return Fence(self.name, self.holder, self.epoch)


class LeaseLost(StoreUnavailable):
    """This process no longer holds the lease that an effect needs. Another process may do it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the lease {name} has another holder")


class Verdict(enum.Enum):
    """What a request to take a lease gets."""

    TAKEN = "taken"
    """With another epoch: the old holder is fenced."""
    KEPT = "kept"
    """The holder asked again; the epoch stays."""
    REFUSED = "refused"
    """Another process holds it."""


def decide(lease: Lease, holder: str, now: float) -> Verdict:
    """Whether `holder` gets the lease at the time `now` of the database."""
    free = lease.holder == NOBODY or lease.until < now
    if lease.holder == holder:
        # After its end it is another tenure: in between, another process could have taken it and given it back.
        return Verdict.TAKEN if free else Verdict.KEPT
    return Verdict.TAKEN if free else Verdict.REFUSED


def _now(tx: AsyncConnection) -> ColumnElement[int]:
    """The time of the database, in microseconds."""
    if tx.dialect.name == "postgresql":
        return literal_column("CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)", BigInteger)
    return literal_column("CAST((julianday('now') - 2440587.5) * 86400000000.0 AS integer)", BigInteger)


async def database_time(tx: AsyncConnection) -> float:
    """Seconds since the epoch, by the clock of the database."""
    return float(await tx.scalar(select(_now(tx))) or 0) / MICROSECONDS


def _of(fence: Fence) -> tuple[ColumnElement[bool], ...]:
    return LEASES.c.name == fence.name, LEASES.c.holder == fence.holder, LEASES.c.epoch == fence.epoch


async def take(
    tx: AsyncConnection, name: str, holder: str, seconds: float, facts: Mapping[str, Any] | None = None
) -> Lease | None:
    """Take a lease for so many seconds, or keep it; None while another process holds it."""
    free = {"name": name, "holder": NOBODY, "epoch": 0, "until": 0.0, "facts": {}}
    await insert_missing(tx, LEASES, [free])
    found = await _lock(tx, name)
    assert found is not None
    return await _give(tx, *found, holder, seconds, facts or {})


async def take_over(tx: AsyncConnection, seen: Lease, holder: str, seconds: float) -> Lease | None:
    """Take a lease that was over when it was seen; None if another process has taken, renewed or removed it since."""
    found = await _lock(tx, seen.name)
    if found is None or found[0].fence != seen.fence:
        return None
    return await _give(tx, *found, holder, seconds, {})


async def _lock(tx: AsyncConnection, name: str) -> tuple[Lease, float] | None:
    """A lease, unchanged until the end of the transaction, and the time of the database."""
    query = select(LEASES, _now(tx).label("now")).where(LEASES.c.name == name).with_for_update(of=LEASES)
    found = (await tx.execute(query)).one_or_none()
    if found is None:
        return None
    row = dict(found._mapping)
    now = row.pop("now") / MICROSECONDS
    return Lease(**row), now


async def _give(
    tx: AsyncConnection, lease: Lease, now: float, holder: str, seconds: float, facts: Mapping[str, Any]
) -> Lease | None:
    verdict = decide(lease, holder, now)
    if verdict is Verdict.REFUSED:
        return None
    epoch = lease.epoch + (verdict is Verdict.TAKEN)
    taken = Lease(lease.name, holder, epoch, now + seconds, dict(facts))
    await tx.execute(update(LEASES).where(LEASES.c.name == lease.name).values(asdict(taken)))
    return taken


async def renew(tx: AsyncConnection, fence: Fence, seconds: float, facts: Mapping[str, Any] | None = None) -> bool:
    """Extend a lease, also one that is over and that no other process has taken; False if one has."""
    now = await database_time(tx)
    values: dict[str, Any] = {"until": now + seconds}
    if facts is not None:
        values["facts"] = dict(facts)
    return bool((await tx.execute(update(LEASES).where(*_of(fence)).values(**values))).rowcount)


async def check(tx: AsyncConnection, fence: Fence) -> None:
    """Raises `LeaseLost` unless the fence holds until the end of this transaction."""
    query = select(true()).select_from(LEASES).where(*_of(fence)).with_for_update(read=True, key_share=True)
    if await tx.scalar(query) is None:
        raise LeaseLost(fence.name)


async def release(tx: AsyncConnection, fence: Fence) -> bool:
    """Give a lease back; its epoch stays, so an old fence never holds again."""
    values = {"holder": NOBODY, "until": 0.0, "facts": {}}
    return bool((await tx.execute(update(LEASES).where(*_of(fence)).values(**values))).rowcount)


async def give_up(tx: AsyncConnection, name: str, holder: str) -> None:
    """Give a lease back whatever its epoch: the holder does not know that it has it."""
    values = {"holder": NOBODY, "until": 0.0, "facts": {}}
    await tx.execute(update(LEASES).where(LEASES.c.name == name, LEASES.c.holder == holder).values(**values))


async def get(tx: AsyncConnection, name: str) -> Lease | None:
    """A lease, held or not; None if it was never taken."""
    row = (await tx.execute(select(LEASES).where(LEASES.c.name == name))).first()
    return None if row is None else Lease(**row._mapping)


async def remove(tx: AsyncConnection, fence: Fence) -> bool:
    """Remove a lease whose name is never used again."""
    return bool((await tx.execute(delete(LEASES).where(*_of(fence)))).rowcount)


async def find(tx: AsyncConnection, prefix: str) -> list[tuple[Lease, bool]]:
    """The leases whose names begin so, and whether each is held now."""
    named = func.substr(LEASES.c.name, 1, len(prefix)) == prefix
    query = select(LEASES, _now(tx).label("now")).where(named).order_by(LEASES.c.name)
    found = []
    for row in (await tx.execute(query)).all():
        values = dict(row._mapping)
        now = values.pop("now") / MICROSECONDS
        lease = Lease(**values)
        found.append((lease, lease.holder != NOBODY and lease.until >= now))
    return found
