"""A part of a list: so many records, newest first, after the last one that was seen.

Owns the order of every list and what a next part begins after. How that is written for a client is `control`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import ColumnElement, Row, Select, and_, or_
from sqlalchemy.ext.asyncio import AsyncConnection

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page:
    """Which part: at most `limit` records, older than `after` (a moment and an id) if that is given."""

    limit: int = 50
    after: tuple[float, str] | None = None


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """One part of a list, and what the next one comes after; None: this is the end."""

    items: tuple[T, ...]
    after: tuple[float, str] | None = None


async def select_page(
    tx: AsyncConnection,
    query: Select[Any],
    at: ColumnElement[float],
    id: ColumnElement[str],
    page: Page,
    made: Callable[[Row[Any]], T],
) -> Part[T]:
    """The rows of a query that are on this page, newest first by `at` and then by `id`, each `made` a record.

    The query must select both columns under their own names.
    """
    if page.after is not None:
        moment, last = page.after
        query = query.where(or_(at < moment, and_(at == moment, id < last)))
    rows = (await tx.execute(query.order_by(at.desc(), id.desc()).limit(page.limit + 1))).all()
    shown = rows[: page.limit]
    after = (shown[-1]._mapping[at.key], shown[-1]._mapping[id.key]) if len(rows) > page.limit else None
    return Part(tuple(made(row) for row in shown), after)
