"""What plugins on nodes keep: their storage, the memory of agents, vectors."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from plugbay.store.metadata import Json

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.create_table(
        "plugin_storage",
        sa.Column("plugin_id", sa.String(200), nullable=False),
        sa.Column("key", sa.LargeBinary(512), nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("value", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("plugin_id", "key", name="pk_plugin_storage"),
    )
    op.create_table(
        "agent_memories",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("agent_id", sa.String(200), nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("content", Json, nullable=False),
        sa.Column("tags", Json, nullable=False),
        sa.Column("concept_tags", Json, nullable=False),
        sa.Column("created_at", sa.String(40), nullable=False),
        sa.Column("memory_type", sa.String(200)),
        sa.PrimaryKeyConstraint("id", name="pk_agent_memories"),
    )
    op.create_index("ix_agent_memories_agent_id_number", "agent_memories", ["agent_id", "number"])
    op.create_table(
        "agent_memory_terms",
        sa.Column("agent_id", sa.String(200), nullable=False),
        sa.Column("term", sa.String(64), nullable=False),
        sa.Column("memory_id", sa.String(64), nullable=False),
        sa.Column("weight", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("agent_id", "term", "memory_id", name="pk_agent_memory_terms"),
    )
    op.create_index("ix_agent_memory_terms_memory_id", "agent_memory_terms", ["memory_id"])
    op.create_table(
        "vector_collections",
        sa.Column("name", sa.String(512), nullable=False),
        sa.Column("dimension", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_vector_collections"),
    )
    op.create_table(
        "vector_records",
        sa.Column("collection", sa.String(512), nullable=False),
        sa.Column("id", sa.String(512), nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("content", Json, nullable=False),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("vector", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("collection", "id", name="pk_vector_records"),
    )
    op.create_index("ix_vector_records_collection_number", "vector_records", ["collection", "number"])


def downgrade() -> None:
    op.drop_index("ix_vector_records_collection_number", "vector_records")
    op.drop_index("ix_agent_memory_terms_memory_id", "agent_memory_terms")
    op.drop_index("ix_agent_memories_agent_id_number", "agent_memories")
    for table in ("vector_records", "vector_collections", "agent_memory_terms", "agent_memories", "plugin_storage"):
        op.drop_table(table)
