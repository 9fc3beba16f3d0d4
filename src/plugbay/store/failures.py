"""Database errors in two classes: transient (`StoreUnavailable`, retry later) and permanent (`StoreRefused`).

After `StoreUnavailable` nothing is committed that the caller was told of. All other database errors are bugs and
propagate unchanged.
"""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolExhausted

from plugbay.model.errors import PlugbayError

_TRANSIENT_SQLSTATES = ("08", "25P03", "40001", "40P01", "53", "55P03", "57")
"""SQLSTATE prefixes of transient errors: connections, deadlocks, resources, locks, shutdown."""

_TRANSIENT_SQLITE = (
    "SQLITE_BUSY",
    "SQLITE_LOCKED",
    "SQLITE_FULL",
    "SQLITE_IOERR",
    "SQLITE_CANTOPEN",
    "SQLITE_READONLY",
)

_NOT_WRITABLE = "TargetServerAttributeNotMatched"
"""The driver's error when none of several servers is of the wanted kind: during a failover, for example."""

_DAMAGED = ("SQLITE_NOTADB", "SQLITE_CORRUPT")


class StoreUnavailable(PlugbayError):
    """The database is locked, full or unreachable. Retry later."""

    def __init__(self, reason: str, *, retry_after: float = 1.0) -> None:
        self.reason = reason
        self.retry_after = retry_after
        super().__init__(f"the database cannot be used now: {reason}")


class StoreRefused(PlugbayError):
    """This version cannot use the database, or its driver is not installed."""


def transient_error(error: SQLAlchemyError) -> StoreUnavailable | None:
    """The `StoreUnavailable` for a transient error; None for other errors."""
    if isinstance(error, PoolExhausted):
        return StoreUnavailable("every connection to it is in use")
    if isinstance(error, DBAPIError):
        return _transient_dbapi(error)
    return None


def damage_error(error: SQLAlchemyError) -> StoreRefused | None:
    """The `StoreRefused` for a damaged or foreign file; None for other errors."""
    name = _driver_attribute("sqlite_errorname", error.orig) if isinstance(error, DBAPIError) else ""
    if not name.startswith(_DAMAGED):
        return None
    return StoreRefused(f"its file is not a database, or is damaged ({name}); restore a backup")


def _transient_dbapi(error: DBAPIError) -> StoreUnavailable | None:
    origin = error.orig
    state = _driver_attribute("sqlstate", origin)
    if state:
        return StoreUnavailable(f"SQLSTATE {state}") if state.startswith(_TRANSIENT_SQLSTATES) else None
    name = _driver_attribute("sqlite_errorname", origin)
    if name:
        return StoreUnavailable(name) if name.startswith(_TRANSIENT_SQLITE) else None
    if _NOT_WRITABLE in (type(origin).__name__, type(getattr(origin, "__cause__", None)).__name__):
        return StoreUnavailable("none of the servers in its URL takes writes")
    if error.connection_invalidated or isinstance(error, InterfaceError | OperationalError):
        return StoreUnavailable("the connection to it was lost")
    return None


def _driver_attribute(fact: str, origin: BaseException | None) -> str:
    """An attribute of the driver's error or its cause; empty when neither has it."""
    for error in (origin, getattr(origin, "__cause__", None)):
        found = getattr(error, fact, None)
        if isinstance(found, str):
            return found
    return ""
