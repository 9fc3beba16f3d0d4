"""The node of a cluster that carried an invocation out."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.add_column("plugin_invocations", sa.Column("node", sa.String(64)))


def downgrade() -> None:
    op.drop_column("plugin_invocations", "node")
