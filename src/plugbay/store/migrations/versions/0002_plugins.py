"""Packages, bindings, invocations with their tokens and what they spend, secrets, the journeys of harnesses."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from plugbay.store.metadata import Instant, Json

revision = "0002"
down_revision = "0001"

OPEN = sa.text("status IS NULL")
ALIVE = sa.text("revoked_at IS NULL")


def upgrade() -> None:
    _bound()
    _done()
    _kept()


def _bound() -> None:
    op.create_table(
        "plugin_packages",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("org_id", sa.String(64), nullable=False),
        sa.Column("package_id", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("digest", sa.String(80), nullable=False),
        sa.Column("tree_sha256", sa.String(64), nullable=False),
        sa.Column("manifest", Json, nullable=False),
        sa.Column("signature_status", sa.String(16), nullable=False),
        sa.Column("key_id", sa.String(64)),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_plugin_packages"),
        sa.UniqueConstraint("org_id", "package_id", "version", name="uq_plugin_packages_org_id_package_id_version"),
        sa.CheckConstraint("status IN ('available', 'quarantined')", name=op.f("ck_plugin_packages_status")),
    )
    op.create_index("ix_plugin_packages_created_at_id", "plugin_packages", ["created_at", "id"])
    op.create_table(
        "plugin_bindings",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("package_row", sa.String(64), nullable=False),
        sa.Column("package_id", sa.Text, nullable=False),
        sa.Column("package_version", sa.Text, nullable=False),
        sa.Column("export_id", sa.String(64), nullable=False),
        sa.Column("export_kind", sa.String(16), nullable=False),
        sa.Column("org_id", sa.String(64), nullable=False),
        sa.Column("project_id", sa.String(64)),
        sa.Column("config", Json, nullable=False),
        sa.Column("secrets", Json, nullable=False),
        sa.Column("policy", Json, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("traffic_percent", sa.Integer, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_plugin_bindings"),
        sa.ForeignKeyConstraint(["org_id"], ["orgs.id"], name="fk_plugin_bindings_org_id"),
        sa.ForeignKeyConstraint(["package_row"], ["plugin_packages.id"], name="fk_plugin_bindings_package_row"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_plugin_bindings_project_id"),
        sa.CheckConstraint("status IN ('draft', 'active', 'disabled')", name=op.f("ck_plugin_bindings_status")),
        sa.CheckConstraint("traffic_percent BETWEEN 0 AND 100", name=op.f("ck_plugin_bindings_traffic_percent")),
    )
    op.create_index("ix_plugin_bindings_org_id_created_at_id", "plugin_bindings", ["org_id", "created_at", "id"])
    op.create_index(
        "ix_plugin_bindings_org_id_export_kind_status", "plugin_bindings", ["org_id", "export_kind", "status"]
    )
    op.create_index("ix_plugin_bindings_package_row", "plugin_bindings", ["package_row"])


def _done() -> None:
    op.create_table(
        "plugin_invocations",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("trace_id", sa.String(200), nullable=False),
        sa.Column("export_kind", sa.String(16), nullable=False),
        sa.Column("export_id", sa.String(64), nullable=False),
        sa.Column("package_id", sa.Text, nullable=False),
        sa.Column("package_version", sa.Text, nullable=False),
        sa.Column("binding_id", sa.String(64)),
        sa.Column("execution_class", sa.String(16), nullable=False),
        sa.Column("org_id", sa.String(64), nullable=False),
        sa.Column("project_id", sa.String(64)),
        sa.Column("session_id", sa.String(200)),
        sa.Column("chain_id", sa.String(200)),
        sa.Column("run_id", sa.String(200)),
        sa.Column("execution_id", sa.String(200), nullable=False),
        sa.Column("retry_count", sa.Integer, nullable=False),
        sa.Column("permissions", Json, nullable=False),
        sa.Column("narrowed", sa.Boolean, nullable=False),
        sa.Column("request_bytes", sa.Integer, nullable=False),
        sa.Column("event_count", sa.Integer, nullable=False),
        sa.Column("started_at", Instant, nullable=False),
        sa.Column("ended_at", Instant),
        sa.Column("status", sa.String(32)),
        sa.Column("status_reason", sa.String(64)),
        sa.Column("error_code", sa.Text),
        sa.PrimaryKeyConstraint("id", name="pk_plugin_invocations"),
    )
    op.create_index("ix_plugin_invocations_binding_id_started_at", "plugin_invocations", ["binding_id", "started_at"])
    op.create_index("ix_plugin_invocations_execution_id", "plugin_invocations", ["execution_id"])
    op.create_index(
        "ix_plugin_invocations_open", "plugin_invocations", ["id"], sqlite_where=OPEN, postgresql_where=OPEN
    )
    op.create_index("ix_plugin_invocations_org_id_started_at_id", "plugin_invocations", ["org_id", "started_at", "id"])
    op.create_index("ix_plugin_invocations_started_at_id", "plugin_invocations", ["started_at", "id"])
    op.create_table(
        "plugin_tokens",
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("invocation_id", sa.String(64), nullable=False),
        sa.Column("binding_id", sa.String(64)),
        sa.Column("org_id", sa.String(64), nullable=False),
        sa.Column("execution_id", sa.String(200), nullable=False),
        sa.Column("claims", Json, nullable=False),
        sa.Column("issued_at", Instant, nullable=False),
        sa.Column("expires_at", Instant, nullable=False),
        sa.Column("revoked_at", Instant),
        sa.PrimaryKeyConstraint("digest", name="pk_plugin_tokens"),
        sa.ForeignKeyConstraint(["invocation_id"], ["plugin_invocations.id"], name="fk_plugin_tokens_invocation_id"),
    )
    op.create_index(
        "ix_plugin_tokens_alive", "plugin_tokens", ["binding_id"], sqlite_where=ALIVE, postgresql_where=ALIVE
    )
    op.create_index("ix_plugin_tokens_expires_at", "plugin_tokens", ["expires_at"])
    op.create_index("ix_plugin_tokens_invocation_id", "plugin_tokens", ["invocation_id"])
    op.create_table(
        "plugin_spending",
        sa.Column("org_id", sa.String(64), nullable=False),
        sa.Column("execution_id", sa.String(200), nullable=False),
        sa.Column("what", sa.String(32), nullable=False),
        sa.Column("spent", sa.Integer, nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("org_id", "execution_id", "what", name="pk_plugin_spending"),
    )


def _kept() -> None:
    op.create_table(
        "secrets",
        sa.Column("org_id", sa.String(64), nullable=False),
        sa.Column("scope", sa.String(64), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("key_id", sa.String(16), nullable=False),
        sa.Column("nonce", sa.LargeBinary(12), nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("org_id", "scope", "name", name="pk_secrets"),
        sa.ForeignKeyConstraint(["org_id"], ["orgs.id"], name="fk_secrets_org_id"),
        sa.UniqueConstraint("id", name="uq_secrets_id"),
    )
    op.create_index("ix_secrets_key_id", "secrets", ["key_id"])
    op.create_table(
        "plugin_journeys",
        sa.Column("key", sa.String(280), nullable=False),
        sa.Column("trigger", Json),
        sa.Column("checkpoint", Json),
        sa.Column("summary", sa.Text),
        sa.Column("updated_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_plugin_journeys"),
    )
    op.create_index("ix_plugin_journeys_updated_at", "plugin_journeys", ["updated_at"])


def downgrade() -> None:
    op.drop_table("plugin_journeys")
    op.drop_table("secrets")
    op.drop_table("plugin_spending")
    op.drop_table("plugin_tokens")
    op.drop_table("plugin_invocations")
    op.drop_table("plugin_bindings")
    op.drop_table("plugin_packages")
