"""All tables: tenancy, plugins, conversations, event deliveries, gateways. Importing it makes `METADATA` complete.

Invariants held by the database: a chain has at most one unfinished run, a compaction makes at most one chain, and a
binding has one delivery per event. Accepted packages and blocks are immutable; an invocation is opened and closed
once; tokens are stored as SHA-256, secrets encrypted. An event and its deliveries are written in the transaction that
causes the event.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy import UniqueConstraint as Unique

from plugbay.store.metadata import METADATA, SETTLED, Instant, Json

SCHEMA_SUPPORT = Table("schema_support", METADATA, Column("oldest_program", String(32), primary_key=True))
"""One row: the last version of the tables that a program must know to work with them."""

ORGS = Table(
    "orgs",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("name", Text, nullable=False),
    Column("policy", Json, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Index(None, "created_at", "id"),
    info=SETTLED,
)
"""`policy` is the upper limit of the grants of all bindings of the org."""

PROJECTS = Table(
    "projects",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("org_id", String(64), ForeignKey("orgs.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Index(None, "org_id", "created_at", "id"),
)

API_KEYS = Table(
    "api_keys",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("org_id", String(64), ForeignKey("orgs.id"), nullable=False),
    Column("project_id", String(64), ForeignKey("projects.id")),
    Column("name", Text, nullable=False),
    Column("role", String(16), nullable=False),
    Column("digest", LargeBinary(32), nullable=False),
    Column("hint", String(16), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant),
    Column("revoked_at", Instant),
    Unique("digest"),
    Index(None, "org_id", "created_at", "id"),
    info=SETTLED,
)
"""`digest` is the SHA-256 of the key; `hint` its last characters, for recognition."""

AUDIT = Table(
    "audit",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("at", Instant, nullable=False),
    Column("org_id", String(64)),
    Column("project_id", String(64)),
    Column("actor_kind", String(16), nullable=False),
    Column("actor_id", String(64), nullable=False),
    Column("action", String(64), nullable=False),
    Column("subject_kind", String(32), nullable=False),
    Column("subject_id", Text, nullable=False),
    Column("request_id", String(128)),
    Column("details", Json, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("previous_hash", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    Index(None, "org_id", "at", "id"),
    Index(None, "at", "id"),
    Index(None, "subject_id", "at"),
    Index(None, "org_id", "position", "id"),
)
"""The audit log: a hash chain for each org. No foreign keys: it outlives the records it refers to."""

AUDIT_HEADS = Table(
    "audit_heads",
    METADATA,
    Column("chain", String(64), primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("hash", String(64), nullable=False),
    Column("at", Instant, nullable=False),
    Column("removed_position", BigInteger, nullable=False),
    Column("removed_hash", String(64), nullable=False),
)
"""The last entry of each chain of the audit log, and the last one that retention removed. `chain` is an org, or
`*` for entries without one."""

IDEMPOTENCY = Table(
    "idempotency",
    METADATA,
    Column("key", LargeBinary(32), primary_key=True),
    Column("digest", LargeBinary(32), nullable=False),
    Column("state", String(16), nullable=False),
    Column("status", Integer),
    Column("headers", Json),
    Column("body", LargeBinary),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False),
    Column("owner", String(64)),
    Index(None, "expires_at"),
)
"""`key` is the SHA-256 of caller and Idempotency-Key, `digest` that of the request."""

CALLS = Table(
    "calls",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("plugin", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("contract", String(32), nullable=False),
    Column("export", Text, nullable=False),
    Column("started_at", Instant, nullable=False),
    Column("duration_ms", Float, nullable=False),
    Column("status", String(32), nullable=False),
    Column("failure", Json),
    Column("retryable", Boolean, nullable=False),
    Index(None, "started_at", "id"),
    Index(None, "plugin", "started_at"),
)
"""Calls of the plugins in the host's folders; limited in number."""


ID = String(64)

OPEN = text("status IS NULL")
ALIVE = text("revoked_at IS NULL")

PACKAGES = Table(
    "plugin_packages",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("org_id", String(64), nullable=False),
    Column("package_id", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("digest", String(80), nullable=False),
    Column("tree_sha256", String(64), nullable=False),
    Column("manifest", Json, nullable=False),
    Column("signature_status", String(16), nullable=False),
    Column("key_id", String(64)),
    Column("status", String(16), nullable=False),
    Column("source", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("accepted_at", Instant),
    Column("deleted_at", Instant),
    UniqueConstraint("org_id", "package_id", "version"),
    CheckConstraint("status IN ('available', 'quarantined')", name="status"),
    Index(None, "created_at", "id"),
    info=SETTLED,
)
"""`org_id` is empty for packages that all orgs may use. `accepted_at` is when the package was first available; its
contents never change afterwards. The row of a deleted package stays, so that its version is not released twice."""

MARKETPLACE_ENTRIES = Table(
    "marketplace_entries",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("package_row", ID, ForeignKey("plugin_packages.id"), nullable=False),
    Column("export_id", String(64), nullable=False),
    Column("repo", Text, nullable=False),
    Column("refs", Json, nullable=False),
    Column("lock_file", Text),
    Column("reviewed_at", Instant),
    Column("created_at", Instant, nullable=False),
    Index(None, "package_row"),
)
"""Entries that the operator has published; all entries of a package that all orgs may use."""

BINDINGS = Table(
    "plugin_bindings",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("package_row", ID, ForeignKey("plugin_packages.id"), nullable=False),
    Column("package_id", Text, nullable=False),
    Column("package_version", Text, nullable=False),
    Column("export_id", String(64), nullable=False),
    Column("export_kind", String(16), nullable=False),
    Column("org_id", String(64), ForeignKey("orgs.id"), nullable=False),
    Column("project_id", String(64), ForeignKey("projects.id")),
    Column("config", Json, nullable=False),
    Column("secrets", Json, nullable=False),
    Column("policy", Json, nullable=False),
    Column("status", String(16), nullable=False),
    Column("traffic_percent", Integer, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    CheckConstraint("status IN ('draft', 'active', 'disabled')", name="status"),
    CheckConstraint("traffic_percent BETWEEN 0 AND 100", name="traffic_percent"),
    Index(None, "org_id", "created_at", "id"),
    Index(None, "org_id", "export_kind", "status"),
    Index(None, "package_row"),
    info=SETTLED,
)
"""`secrets` holds references, never values. `revision` is incremented with each change."""

INVOCATIONS = Table(
    "plugin_invocations",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("trace_id", String(200), nullable=False),
    Column("export_kind", String(16), nullable=False),
    Column("export_id", String(64), nullable=False),
    Column("package_id", Text, nullable=False),
    Column("package_version", Text, nullable=False),
    Column("binding_id", ID),
    Column("execution_class", String(16), nullable=False),
    Column("org_id", String(64), nullable=False),
    Column("project_id", String(64)),
    Column("session_id", String(200)),
    Column("chain_id", String(200)),
    Column("run_id", String(200)),
    Column("execution_id", String(200), nullable=False),
    Column("retry_count", Integer, nullable=False),
    Column("permissions", Json, nullable=False),
    Column("narrowed", Boolean, nullable=False),
    Column("request_bytes", Integer, nullable=False),
    Column("event_count", Integer, nullable=False),
    Column("started_at", Instant, nullable=False),
    Column("ended_at", Instant),
    Column("status", String(32)),
    Column("status_reason", String(64)),
    Column("error_code", Text),
    Column("result", LargeBinary),
    Column("result_bytes", Integer),
    Column("failure", Json),
    Column("owner", String(64)),
    Column("cancel_reason", String(64)),
    Column("node", String(64)),
    Index(None, "org_id", "started_at", "id"),
    Index(None, "started_at", "id"),
    Index(None, "binding_id", "started_at"),
    Index(None, "execution_id"),
    Index("ix_plugin_invocations_open", "id", sqlite_where=OPEN, postgresql_where=OPEN),
)
"""No foreign keys: an invocation stays on record whatever happens to its binding or package."""

TOKENS = Table(
    "plugin_tokens",
    METADATA,
    Column("digest", LargeBinary(32), primary_key=True),
    Column("invocation_id", ID, ForeignKey("plugin_invocations.id"), nullable=False),
    Column("binding_id", ID),
    Column("org_id", String(64), nullable=False),
    Column("execution_id", String(200), nullable=False),
    Column("claims", Json, nullable=False),
    Column("issued_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False),
    Column("revoked_at", Instant),
    Index(None, "invocation_id"),
    Index(None, "expires_at"),
    Index("ix_plugin_tokens_alive", "binding_id", sqlite_where=ALIVE, postgresql_where=ALIVE),
)

SPENDING = Table(
    "plugin_spending",
    METADATA,
    Column("org_id", String(64), primary_key=True),
    Column("execution_id", String(200), primary_key=True),
    Column("what", String(32), primary_key=True),
    Column("spent", Integer, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Index(None, "updated_at"),
)
"""Use of limits by the tokens of one execution, over all attempts."""

SECRETS = Table(
    "secrets",
    METADATA,
    Column("org_id", String(64), ForeignKey("orgs.id"), primary_key=True),
    Column("scope", String(64), primary_key=True),
    Column("name", String(128), primary_key=True),
    Column("id", ID, nullable=False),
    Column("version", Integer, nullable=False),
    Column("key_id", String(16), nullable=False),
    Column("nonce", LargeBinary(12), nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    UniqueConstraint("id"),
    Index(None, "key_id"),
)
"""`scope` is the org or one of its projects, as in `secret://scope/name`."""

JOURNEYS = Table(
    "plugin_journeys",
    METADATA,
    Column("key", String(280), primary_key=True),
    Column("trigger", Json),
    Column("checkpoint", Json),
    Column("summary", Text),
    Column("updated_at", Instant, nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Index(None, "updated_at"),
)
"""Checkpoints of harness executions."""


UNFINISHED = text("status IN ('queued', 'running')")
"""Condition for unfinished rows; the same text in every index."""

INVOKED = text("invocation_id IS NOT NULL")
"""Reference to an invocation, which is kept as long as this row."""

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
"""`digest` covers all blocks in order; `block_count` is the sequence number of the last one."""

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
"""`body` is the JSON of the block, byte for byte; `digest` covers it and all blocks before."""

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
    Column("owner", String(64)),
    CheckConstraint("status IN ('queued', 'running', 'completed', 'cancelled', 'failed', 'timed_out')", name="status"),
    Index(None, "org_id", "created_at", "id"),
    Index(None, "chain_id", "created_at"),
    Index("ix_runs_invocation_id", "invocation_id", sqlite_where=INVOKED, postgresql_where=INVOKED),
    Index("uq_runs_unended", "chain_id", unique=True, sqlite_where=UNFINISHED, postgresql_where=UNFINISHED),
)
"""`input_through` is the last block before the model call; `cause_depth` the number of events that led to it."""

RUN_EVENTS = Table(
    "run_events",
    METADATA,
    Column("run_id", ID, ForeignKey("runs.id"), primary_key=True),
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    Column("type", String(64), nullable=False),
    Column("data", Json, nullable=False),
    Column("created_at", Instant, nullable=False),
)
"""Timeline of a run. Partial replies are not kept."""

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
"""Tool calls of a run. The blocks of a turn are added to the chain when all of its tool calls have ended."""

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
    Column("owner", String(64)),
    CheckConstraint(
        "status IN ('queued', 'running', 'succeeded', 'failed', 'cancelled', 'retryable_failure')",
        name="status",
    ),
    Index(None, "org_id", "created_at", "id"),
    Index("ix_compactions_invocation_id", "invocation_id", sqlite_where=INVOKED, postgresql_where=INVOKED),
    Index("ix_compactions_unended", "status", sqlite_where=UNFINISHED, postgresql_where=UNFINISHED),
)
"""`source_digest` is the digest of the chain at the request; if it changed by the end, the result is discard."""

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
    Column("owner", String(64)),
    CheckConstraint(
        "status IN ('queued', 'running', 'succeeded', 'failed', 'cancelled', 'retryable_failure')",
        name="status",
    ),
    Index(None, "org_id", "created_at", "id"),
    Index("ix_harness_executions_unended", "status", sqlite_where=UNFINISHED, postgresql_where=UNFINISHED),
)


EVENTS = Table(
    "events",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("org_id", ID, nullable=False),
    Column("project_id", ID),
    Column("type", Text, nullable=False),
    Column("subject_kind", String(32), nullable=False),
    Column("subject_id", ID, nullable=False),
    Column("cause_id", ID, nullable=False),
    Column("session_id", ID),
    Column("chain_id", ID),
    Column("run_id", ID),
    Column("summary", Json, nullable=False),
    Column("trace_id", String(200), nullable=False),
    Column("cause_depth", Integer, nullable=False),
    Column("occurred_at", Instant, nullable=False),
    UniqueConstraint("type", "cause_id"),
    Index(None, "org_id", "occurred_at", "id"),
    Index(None, "occurred_at", "id"),
)
"""`cause_id` is the run or compaction that caused it; each causes at most one event of a type."""

DELIVERIES = Table(
    "deliveries",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("event_id", ID, ForeignKey("events.id"), nullable=False),
    Column("binding_id", ID, nullable=False),
    Column("org_id", ID, nullable=False),
    Column("project_id", ID),
    Column("status", String(32), nullable=False),
    Column("reason", String(64)),
    Column("attempts", Integer, nullable=False),
    Column("attempt_limit", Integer, nullable=False),
    Column("due_at", Instant, nullable=False),
    Column("lease_owner", String(64)),
    Column("lease_until", Instant),
    Column("error_code", Text),
    Column("invocation_id", ID),
    Column("created_at", Instant, nullable=False),
    Column("completed_at", Instant),
    Column("interruptions", Integer, nullable=False, server_default="0"),
    Column("test", Boolean, nullable=False, server_default=false()),
    UniqueConstraint("event_id", "binding_id"),
    CheckConstraint(
        "status IN ('pending', 'delivering', 'delivered', 'failed', 'dead_letter', 'dropped')", name="status"
    ),
    Index(None, "org_id", "created_at", "id"),
    Index(None, "status", "due_at"),
    Index(None, "binding_id", "status"),
    Index(None, "completed_at", "id"),
)
"""`due_at` is the time of the next attempt; after `lease_until` a running attempt counts as interrupted. Each
interruption raises `attempt_limit` by one, because the hook did not fail."""

DELIVERY_ATTEMPTS = Table(
    "delivery_attempts",
    METADATA,
    Column("delivery_id", ID, ForeignKey("deliveries.id"), primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("outcome", String(32)),
    Column("error_code", Text),
    Column("invocation_id", ID),
    Column("started_at", Instant, nullable=False),
    Column("ended_at", Instant),
    Column("failure", Json),
    Index("ix_delivery_attempts_invocation_id", "invocation_id", sqlite_where=INVOKED, postgresql_where=INVOKED),
)
"""An attempt without an outcome is running, or its server was killed and the next server has not cleaned up yet."""

LEASES = Table(
    "leases",
    METADATA,
    Column("name", String(200), primary_key=True),
    Column("holder", String(64), nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("until", Instant, nullable=False),
    Column("facts", Json, nullable=False),
)
"""`until` is by the clock of the database; `epoch` grows with each holder."""

EDITIONS = Table(
    "settled",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("edition", BigInteger, nullable=False),
)
"""One row: the number of changes of settled tables, if several gateways share the database."""

CLUSTER_SETTINGS = Table(
    "cluster_settings",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("value", LargeBinary, nullable=False),
)
"""Facts on which all gateways of a database must agree."""

LOGINS = Table(
    "logins",
    METADATA,
    Column("digest", LargeBinary(32), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    Column("ends_at", Instant, nullable=False),
    Index(None, "ends_at"),
)
"""Links to the dashboard and its sessions, if several gateways share the database. `digest` is that of the secret."""

PACKAGE_FILES = Table(
    "package_files",
    METADATA,
    Column("digest", String(80), primary_key=True),
    Column("archive", LargeBinary, nullable=False),
    Column("signature", LargeBinary),
)
"""Archives of packages, if several gateways share the database; each keeps an unpacked copy."""

PLUGIN_STORAGE = Table(
    "plugin_storage",
    METADATA,
    Column("plugin_id", String(200), primary_key=True),
    Column("key", LargeBinary(512), primary_key=True),
    Column("size", Integer, nullable=False),
    Column("value", LargeBinary, nullable=False),
)
"""What plugins on nodes store. Keys are bytes: their order is the same everywhere, and a prefix is a range."""

AGENT_MEMORIES = Table(
    "agent_memories",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("agent_id", String(200), nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("content", Json, nullable=False),
    Column("tags", Json, nullable=False),
    Column("concept_tags", Json, nullable=False),
    Column("created_at", String(40), nullable=False),
    Column("memory_type", String(200)),
    Index(None, "agent_id", "number"),
)
"""The memory of agents, if plugins run on nodes. `number` grows with time."""

AGENT_MEMORY_TERMS = Table(
    "agent_memory_terms",
    METADATA,
    Column("agent_id", String(200), primary_key=True),
    Column("term", String(64), primary_key=True),
    Column("memory_id", String(64), primary_key=True),
    Column("weight", Float, nullable=False),
    Index(None, "memory_id"),
)
"""The words of each entry."""

VECTOR_COLLECTIONS = Table(
    "vector_collections",
    METADATA,
    Column("name", String(512), primary_key=True),
    Column("dimension", Integer, nullable=False),
)

VECTOR_RECORDS = Table(
    "vector_records",
    METADATA,
    Column("collection", String(512), primary_key=True),
    Column("id", String(512), primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("content", Json, nullable=False),
    Column("metadata", Text, nullable=False),
    Column("vector", LargeBinary, nullable=False),
    Index(None, "collection", "number"),
)
"""Vectors of unit length, if plugins run on nodes. `number` grows with time."""
