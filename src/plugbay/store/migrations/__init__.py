"""From any earlier version of the tables to this one, and back. `versions` has the steps, in the order of their names.

Owns that a database is left alone which is newer than this program can use, and that two programs that start at the
same time do not both migrate. The release before this one works with its tables: migrations only add, and what they
replace is removed one release later. Alembic is loaded only if there is something to migrate: it takes a tenth of a
server's start.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, delete, insert, inspect, select, text

from plugbay.store.failures import StoreRefused
from plugbay.store.tables import SCHEMA_SUPPORT

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "head"
BASE = "base"

OLDEST_PROGRAM = "0013"
"""The last version that a program must know to work with the tables of this release."""

_VERSION_TABLE = "alembic_version"
_FOLDER = Path(__file__).parent

_LOCK = 0x706C7567
"""Any number that is not used for another lock in the same database."""


def upgrade(connection: Connection, revision: str = HEAD) -> None:
    """Bring the tables up to date, inside the connection's transaction; raises `StoreRefused`."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
    if not _is_current(connection):
        from alembic import command

        command.upgrade(_config(connection), revision)
        if revision == HEAD:
            connection.execute(delete(SCHEMA_SUPPORT))
            connection.execute(insert(SCHEMA_SUPPORT).values(oldest_program=OLDEST_PROGRAM))


def require_current(connection: Connection) -> None:
    """Raises `StoreRefused` unless the tables are up to date; for programs that only read."""
    if not _is_current(connection):
        raise StoreRefused("its tables are from an earlier plugbay; `plugbay migrate` brings them up to date")


def version_of(connection: Connection) -> str | None:
    """The version of the tables; None if there are none."""
    if not inspect(connection).has_table(_VERSION_TABLE):
        return None
    found: str | None = connection.scalar(text(f"SELECT version_num FROM {_VERSION_TABLE}"))
    return found


def downgrade(connection: Connection, revision: str = BASE) -> None:
    """Take steps back, inside the connection's transaction. What later tables held is lost."""
    from alembic import command

    command.downgrade(_config(connection), revision)


def _is_current(connection: Connection) -> bool:
    """Whether the tables are at the last version, or at a later one that this program can use; raises `StoreRefused` if
    it cannot.

    The files of `versions` begin with their number.
    """
    if not inspect(connection).has_table(_VERSION_TABLE):
        return False
    known = sorted(path.name.partition("_")[0] for path in _FOLDER.glob("versions/[0-9]*.py"))
    current = connection.scalar(text(f"SELECT version_num FROM {_VERSION_TABLE}"))
    if current is None or current in known:
        return bool(current == known[-1])
    oldest = _oldest_program(connection)
    if oldest is None or oldest > known[-1]:
        raise StoreRefused(f"the database is at version {current}, which is newer than this plugbay; upgrade plugbay")
    return True


def _oldest_program(connection: Connection) -> str | None:
    """As the program wrote it that migrated last."""
    if not inspect(connection).has_table(SCHEMA_SUPPORT.name):
        return None
    return connection.scalar(select(SCHEMA_SUPPORT.c.oldest_program))


def _config(connection: Connection) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
