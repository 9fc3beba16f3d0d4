"""Orgs, projects, keys, the audit log, answers to repeated requests, calls of the host's plugins."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from plugbay.store.metadata import Instant, Json

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "orgs",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("policy", Json, nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_orgs"),
    )
    op.create_index("ix_orgs_created_at_id", "orgs", ["created_at", "id"])
    op.create_table(
        "projects",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("org_id", sa.String(64), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_projects"),
        sa.ForeignKeyConstraint(["org_id"], ["orgs.id"], name="fk_projects_org_id"),
    )
    op.create_index("ix_projects_org_id_created_at_id", "projects", ["org_id", "created_at", "id"])
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("org_id", sa.String(64), nullable=False),
        sa.Column("project_id", sa.String(64)),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("hint", sa.String(16), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("expires_at", Instant),
        sa.Column("revoked_at", Instant),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.ForeignKeyConstraint(["org_id"], ["orgs.id"], name="fk_api_keys_org_id"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_api_keys_project_id"),
        sa.UniqueConstraint("digest", name="uq_api_keys_digest"),
    )
    op.create_index("ix_api_keys_org_id_created_at_id", "api_keys", ["org_id", "created_at", "id"])
    _journals()


def _journals() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("at", Instant, nullable=False),
        sa.Column("org_id", sa.String(64)),
        sa.Column("project_id", sa.String(64)),
        sa.Column("actor_kind", sa.String(16), nullable=False),
        sa.Column("actor_id", sa.String(64), nullable=False),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("subject_kind", sa.String(32), nullable=False),
        sa.Column("subject_id", sa.Text, nullable=False),
        sa.Column("request_id", sa.String(128)),
        sa.Column("details", Json, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
    )
    op.create_index("ix_audit_org_id_at_id", "audit", ["org_id", "at", "id"])
    op.create_index("ix_audit_at_id", "audit", ["at", "id"])
    op.create_index("ix_audit_subject_id_at", "audit", ["subject_id", "at"])
    op.create_table(
        "idempotency",
        sa.Column("key", sa.LargeBinary(32), nullable=False),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("headers", Json),
        sa.Column("body", sa.LargeBinary),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("expires_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_idempotency"),
    )
    op.create_index("ix_idempotency_expires_at", "idempotency", ["expires_at"])
    op.create_table(
        "calls",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("plugin", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("contract", sa.String(32), nullable=False),
        sa.Column("export", sa.Text, nullable=False),
        sa.Column("started_at", Instant, nullable=False),
        sa.Column("duration_ms", sa.Float, nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("failure", Json),
        sa.Column("retryable", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_calls"),
    )
    op.create_index("ix_calls_started_at_id", "calls", ["started_at", "id"])
    op.create_index("ix_calls_plugin_started_at", "calls", ["plugin", "started_at"])


def downgrade() -> None:
    for table in ("calls", "idempotency", "audit", "api_keys", "projects", "orgs"):
        op.drop_table(table)
