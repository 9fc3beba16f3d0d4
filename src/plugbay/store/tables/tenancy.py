"""Tables of who uses the gateway: orgs, their projects and keys, what was done by whom, what was asked before."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Float, ForeignKey, Index, Integer, LargeBinary, String, Table, Text
from sqlalchemy import UniqueConstraint as Unique

from plugbay.store.metadata import METADATA, SETTLED, Instant, Json

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
"""`policy` is what no binding of the org can be granted more than."""

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
"""`digest` is the key's SHA-256; `hint` its last characters, by which a person knows it again."""

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
    Index(None, "org_id", "at", "id"),
    Index(None, "at", "id"),
    Index(None, "subject_id", "at"),
)
"""What was changed. No foreign keys: it outlives what it tells of."""

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
    Index(None, "expires_at"),
)
"""`key` is the SHA-256 of whose request it was and of its Idempotency-Key, `digest` that of what was asked."""

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
"""Calls of the plugins in the host's folders; a bounded number of them."""
