"""The tables of plugins: packages, bindings, invocations and their tokens, what these may spend, secrets, journeys.

Owns their columns. A package is a row once and for ever; an invocation is opened once and closed once; a token is kept
as its SHA-256, and a secret as what its key has made of it.
"""

from __future__ import annotations

from sqlalchemy import (
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

from plugbay.store.metadata import METADATA, SETTLED, Instant, Json

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
    UniqueConstraint("org_id", "package_id", "version"),
    CheckConstraint("status IN ('available', 'quarantined')", name="status"),
    Index(None, "created_at", "id"),
    info=SETTLED,
)
"""`org_id` is empty for packages that all orgs may use."""

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
"""`secrets` holds references, never values. `revision` grows with each change."""

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
    Index(None, "org_id", "started_at", "id"),
    Index(None, "started_at", "id"),
    Index(None, "binding_id", "started_at"),
    Index(None, "execution_id"),
    Index("ix_plugin_invocations_open", "id", sqlite_where=OPEN, postgresql_where=OPEN),
)
"""No foreign keys: what was done stays true whatever becomes of those who did it."""

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
"""What the tokens of one piece of work have used of their limits, over all its attempts."""

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
"""`scope` is the org or one of its projects: what a reference `secret://scope/name` begins with."""

JOURNEYS = Table(
    "plugin_journeys",
    METADATA,
    Column("key", String(280), primary_key=True),
    Column("trigger", Json),
    Column("checkpoint", Json),
    Column("summary", Text),
    Column("updated_at", Instant, nullable=False),
    Index(None, "updated_at"),
)
"""How far the executions of harnesses have come."""
