"""The audit log becomes a hash chain for each org; the entries that exist are chained by time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from plugbay.store.audit import Entry, new_head
from plugbay.store.metadata import Instant
from plugbay.store.tables import AUDIT, AUDIT_HEADS

revision = "0008"
down_revision = "0007"

CHAINED = (("position", sa.BigInteger), ("previous_hash", sa.String(64)), ("hash", sa.String(64)))
PLACE = "ix_audit_org_id_position_id"


def upgrade() -> None:
    for name, kind in CHAINED:
        op.add_column("audit", sa.Column(name, kind))
    op.create_table(
        "audit_heads",
        sa.Column("chain", sa.String(64), nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("at", Instant, nullable=False),
        sa.Column("removed_position", sa.BigInteger, nullable=False),
        sa.Column("removed_hash", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("chain", name="pk_audit_heads"),
    )
    _chain_entries()
    with op.batch_alter_table("audit") as table:
        for name, kind in CHAINED:
            table.alter_column(name, existing_type=kind, nullable=False)
    op.create_index(PLACE, "audit", ["org_id", "position", "id"])


def _chain_entries() -> None:
    connection = op.get_bind()
    heads: dict[str, dict[str, object]] = {}
    columns = [column for column in AUDIT.c if column.name not in dict(CHAINED)]
    # Read whole: the rows change while they are chained.
    for row in connection.execute(sa.select(*columns).order_by(AUDIT.c.at, AUDIT.c.id)).all():
        entry = Entry(**row._mapping)
        head = heads.setdefault(entry.chain, new_head(entry.chain))
        placed = entry.placed_after(int(str(head["position"])), str(head["hash"]))
        place = {"position": placed.position, "previous_hash": placed.previous_hash, "hash": placed.hash}
        connection.execute(AUDIT.update().where(AUDIT.c.id == entry.id).values(**place))
        head.update(position=placed.position, hash=placed.hash, at=placed.at)
    if heads:
        connection.execute(AUDIT_HEADS.insert(), list(heads.values()))


def downgrade() -> None:
    op.drop_index(PLACE, "audit")
    op.drop_table("audit_heads")
    for name, _ in reversed(CHAINED):
        op.drop_column("audit", name)
