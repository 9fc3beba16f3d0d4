"""The audit log: changes, with actor and request. Append-only."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Row, select
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store.pages import Page, Part, select_page
from plugbay.store.tables import AUDIT


@dataclass(frozen=True, slots=True)
class Entry:
    """One change."""

    id: str
    at: float
    org_id: str | None
    project_id: str | None
    actor_kind: str
    actor_id: str
    action: str
    subject_kind: str
    subject_id: str
    request_id: str | None
    details: dict[str, Any]


async def insert(tx: AsyncConnection, entry: Entry) -> None:
    await tx.execute(AUDIT.insert().values(asdict(entry)))


async def page(
    tx: AsyncConnection,
    page: Page,
    *,
    org_id: str | None = None,
    project_id: str | None = None,
    subject_id: str | None = None,
    action: str | None = None,
) -> Part[Entry]:
    """Entries that match all given filters."""
    wanted = {"org_id": org_id, "project_id": project_id, "subject_id": subject_id, "action": action}
    query = select(AUDIT).where(*(AUDIT.c[name] == value for name, value in wanted.items() if value is not None))
    return await select_page(tx, query, AUDIT.c.at, AUDIT.c.id, page, _entry)


def _entry(row: Row[Any]) -> Entry:
    return Entry(**row._mapping)
