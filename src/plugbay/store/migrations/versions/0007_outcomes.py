"""Results and failures of invocations and of attempts at deliveries; attempts of harnesses; test deliveries."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from plugbay.store.metadata import Json

revision = "0007"
down_revision = "0006"

COLUMNS = (
    ("plugin_invocations", "result"),
    ("plugin_invocations", "result_bytes"),
    ("plugin_invocations", "failure"),
    ("plugin_journeys", "attempts"),
    ("deliveries", "test"),
    ("delivery_attempts", "failure"),
)


def upgrade() -> None:
    op.add_column("plugin_invocations", sa.Column("result", sa.LargeBinary))
    op.add_column("plugin_invocations", sa.Column("result_bytes", sa.Integer))
    op.add_column("plugin_invocations", sa.Column("failure", Json))
    op.add_column("plugin_journeys", sa.Column("attempts", sa.Integer, nullable=False, server_default="0"))
    op.add_column("deliveries", sa.Column("test", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("delivery_attempts", sa.Column("failure", Json))


def downgrade() -> None:
    for table, column in reversed(COLUMNS):
        op.drop_column(table, column)
