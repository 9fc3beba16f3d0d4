"""What a database can do to us, in two words: not now, or never like this.

Owns which errors of SQLite and PostgreSQL pass by themselves. Those are `StoreUnavailable`: nothing was committed that
the caller was told of, and trying again is right. A file that is no database is `StoreRefused`. All others are bugs,
and stay what they are.
"""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolExhausted

from plugbay.model.errors import PlugbayError

_PASSING_SQLSTATES = ("08", "25P03", "40001", "40P01", "53", "55P03", "57")
"""How the SQLSTATE begins of what passes: connections, deadlocks, full disks and memory, locks, servers that go."""

_PASSING_SQLITE = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY")

_DAMAGED = ("SQLITE_NOTADB", "SQLITE_CORRUPT")


class StoreUnavailable(PlugbayError):
    """The database cannot do this now: locked, full, or not there. Try again later."""

    def __init__(self, reason: str, *, retry_after: float = 1.0) -> None:
        self.reason = reason
        self.retry_after = retry_after
        super().__init__(f"the database cannot be used now: {reason}")


class StoreRefused(PlugbayError):
    """The database is not one this version can work with, or its driver is not installed."""


def passing(error: SQLAlchemyError) -> StoreUnavailable | None:
    """What is said of an error that passes by itself; None: it does not."""
    if isinstance(error, PoolExhausted):
        return StoreUnavailable("every connection to it is in use")
    if isinstance(error, DBAPIError):
        return _passing_dbapi(error)
    return None


def damaged(error: SQLAlchemyError) -> StoreRefused | None:
    """What is said of a file that is no database, or no longer a whole one; None: it is something else."""
    name = _known("sqlite_errorname", error.orig) if isinstance(error, DBAPIError) else ""
    if not name.startswith(_DAMAGED):
        return None
    return StoreRefused(f"its file is no database, or is damaged ({name}); put a copy of a good one in its place")


def _passing_dbapi(error: DBAPIError) -> StoreUnavailable | None:
    origin = error.orig
    state = _known("sqlstate", origin)
    if state:
        return StoreUnavailable(f"SQLSTATE {state}") if state.startswith(_PASSING_SQLSTATES) else None
    name = _known("sqlite_errorname", origin)
    if name:
        return StoreUnavailable(name) if name.startswith(_PASSING_SQLITE) else None
    if error.connection_invalidated or isinstance(error, InterfaceError | OperationalError):
        return StoreUnavailable("the connection to it was lost")
    return None


def _known(fact: str, origin: BaseException | None) -> str:
    """What the driver's error says of itself, or the one below it; empty when neither has this."""
    for error in (origin, getattr(origin, "__cause__", None)):
        found = getattr(error, fact, None)
        if isinstance(found, str):
            return found
    return ""
