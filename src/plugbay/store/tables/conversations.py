"""The tables of conversations: sessions, chains and their blocks, runs, compactions, executions of harnesses.

Owns their columns and the two rules that only a database can hold at all times: a chain has at most one run that has
not ended, and a compaction makes at most one chain. Blocks are written once and never touched again.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from plugbay.store.metadata import METADATA, Instant, Json

ID = String(64)
"""An id of ours, or one that a caller made up and that we accept."""

UNENDED = text("status IN ('queued', 'running')")
"""What has not come to its end. The same words in every index that speaks of it."""

INVOKED = text("invocation_id IS NOT NULL")
"""What an invocation has made, or tried: that one is kept as long as this is."""

SESSIONS = Table(
    "sessions",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("org_id", ID, nullable=False),
    Column("project_id", ID),
    Column("external_session_id", Text),
    Column("metadata", Json, nullable=False),
    Column("latest_chain_id", ID),
    Column("parent_session_id", ID, ForeignKey("sessions.id")),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Index(None, "org_id", "created_at", "id"),
    Index(None, "org_id", "external_session_id"),
)

CHAINS = Table(
    "chains",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("org_id", ID, nullable=False),
    Column("project_id", ID),
    Column("session_id", ID, ForeignKey("sessions.id"), nullable=False),
    Column("status", String(32), nullable=False),
    Column("chain_version", Integer, nullable=False),
    Column("block_count", Integer, nullable=False),
    Column("token_estimate", BigInteger, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("parent_chain_id", ID, ForeignKey("chains.id")),
    Column("forked_from_run_id", ID),
    Column("created_by_compaction_id", ID),
    Column("defaults", Json, nullable=False),
    Column("metadata", Json, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    UniqueConstraint("created_by_compaction_id"),
    CheckConstraint("status IN ('idle', 'running', 'closed')", name="status"),
    Index(None, "org_id", "created_at", "id"),
    Index(None, "session_id"),
)
"""`digest` covers every block so far, in order; `block_count` is the sequence of the last one."""

BLOCKS = Table(
    "blocks",
    METADATA,
    Column("chain_id", ID, ForeignKey("chains.id"), primary_key=True),
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    Column("id", ID, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("run_id", ID),
    Column("body", LargeBinary, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("created_at", Instant, nullable=False),
)
"""`body` is the block as JSON, byte by byte as it was written; `digest` covers it and every block before it."""

RUNS = Table(
    "runs",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("org_id", ID, nullable=False),
    Column("project_id", ID),
    Column("session_id", ID, ForeignKey("sessions.id"), nullable=False),
    Column("chain_id", ID, ForeignKey("chains.id"), nullable=False),
    Column("parent_run_id", ID),
    Column("rerun_of_run_id", ID),
    Column("execution_id", ID),
    Column("invocation_id", ID),
    Column("model", Text, nullable=False),
    Column("status", String(32), nullable=False),
    Column("stop_reason", String(32)),
    Column("error", Json),
    Column("turn_count", Integer, nullable=False),
    Column("tool_count", Integer, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("request", Json, nullable=False),
    Column("input_through", Integer, nullable=False),
    Column("depth", Integer, nullable=False),
    Column("cause_depth", Integer, nullable=False),
    Column("trace_id", String(200), nullable=False),
    Column("cancel_requested", Boolean, nullable=False),
    Column("metadata", Json, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("started_at", Instant),
    Column("completed_at", Instant),
    CheckConstraint("status IN ('queued', 'running', 'completed', 'cancelled', 'failed', 'timed_out')", name="status"),
    Index(None, "org_id", "created_at", "id"),
    Index(None, "chain_id", "created_at"),
    Index("ix_runs_invocation_id", "invocation_id", sqlite_where=INVOKED, postgresql_where=INVOKED),
    Index("uq_runs_unended", "chain_id", unique=True, sqlite_where=UNENDED, postgresql_where=UNENDED),
)
"""`input_through` is the last block before the model is asked; `cause_depth` how many events led to it."""

RUN_EVENTS = Table(
    "run_events",
    METADATA,
    Column("run_id", ID, ForeignKey("runs.id"), primary_key=True),
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    Column("type", String(64), nullable=False),
    Column("data", Json, nullable=False),
    Column("created_at", Instant, nullable=False),
)
"""What happened in a run, for its timeline. Pieces of replies are not kept."""

TOOL_EXECUTIONS = Table(
    "tool_executions",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("run_id", ID, ForeignKey("runs.id"), nullable=False),
    Column("turn", Integer, nullable=False),
    Column("position", Integer, nullable=False),
    Column("tool_call_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("binding_id", ID),
    Column("status", String(32)),
    Column("execution_outcome", String(16)),
    Column("error_code", Text),
    Column("attempts", Integer, nullable=False),
    Column("input", LargeBinary, nullable=False),
    Column("result", LargeBinary),
    Column("started_at", Instant, nullable=False),
    Column("ended_at", Instant),
    UniqueConstraint("run_id", "turn", "position"),
)
"""What a run asked of tools. The blocks of a turn come into the chain only when each of these has ended."""

COMPACTIONS = Table(
    "compactions",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("org_id", ID, nullable=False),
    Column("project_id", ID),
    Column("session_id", ID, ForeignKey("sessions.id"), nullable=False),
    Column("chain_id", ID, ForeignKey("chains.id"), nullable=False),
    Column("new_chain_id", ID, ForeignKey("chains.id")),
    Column("binding_id", ID, nullable=False),
    Column("status", String(32), nullable=False),
    Column("target", Json, nullable=False),
    Column("policy", Json, nullable=False),
    Column("pinned_items", Json, nullable=False),
    Column("source_digest", String(64), nullable=False),
    Column("source_blocks", Integer, nullable=False),
    Column("summary", Json),
    Column("diagnostics", Json),
    Column("error", Json),
    Column("created_by_run_id", ID),
    Column("invocation_id", ID),
    Column("attempts", Integer, nullable=False),
    Column("cause_depth", Integer, nullable=False),
    Column("trace_id", String(200), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("started_at", Instant),
    Column("completed_at", Instant),
    CheckConstraint(
        "status IN ('queued', 'running', 'succeeded', 'failed', 'cancelled', 'retryable_failure')",
        name="status",
    ),
    Index(None, "org_id", "created_at", "id"),
    Index("ix_compactions_invocation_id", "invocation_id", sqlite_where=INVOKED, postgresql_where=INVOKED),
    Index("ix_compactions_unended", "status", sqlite_where=UNENDED, postgresql_where=UNENDED),
)
"""`source_digest` is the chain's digest when it was asked for: the same at the end, or nothing is made of it."""

HARNESS_EXECUTIONS = Table(
    "harness_executions",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("org_id", ID, nullable=False),
    Column("project_id", ID),
    Column("session_id", ID, ForeignKey("sessions.id"), nullable=False),
    Column("chain_id", ID, ForeignKey("chains.id"), nullable=False),
    Column("binding_id", ID, nullable=False),
    Column("status", String(32), nullable=False),
    Column("mode", String(16), nullable=False),
    Column("trigger", Json, nullable=False),
    Column("policy", Json, nullable=False),
    Column("summary", Json),
    Column("artifacts", Json, nullable=False),
    Column("error", Json),
    Column("resumes", Integer, nullable=False),
    Column("depth", Integer, nullable=False),
    Column("cause_depth", Integer, nullable=False),
    Column("trace_id", String(200), nullable=False),
    Column("cancel_requested", Boolean, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("started_at", Instant),
    Column("completed_at", Instant),
    CheckConstraint(
        "status IN ('queued', 'running', 'succeeded', 'failed', 'cancelled', 'retryable_failure')",
        name="status",
    ),
    Index(None, "org_id", "created_at", "id"),
    Index("ix_harness_executions_unended", "status", sqlite_where=UNENDED, postgresql_where=UNENDED),
)
