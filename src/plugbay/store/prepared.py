"""`Prepared`: a statement that is said often, built once and compiled once for each kind of database.

    _CLOSE = Prepared(update(JOBS).where(JOBS.c.id == bindparam("job")), sets=("status",))
    await _CLOSE.run(tx, {"job": "j1", "status": "done"})

To build a statement costs more than to carry it out: some 600 us for an INSERT of 24 columns, to which SQLAlchemy adds
80 and SQLite 20. On SQLite a prepared one is carried out at once, by whoever asks (`sqlite`); so it must find what it
reads or changes by a key, few rows at a time. PostgreSQL is asked as by any other statement.

Owns values on their way to the database and back. Refuses to know any table; but what is remembered of settled tables
(`remembered`) would not notice a prepared change of one, so there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Dialect, Select
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import UpdateBase

from plugbay.store.metadata import is_settled

Statement = Select[Any] | UpdateBase


class Outcome(NamedTuple):
    """What came of it: rows by the names of their columns, and how many were changed."""

    rows: list[dict[str, Any]]
    changed: int

    @property
    def first(self) -> dict[str, Any] | None:
        return self.rows[0] if self.rows else None


class Prepared:
    """One statement."""

    def __init__(self, statement: Statement, *, sets: Sequence[str] = (), postgresql: Statement | None = None) -> None:
        """`sets` are the columns that an UPDATE gives a value; `postgresql` is how that database has it written."""
        if isinstance(statement, UpdateBase) and is_settled(statement.table):
            raise ValueError(f"{statement.table} is settled: a change of it has to be noticed")
        self._statement = statement
        self._sets = list(sets)
        self._on_server = statement if postgresql is None else postgresql
        self._in_process: _Compiled | None = None

    async def run(self, tx: AsyncConnection, values: Mapping[str, Any]) -> Outcome:
        """Carry it out with these values, one for each of its parameters."""
        if tx.dialect.name == "postgresql":
            result = await tx.execute(self._on_server, values)
            rows = [dict(row) for row in result.mappings()] if result.returns_rows else []
            return Outcome(rows, result.rowcount)
        if self._in_process is None:
            self._in_process = _Compiled(self._statement, self._sets, tx.dialect)
        return await self._in_process.run(tx, values)


class _Compiled:
    """The statement as SQLite has it, and how values get there and back."""

    def __init__(self, statement: Statement, sets: Sequence[str], dialect: Dialect) -> None:
        from plugbay.store.sqlite import driver_of  # its driver is an extra

        compiled = statement.compile(dialect=dialect, column_keys=sets or None)
        assert compiled.positiontup is not None
        self._driver_of = driver_of
        self._text = str(compiled)
        self._there = [
            (name, compiled.binds[name].type.dialect_impl(dialect).bind_processor(dialect))
            for name in compiled.positiontup
        ]
        self._back = [
            (column.name, column.type.dialect_impl(dialect).result_processor(dialect, None))
            for column in statement.exported_columns
        ]

    async def run(self, tx: AsyncConnection, values: Mapping[str, Any]) -> Outcome:
        there = [values[name] if way is None else way(values[name]) for name, way in self._there]
        answer = await self._driver_of(tx).small(self._text, there)
        rows = [
            {name: found if way is None else way(found) for (name, way), found in zip(self._back, row, strict=True)}
            for row in answer.rows
        ]
        return Outcome(rows, answer.rowcount)
