"""What Alembic runs for each migration: the connection it was given, and nothing of its own."""

from __future__ import annotations

from alembic import context

from plugbay.store.metadata import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    transactional_ddl=True,
    render_as_batch=True,  # SQLite changes a table by making another one
)
context.run_migrations()
