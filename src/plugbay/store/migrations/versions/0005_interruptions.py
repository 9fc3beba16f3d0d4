"""How often a delivery was interrupted by the end of its server, which is no failure of its hook."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("deliveries", sa.Column("interruptions", sa.Integer, nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("deliveries", "interruptions")
