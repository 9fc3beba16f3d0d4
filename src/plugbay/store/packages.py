"""Packages. The contents of an accepted package are immutable; only its signature, key and status change.

A deleted package is not found unless the query says so. In the table, an empty `org_id` means all orgs; records have
None instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from msgspec.structs import asdict
from sqlalchemy import Row, Select, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store.pages import Page, Part, matching, select_page
from plugbay.store.statements import insert_new
from plugbay.store.tables import PACKAGE_FILES, PACKAGES

NO_OWNER = ""

Lock = Literal["share", "update"]
"""Until the transaction ends: nothing deletes the package; or nothing changes or uses it."""

_PRESENT = PACKAGES.c.deleted_at.is_(None)


class PackageRow(msgspec.Struct, frozen=True):
    """One release of one plugin."""

    id: str
    org_id: str | None
    """Owner; None: available to all orgs."""
    package_id: str
    version: str
    digest: str
    """Digest of the archive: `sha256:…`."""
    tree_sha256: str
    """Hash over all names and contents."""
    manifest: dict[str, Any]
    signature_status: str
    key_id: str | None
    status: str
    source: str
    created_at: float
    accepted_at: float | None = None
    """When it was first available; None: never."""
    deleted_at: float | None = None


async def insert(tx: AsyncConnection, row: PackageRow) -> bool:
    """Insert; False when this version of this package exists already."""
    values = asdict(row)
    return await insert_new(tx, PACKAGES, values | {"org_id": row.org_id or NO_OWNER})


async def get(tx: AsyncConnection, id: str, *, lock: Lock | None = None) -> PackageRow | None:
    """Find a package by row id."""
    return await _first(tx, select(PACKAGES).where(PACKAGES.c.id == id, _PRESENT), lock)


async def find(
    tx: AsyncConnection,
    org_id: str | None,
    package_id: str,
    version: str,
    *,
    deleted: bool = False,
    lock: Lock | None = None,
) -> PackageRow | None:
    """Find a version with exactly this owner; with `deleted`, a deleted one too."""
    query = select(PACKAGES).where(
        PACKAGES.c.org_id == (org_id or NO_OWNER), PACKAGES.c.package_id == package_id, PACKAGES.c.version == version
    )
    return await _first(tx, query if deleted else query.where(_PRESENT), lock)


async def judge(tx: AsyncConnection, row: PackageRow) -> None:
    """Update signature, key and status, and when it was accepted."""
    await _update(tx, row, ("signature_status", "key_id", "status", "accepted_at"))


async def replace_contents(tx: AsyncConnection, row: PackageRow) -> None:
    """Update everything but owner, package and version: for a package that was never accepted, or that comes back."""
    fixed = ("id", "org_id", "package_id", "version")
    await _update(tx, row, [name for name in PackageRow.__struct_fields__ if name not in fixed])


async def delete(tx: AsyncConnection, id: str, at: float) -> None:
    """Mark a package as deleted."""
    await tx.execute(update(PACKAGES).where(PACKAGES.c.id == id).values(deleted_at=at))


async def is_stored(tx: AsyncConnection, digest: str) -> bool:
    """Whether some package, of any owner, has these files."""
    return (await tx.execute(select(PACKAGES.c.id).where(PACKAGES.c.digest == digest, _PRESENT))).first() is not None


async def verified(tx: AsyncConnection) -> list[PackageRow]:
    """All packages whose signature was verified."""
    query = select(PACKAGES).where(PACKAGES.c.signature_status == "verified", _PRESENT)
    return [_row(row) for row in (await tx.execute(query.order_by(PACKAGES.c.id))).all()]


async def usable(tx: AsyncConnection, org_id: str | None) -> list[PackageRow]:
    """All packages available to an org, or to everyone (None)."""
    query = _visible(select(PACKAGES).where(PACKAGES.c.status == "available"), org_id)
    rows = (await tx.execute(query.order_by(PACKAGES.c.created_at, PACKAGES.c.id))).all()
    return [_row(row) for row in rows]


async def select_part(
    tx: AsyncConnection,
    org_id: str | None,
    page: Page,
    *,
    package_id: str | None = None,
    version: str | None = None,
    status: str | None = None,
    search: str | None = None,
) -> Part[PackageRow]:
    """A page of the packages that an org can see, its own and the shared ones; all packages for None."""
    query = _visible(select(PACKAGES).where(*matching(search, PACKAGES.c.package_id, PACKAGES.c.id)), org_id)
    for column, wanted in (("package_id", package_id), ("version", version), ("status", status)):
        query = query if wanted is None else query.where(PACKAGES.c[column] == wanted)
    return await select_page(tx, query, PACKAGES.c.created_at, PACKAGES.c.id, page, _row)


async def _first(tx: AsyncConnection, query: Select[Any], lock: Lock | None) -> PackageRow | None:
    found = (await tx.execute(query if lock is None else query.with_for_update(read=lock == "share"))).first()
    return None if found is None else _row(found)


async def _update(tx: AsyncConnection, row: PackageRow, names: Iterable[str]) -> None:
    values = {name: getattr(row, name) for name in names}
    await tx.execute(update(PACKAGES).where(PACKAGES.c.id == row.id).values(values))


def _visible(query: Select[Any], org_id: str | None) -> Select[Any]:
    query = query.where(_PRESENT)
    return query if org_id is None else query.where(PACKAGES.c.org_id.in_((NO_OWNER, org_id)))


def _row(row: Row[Any]) -> PackageRow:
    values = dict(row._mapping)
    return PackageRow(**{**values, "org_id": values["org_id"] or None})


# Archives, if several gateways share the database.


async def keep_archive(tx: AsyncConnection, digest: str, archive: bytes, signature: bytes | None) -> None:
    """Keep the archive of a release for other gateways; a later signature replaces the first."""
    values = {"digest": digest, "archive": archive, "signature": signature}
    if not await insert_new(tx, PACKAGE_FILES, values) and signature is not None:
        await tx.execute(update(PACKAGE_FILES).where(PACKAGE_FILES.c.digest == digest).values(signature=signature))


async def read_archive(tx: AsyncConnection, digest: str) -> tuple[bytes, bytes | None] | None:
    """The archive of a release, and its detached signature."""
    found = (await tx.execute(select(PACKAGE_FILES).where(PACKAGE_FILES.c.digest == digest))).first()
    return None if found is None else (found.archive, found.signature)


async def remove_archive(tx: AsyncConnection, digest: str) -> None:
    await tx.execute(PACKAGE_FILES.delete().where(PACKAGE_FILES.c.digest == digest))
