"""When packages were accepted and deleted, and the marketplace entries of the operator."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from plugbay.store.metadata import Instant, Json

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    for name in ("accepted_at", "deleted_at"):
        op.add_column("plugin_packages", sa.Column(name, Instant))
    op.execute("UPDATE plugin_packages SET accepted_at = created_at WHERE status = 'available'")
    op.create_table(
        "marketplace_entries",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("package_row", sa.String(64), nullable=False),
        sa.Column("export_id", sa.String(64), nullable=False),
        sa.Column("repo", sa.Text, nullable=False),
        sa.Column("refs", Json, nullable=False),
        sa.Column("lock_file", sa.Text),
        sa.Column("reviewed_at", Instant),
        sa.Column("created_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_marketplace_entries"),
        sa.ForeignKeyConstraint(["package_row"], ["plugin_packages.id"], name="fk_marketplace_entries_package_row"),
    )
    op.create_index("ix_marketplace_entries_package_row", "marketplace_entries", ["package_row"])


def downgrade() -> None:
    op.drop_table("marketplace_entries")
    op.execute("DELETE FROM plugin_packages WHERE deleted_at IS NOT NULL")
    for name in ("deleted_at", "accepted_at"):
        op.drop_column("plugin_packages", name)
