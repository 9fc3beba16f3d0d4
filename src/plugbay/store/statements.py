"""Statements that the two databases write differently, or that would end a transaction if they failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store.prepared import Prepared


async def insert_new(tx: AsyncConnection, table: Table, values: Mapping[str, Any]) -> bool:
    """Insert a row; False, and nothing happened, when one with its key or a unique value is there already.

    A plain INSERT that fails would end the whole transaction on PostgreSQL.
    """
    dialect = postgresql if tx.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(table).values(values).on_conflict_do_nothing().returning(*table.primary_key.columns)
    return (await tx.execute(statement)).first() is not None


def new_row(table: Table) -> Prepared:
    """The same, prepared for all columns: a row comes back if it is new, and none otherwise."""
    keys = table.primary_key.columns
    on_server = postgresql.insert(table).on_conflict_do_nothing().returning(*keys)
    return Prepared(sqlite.insert(table).on_conflict_do_nothing().returning(*keys), postgresql=on_server)


async def insert_missing(tx: AsyncConnection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert these rows, but for those that are there already."""
    dialect = postgresql if tx.dialect.name == "postgresql" else sqlite
    await tx.execute(dialect.insert(table).on_conflict_do_nothing(), rows)


async def upsert(tx: AsyncConnection, table: Table, values: Mapping[str, Any]) -> None:
    """Insert a row, or put these values in the place of those it has under the same primary key."""
    dialect = postgresql if tx.dialect.name == "postgresql" else sqlite
    keys = [column.name for column in table.primary_key.columns]
    changed = {name: value for name, value in values.items() if name not in keys}
    statement = dialect.insert(table).values(values)
    await tx.execute(statement.on_conflict_do_update(index_elements=keys, set_=changed))
