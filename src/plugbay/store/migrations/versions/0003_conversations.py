"""Sessions, chains, runs, compactions, executions of harnesses; events and their deliveries."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from plugbay.store.metadata import Instant, Json

revision = "0003"
down_revision = "0002"

UNENDED = sa.text("status IN ('queued', 'running')")


def upgrade() -> None:
    _sessions_and_chains()
    _runs()
    _compactions()
    _harness_executions()
    _events_and_deliveries()


def _sessions_and_chains() -> None:
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("org_id", sa.String(64), nullable=False),
        sa.Column("project_id", sa.String(64)),
        sa.Column("external_session_id", sa.Text),
        sa.Column("metadata", Json, nullable=False),
        sa.Column("latest_chain_id", sa.String(64)),
        sa.Column("parent_session_id", sa.String(64)),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_sessions"),
        sa.ForeignKeyConstraint(["parent_session_id"], ["sessions.id"], name="fk_sessions_parent_session_id"),
    )
    op.create_index("ix_sessions_org_id_created_at_id", "sessions", ["org_id", "created_at", "id"])
    op.create_index("ix_sessions_org_id_external_session_id", "sessions", ["org_id", "external_session_id"])
    op.create_table(
        "chains",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("org_id", sa.String(64), nullable=False),
        sa.Column("project_id", sa.String(64)),
        sa.Column("session_id", sa.String(64), nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("chain_version", sa.Integer, nullable=False),
        sa.Column("block_count", sa.Integer, nullable=False),
        sa.Column("token_estimate", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("parent_chain_id", sa.String(64)),
        sa.Column("forked_from_run_id", sa.String(64)),
        sa.Column("created_by_compaction_id", sa.String(64)),
        sa.Column("defaults", Json, nullable=False),
        sa.Column("metadata", Json, nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_chains"),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name="fk_chains_session_id"),
        sa.ForeignKeyConstraint(["parent_chain_id"], ["chains.id"], name="fk_chains_parent_chain_id"),
        sa.UniqueConstraint("created_by_compaction_id", name="uq_chains_created_by_compaction_id"),
        sa.CheckConstraint("status IN ('idle', 'running', 'closed')", name=op.f("ck_chains_status")),
    )
    op.create_index("ix_chains_org_id_created_at_id", "chains", ["org_id", "created_at", "id"])
    op.create_index("ix_chains_session_id", "chains", ["session_id"])
    op.create_table(
        "blocks",
        sa.Column("chain_id", sa.String(64), nullable=False),
        sa.Column("sequence", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("run_id", sa.String(64)),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("chain_id", "sequence", name="pk_blocks"),
        sa.ForeignKeyConstraint(["chain_id"], ["chains.id"], name="fk_blocks_chain_id"),
    )


def _runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("org_id", sa.String(64), nullable=False),
        sa.Column("project_id", sa.String(64)),
        sa.Column("session_id", sa.String(64), nullable=False),
        sa.Column("chain_id", sa.String(64), nullable=False),
        sa.Column("parent_run_id", sa.String(64)),
        sa.Column("rerun_of_run_id", sa.String(64)),
        sa.Column("execution_id", sa.String(64)),
        sa.Column("invocation_id", sa.String(64)),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("stop_reason", sa.String(32)),
        sa.Column("error", Json),
        sa.Column("turn_count", sa.Integer, nullable=False),
        sa.Column("tool_count", sa.Integer, nullable=False),
        sa.Column("input_tokens", sa.BigInteger, nullable=False),
        sa.Column("output_tokens", sa.BigInteger, nullable=False),
        sa.Column("request", Json, nullable=False),
        sa.Column("input_through", sa.Integer, nullable=False),
        sa.Column("depth", sa.Integer, nullable=False),
        sa.Column("cause_depth", sa.Integer, nullable=False),
        sa.Column("trace_id", sa.String(200), nullable=False),
        sa.Column("cancel_requested", sa.Boolean, nullable=False),
        sa.Column("metadata", Json, nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("started_at", Instant),
        sa.Column("completed_at", Instant),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name="fk_runs_session_id"),
        sa.ForeignKeyConstraint(["chain_id"], ["chains.id"], name="fk_runs_chain_id"),
        sa.CheckConstraint(
            "status IN ('queued', 'running', 'completed', 'cancelled', 'failed', 'timed_out')",
            name=op.f("ck_runs_status"),
        ),
    )
    op.create_index("ix_runs_chain_id_created_at", "runs", ["chain_id", "created_at"])
    op.create_index("ix_runs_org_id_created_at_id", "runs", ["org_id", "created_at", "id"])
    op.create_index(
        "uq_runs_unended", "runs", ["chain_id"], unique=True, sqlite_where=UNENDED, postgresql_where=UNENDED
    )
    op.create_table(
        "run_events",
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("sequence", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("type", sa.String(64), nullable=False),
        sa.Column("data", Json, nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "sequence", name="pk_run_events"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_run_events_run_id"),
    )
    op.create_table(
        "tool_executions",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("turn", sa.Integer, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("tool_call_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("binding_id", sa.String(64)),
        sa.Column("status", sa.String(32)),
        sa.Column("execution_outcome", sa.String(16)),
        sa.Column("error_code", sa.Text),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("input", sa.LargeBinary, nullable=False),
        sa.Column("result", sa.LargeBinary),
        sa.Column("started_at", Instant, nullable=False),
        sa.Column("ended_at", Instant),
        sa.PrimaryKeyConstraint("id", name="pk_tool_executions"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_tool_executions_run_id"),
        sa.UniqueConstraint("run_id", "turn", "position", name="uq_tool_executions_run_id_turn_position"),
    )


def _compactions() -> None:
    op.create_table(
        "compactions",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("org_id", sa.String(64), nullable=False),
        sa.Column("project_id", sa.String(64)),
        sa.Column("session_id", sa.String(64), nullable=False),
        sa.Column("chain_id", sa.String(64), nullable=False),
        sa.Column("new_chain_id", sa.String(64)),
        sa.Column("binding_id", sa.String(64), nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("target", Json, nullable=False),
        sa.Column("policy", Json, nullable=False),
        sa.Column("pinned_items", Json, nullable=False),
        sa.Column("source_digest", sa.String(64), nullable=False),
        sa.Column("source_blocks", sa.Integer, nullable=False),
        sa.Column("summary", Json),
        sa.Column("diagnostics", Json),
        sa.Column("error", Json),
        sa.Column("created_by_run_id", sa.String(64)),
        sa.Column("invocation_id", sa.String(64)),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("cause_depth", sa.Integer, nullable=False),
        sa.Column("trace_id", sa.String(200), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("started_at", Instant),
        sa.Column("completed_at", Instant),
        sa.PrimaryKeyConstraint("id", name="pk_compactions"),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name="fk_compactions_session_id"),
        sa.ForeignKeyConstraint(["chain_id"], ["chains.id"], name="fk_compactions_chain_id"),
        sa.ForeignKeyConstraint(["new_chain_id"], ["chains.id"], name="fk_compactions_new_chain_id"),
        sa.CheckConstraint(
            "status IN ('queued', 'running', 'succeeded', 'failed', 'cancelled', 'retryable_failure')",
            name=op.f("ck_compactions_status"),
        ),
    )
    op.create_index("ix_compactions_org_id_created_at_id", "compactions", ["org_id", "created_at", "id"])
    op.create_index("ix_compactions_unended", "compactions", ["status"], sqlite_where=UNENDED, postgresql_where=UNENDED)


def _harness_executions() -> None:
    op.create_table(
        "harness_executions",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("org_id", sa.String(64), nullable=False),
        sa.Column("project_id", sa.String(64)),
        sa.Column("session_id", sa.String(64), nullable=False),
        sa.Column("chain_id", sa.String(64), nullable=False),
        sa.Column("binding_id", sa.String(64), nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("mode", sa.String(16), nullable=False),
        sa.Column("trigger", Json, nullable=False),
        sa.Column("policy", Json, nullable=False),
        sa.Column("summary", Json),
        sa.Column("artifacts", Json, nullable=False),
        sa.Column("error", Json),
        sa.Column("resumes", sa.Integer, nullable=False),
        sa.Column("depth", sa.Integer, nullable=False),
        sa.Column("cause_depth", sa.Integer, nullable=False),
        sa.Column("trace_id", sa.String(200), nullable=False),
        sa.Column("cancel_requested", sa.Boolean, nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("started_at", Instant),
        sa.Column("completed_at", Instant),
        sa.PrimaryKeyConstraint("id", name="pk_harness_executions"),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name="fk_harness_executions_session_id"),
        sa.ForeignKeyConstraint(["chain_id"], ["chains.id"], name="fk_harness_executions_chain_id"),
        sa.CheckConstraint(
            "status IN ('queued', 'running', 'succeeded', 'failed', 'cancelled', 'retryable_failure')",
            name=op.f("ck_harness_executions_status"),
        ),
    )
    op.create_index("ix_harness_executions_org_id_created_at_id", "harness_executions", ["org_id", "created_at", "id"])
    op.create_index(
        "ix_harness_executions_unended",
        "harness_executions",
        ["status"],
        sqlite_where=UNENDED,
        postgresql_where=UNENDED,
    )


def _events_and_deliveries() -> None:
    op.create_table(
        "events",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("org_id", sa.String(64), nullable=False),
        sa.Column("project_id", sa.String(64)),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("subject_kind", sa.String(32), nullable=False),
        sa.Column("subject_id", sa.String(64), nullable=False),
        sa.Column("cause_id", sa.String(64), nullable=False),
        sa.Column("session_id", sa.String(64)),
        sa.Column("chain_id", sa.String(64)),
        sa.Column("run_id", sa.String(64)),
        sa.Column("summary", Json, nullable=False),
        sa.Column("trace_id", sa.String(200), nullable=False),
        sa.Column("cause_depth", sa.Integer, nullable=False),
        sa.Column("occurred_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_events"),
        sa.UniqueConstraint("type", "cause_id", name="uq_events_type_cause_id"),
    )
    op.create_index("ix_events_org_id_occurred_at_id", "events", ["org_id", "occurred_at", "id"])
    op.create_table(
        "deliveries",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("event_id", sa.String(64), nullable=False),
        sa.Column("binding_id", sa.String(64), nullable=False),
        sa.Column("org_id", sa.String(64), nullable=False),
        sa.Column("project_id", sa.String(64)),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("reason", sa.String(64)),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("attempt_limit", sa.Integer, nullable=False),
        sa.Column("due_at", Instant, nullable=False),
        sa.Column("lease_owner", sa.String(64)),
        sa.Column("lease_until", Instant),
        sa.Column("error_code", sa.Text),
        sa.Column("invocation_id", sa.String(64)),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("completed_at", Instant),
        sa.PrimaryKeyConstraint("id", name="pk_deliveries"),
        sa.ForeignKeyConstraint(["event_id"], ["events.id"], name="fk_deliveries_event_id"),
        sa.UniqueConstraint("event_id", "binding_id", name="uq_deliveries_event_id_binding_id"),
        sa.CheckConstraint(
            "status IN ('pending', 'delivering', 'delivered', 'failed', 'dead_letter', 'dropped')",
            name=op.f("ck_deliveries_status"),
        ),
    )
    op.create_index("ix_deliveries_binding_id_status", "deliveries", ["binding_id", "status"])
    op.create_index("ix_deliveries_org_id_created_at_id", "deliveries", ["org_id", "created_at", "id"])
    op.create_index("ix_deliveries_status_due_at", "deliveries", ["status", "due_at"])
    op.create_table(
        "delivery_attempts",
        sa.Column("delivery_id", sa.String(64), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("outcome", sa.String(32)),
        sa.Column("error_code", sa.Text),
        sa.Column("invocation_id", sa.String(64)),
        sa.Column("started_at", Instant, nullable=False),
        sa.Column("ended_at", Instant),
        sa.PrimaryKeyConstraint("delivery_id", "attempt", name="pk_delivery_attempts"),
        sa.ForeignKeyConstraint(["delivery_id"], ["deliveries.id"], name="fk_delivery_attempts_delivery_id"),
    )


def downgrade() -> None:
    for table in (
        "delivery_attempts",
        "deliveries",
        "events",
        "harness_executions",
        "compactions",
        "tool_executions",
        "run_events",
        "runs",
        "blocks",
        "chains",
        "sessions",
    ):
        op.drop_table(table)
