"""Several gateways on one database: leases, owners of unfinished work, the edition of settled tables, logins."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from plugbay.store.metadata import Instant, Json

revision = "0010"
down_revision = "0009"

OWNED = ("plugin_invocations", "runs", "compactions", "harness_executions", "idempotency")
"""Work that belongs to the gateway that began it."""


def upgrade() -> None:
    op.create_table(
        "leases",
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("holder", sa.String(64), nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("until", Instant, nullable=False),
        sa.Column("facts", Json, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_leases"),
    )
    op.create_table(
        "settled",
        sa.Column("id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("edition", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_settled"),
    )
    op.execute("INSERT INTO settled (id, edition) VALUES (1, 1)")
    op.create_table(
        "cluster_settings",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("value", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_cluster_settings"),
    )
    op.create_table(
        "logins",
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column("ends_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_logins"),
    )
    op.create_index("ix_logins_ends_at", "logins", ["ends_at"])
    op.create_table(
        "package_files",
        sa.Column("digest", sa.String(80), nullable=False),
        sa.Column("archive", sa.LargeBinary, nullable=False),
        sa.Column("signature", sa.LargeBinary),
        sa.PrimaryKeyConstraint("digest", name="pk_package_files"),
    )
    for table in OWNED:
        op.add_column(table, sa.Column("owner", sa.String(64)))
    op.add_column("plugin_invocations", sa.Column("cancel_reason", sa.String(64)))


def downgrade() -> None:
    op.drop_column("plugin_invocations", "cancel_reason")
    for table in reversed(OWNED):
        op.drop_column(table, "owner")
    op.drop_index("ix_logins_ends_at", "logins")
    for table in ("package_files", "logins", "cluster_settings", "settled", "leases"):
        op.drop_table(table)
