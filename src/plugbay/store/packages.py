"""Rows of packages: what one is, is written once and never changed.

Knows nothing of files and signatures. The empty org stands for all orgs, and is None outside of this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Select, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store.pages import Page, Part, select_page
from plugbay.store.statements import insert_new
from plugbay.store.tables.plugins import PACKAGES

EVERYBODY = ""


@dataclass(frozen=True, slots=True)
class PackageRow:
    """One release of one plugin, as the gateway knows it."""

    id: str
    org_id: str | None
    """Whose it is; None: everybody may use it."""
    package_id: str
    version: str
    digest: str
    """Of the archive: `sha256:…`."""
    tree_sha256: str
    """Of all names and contents in it."""
    manifest: dict[str, Any]
    signature_status: str
    key_id: str | None
    status: str
    source: str
    created_at: float


async def insert(tx: AsyncConnection, row: PackageRow) -> bool:
    """False: this version of this package is there already."""
    values = {name: getattr(row, name) for name in PackageRow.__slots__}
    return await insert_new(tx, PACKAGES, values | {"org_id": row.org_id or EVERYBODY})


async def get(tx: AsyncConnection, id: str) -> PackageRow | None:
    """The package with this id of its row."""
    found = (await tx.execute(select(PACKAGES).where(PACKAGES.c.id == id))).first()
    return None if found is None else _row(found)


async def find(tx: AsyncConnection, org_id: str | None, package_id: str, version: str) -> PackageRow | None:
    """This version, exactly of this owner."""
    query = select(PACKAGES).where(
        PACKAGES.c.org_id == (org_id or EVERYBODY), PACKAGES.c.package_id == package_id, PACKAGES.c.version == version
    )
    found = (await tx.execute(query)).first()
    return None if found is None else _row(found)


async def judge(tx: AsyncConnection, row: PackageRow) -> None:
    """Its posture has changed: signature, key and status. What it is never does."""
    posture = {name: getattr(row, name) for name in ("signature_status", "key_id", "status")}
    await tx.execute(update(PACKAGES).where(PACKAGES.c.id == row.id).values(posture))


async def usable(tx: AsyncConnection, org_id: str | None) -> list[PackageRow]:
    """Every package that is available to an org, or to anybody for None."""
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
) -> Part[PackageRow]:
    """A part of what an org sees, its own and everybody's; of all there is for None."""
    query = _visible(select(PACKAGES), org_id)
    for column, wanted in (("package_id", package_id), ("version", version), ("status", status)):
        query = query if wanted is None else query.where(PACKAGES.c[column] == wanted)
    return await select_page(tx, query, PACKAGES.c.created_at, PACKAGES.c.id, page, _row)


def _visible(query: Select[Any], org_id: str | None) -> Select[Any]:
    return query if org_id is None else query.where(PACKAGES.c.org_id.in_((EVERYBODY, org_id)))


def _row(row: Row[Any]) -> PackageRow:
    values = dict(row._mapping)
    return PackageRow(**{**values, "org_id": values["org_id"] or None})
