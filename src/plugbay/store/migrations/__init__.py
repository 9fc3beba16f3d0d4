"""From any earlier version of the tables to this one, and back. `versions` has the steps, in the order of their names.

Owns that a database which is newer than this program is left alone, and that two programs that start at the same time
do not both migrate.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from plugbay.store.failures import StoreRefused

HEAD = "head"
BASE = "base"

_LOCK = 0x706C7567
"""Any number that nobody else takes for a lock in the same database."""


def upgrade(connection: Connection, revision: str = HEAD) -> None:
    """Bring the tables up to date, inside the connection's transaction; raises `StoreRefused`."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
    config = _config(connection)
    scripts = ScriptDirectory.from_config(config)
    current = MigrationContext.configure(connection).get_current_revision()
    if current is not None and current not in {script.revision for script in scripts.walk_revisions()}:
        raise StoreRefused(f"the database is at version {current}, which is newer than this plugbay; upgrade plugbay")
    if current != scripts.get_current_head():
        command.upgrade(config, revision)


def downgrade(connection: Connection, revision: str = BASE) -> None:
    """Take steps back, inside the connection's transaction. What later tables held is lost."""
    command.downgrade(_config(connection), revision)


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
