"""What every table is made of: one `METADATA`, one type for moments, one for JSON, and which of them are settled.

Refuses to know any table; they are in `tables`.
"""

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
"""All tables. Constraints have names, because only what has a name can be dropped again on every database."""

SETTLED = {"settled": True}
"""`info` of a table that hardly ever changes and is asked at every request: what was read of it is remembered."""


def is_settled(table: object) -> bool:
    """Whether what was read of a table is remembered."""
    return isinstance(table, Table) and "settled" in table.info


class Instant(TypeDecorator[float]):
    """A moment: seconds since the epoch, UTC, in Python; whole microseconds in the database, so that equal is equal."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> int | None:
        return None if value is None else round(value * MICROSECONDS)

    def process_result_value(self, value: int | None, dialect: Dialect) -> float | None:
        return None if value is None else value / MICROSECONDS


class Json(TypeDecorator[Any]):
    """A JSON value as it was written; None is SQL's NULL.

    PostgreSQL keeps it as `json`: `jsonb` would refuse U+0000 inside of texts and forget the order of keys.
    """

    impl = JSON(none_as_null=True)
    cache_ok = True
