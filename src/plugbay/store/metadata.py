"""`METADATA`, column types, and the marker for settled tables. The tables themselves are in `tables`."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, Dialect, MetaData, Table
from sqlalchemy.types import TypeDecorator

MICROSECONDS = 1_000_000

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)
"""All tables. Constraints are named, because unnamed ones cannot be dropped on every database."""

SETTLED = {"settled": True}
"""`info` of a table that rarely changes and is read at every request: its rows are cached (`database.RowCache`)."""


def is_settled(table: object) -> bool:
    """Whether rows of a table are cached."""
    return isinstance(table, Table) and "settled" in table.info


class Instant(TypeDecorator[float]):
    """A time: float seconds since the epoch (UTC) in Python, integer microseconds in the database."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> int | None:
        return None if value is None else round(value * MICROSECONDS)

    def process_result_value(self, value: int | None, dialect: Dialect) -> float | None:
        return None if value is None else value / MICROSECONDS


class Json(TypeDecorator[Any]):
    """A JSON value; None is NULL.

    On PostgreSQL it is `json`: `jsonb` refuses U+0000 in strings and does not keep the order of keys.
    """

    impl = JSON(none_as_null=True)
    cache_ok = True
