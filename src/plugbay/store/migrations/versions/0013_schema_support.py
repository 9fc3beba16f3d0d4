"""The oldest program that can work with the tables: gateways of two releases in turn share a database."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.create_table(
        "schema_support",
        sa.Column("oldest_program", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("oldest_program", name="pk_schema_support"),
    )


def downgrade() -> None:
    op.drop_table("schema_support")
