"""Transient and permanent database errors."""

from __future__ import annotations

import sqlite3

import pytest
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, ProgrammingError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolExhausted

from plugbay.store.failures import damage_error, transient_error


class PostgresError(Exception):
    def __init__(self, sqlstate: str) -> None:
        self.sqlstate = sqlstate


def _sqlite(name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("said by SQLite")
    error.sqlite_errorname = name
    return error


@pytest.mark.parametrize(
    "error",
    [
        OperationalError("", {}, _sqlite("SQLITE_BUSY")),
        OperationalError("", {}, _sqlite("SQLITE_BUSY_SNAPSHOT")),
        OperationalError("", {}, _sqlite("SQLITE_FULL")),
        OperationalError("", {}, _sqlite("SQLITE_IOERR_WRITE")),
        DBAPIError("", {}, PostgresError("40001")),
        DBAPIError("", {}, PostgresError("40P01")),
        DBAPIError("", {}, PostgresError("53100")),
        DBAPIError("", {}, PostgresError("57P01")),
        DBAPIError("", {}, PostgresError("55P03")),
        DBAPIError("", {}, Exception("gone"), connection_invalidated=True),
        OperationalError("", {}, Exception("gone")),
        PoolExhausted("too many"),
    ],
    ids=repr,
)
def test_what_passes_by_itself_is_unavailable(error: SQLAlchemyError) -> None:
    assert transient_error(error) is not None


@pytest.mark.parametrize(
    "error",
    [
        OperationalError("", {}, _sqlite("SQLITE_ERROR")),
        IntegrityError("", {}, PostgresError("23505")),
        ProgrammingError("", {}, PostgresError("42P01")),
        ProgrammingError("", {}, Exception("no such table")),
    ],
    ids=repr,
)
def test_what_is_a_bug_stays_what_it_is(error: SQLAlchemyError) -> None:
    assert transient_error(error) is None
    assert damage_error(error) is None


def test_a_file_that_is_no_database_is_reported_as_such() -> None:
    refused = damage_error(OperationalError("", {}, _sqlite("SQLITE_NOTADB")))
    assert refused is not None and "not a database, or is damaged (SQLITE_NOTADB)" in str(refused)
    assert damage_error(PoolExhausted("too many")) is None


def test_messages_contain_neither_the_statement_nor_its_values() -> None:
    error = OperationalError("INSERT INTO x VALUES (?)", {"value": "hunter2"}, _sqlite("SQLITE_FULL"))
    assert str(transient_error(error)) == "the database cannot be used now: SQLITE_FULL"
