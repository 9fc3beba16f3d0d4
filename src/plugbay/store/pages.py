"""Keyset pagination: newest first, after the last record of the previous page.

The API encodes the position as a cursor (`server.api.paging`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Row, Select, and_, or_
from sqlalchemy.ext.asyncio import AsyncConnection

T = TypeVar("T")


class Page(msgspec.Struct, frozen=True):
    """At most `limit` records older than `after` (time and id), if given."""

    limit: int = 50
    after: tuple[float, str] | None = None


class Part(msgspec.Struct, Generic[T], frozen=True):
    """One page, and the position of the next one; None: this is the last page."""

    items: tuple[T, ...]
    after: tuple[float, str] | None = None


def cut(items: Sequence[T], page: Page, place: Callable[[T], tuple[float, str]]) -> Part[T]:
    """One page of a list in memory, which is sorted by `place` (time and id) descending."""
    rest = [item for item in items if page.after is None or place(item) < page.after]
    shown = tuple(rest[: page.limit])
    return Part(shown, place(shown[-1]) if len(rest) > page.limit else None)


def matching(text: str | None, *columns: ColumnElement[str]) -> list[ColumnElement[bool]]:
    """The condition that one of these columns contains the text, in any case; none without a text."""
    return [or_(*(column.icontains(text, autoescape=True) for column in columns))] if text else []


async def select_page(
    tx: AsyncConnection,
    query: Select[Any],
    at: ColumnElement[float],
    id: ColumnElement[str],
    page: Page,
    to_record: Callable[[Row[Any]], T],
) -> Part[T]:
    """Run a query for one page, ordered by `at` and `id` descending; `to_record` converts each row.

    The query must select both columns under their own names.
    """
    if page.after is not None:
        moment, last = page.after
        query = query.where(or_(at < moment, and_(at == moment, id < last)))
    rows = (await tx.execute(query.order_by(at.desc(), id.desc()).limit(page.limit + 1))).all()
    shown = rows[: page.limit]
    after = (shown[-1]._mapping[at.key], shown[-1]._mapping[id.key]) if len(rows) > page.limit else None
    return Part(tuple(to_record(row) for row in shown), after)
