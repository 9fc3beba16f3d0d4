"""Indexes by which records that are too old are found, and what still names them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

INVOKED = sa.text("invocation_id IS NOT NULL")

BY_AGE = {
    "deliveries": ["completed_at", "id"],
    "events": ["occurred_at", "id"],
    "plugin_spending": ["updated_at"],
}
NAMING = ("compactions", "delivery_attempts", "runs")


def upgrade() -> None:
    for table, columns in BY_AGE.items():
        op.create_index(f"ix_{table}_{'_'.join(columns)}", table, columns)
    for table in NAMING:
        op.create_index(
            f"ix_{table}_invocation_id", table, ["invocation_id"], sqlite_where=INVOKED, postgresql_where=INVOKED
        )


def downgrade() -> None:
    for table in NAMING:
        op.drop_index(f"ix_{table}_invocation_id", table)
    for table, columns in BY_AGE.items():
        op.drop_index(f"ix_{table}_{'_'.join(columns)}", table)
