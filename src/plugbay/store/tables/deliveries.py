"""The tables of durable hooks: what happened, who is to be told, and every attempt at telling.

Owns their columns and that a binding is told of an event under one delivery only. An event and its deliveries are
written in the transaction that makes the event true.
"""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Integer, String, Table, Text, UniqueConstraint

from plugbay.store.metadata import METADATA, Instant, Json
from plugbay.store.tables.conversations import ID, INVOKED

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
"""`cause_id` is the run or the compaction that made it true: each makes an event of one type once at most."""

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
    UniqueConstraint("event_id", "binding_id"),
    CheckConstraint(
        "status IN ('pending', 'delivering', 'delivered', 'failed', 'dead_letter', 'dropped')", name="status"
    ),
    Index(None, "org_id", "created_at", "id"),
    Index(None, "status", "due_at"),
    Index(None, "binding_id", "status"),
    Index(None, "completed_at", "id"),
)
"""`due_at` is when the next attempt may begin, `lease_until` when one that never came back counts as interrupted; each
interruption raises `attempt_limit` by one, because it is no failure of the hook."""

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
    Index("ix_delivery_attempts_invocation_id", "invocation_id", sqlite_where=INVOKED, postgresql_where=INVOKED),
)
"""An attempt without an outcome is under way, or its server was killed and the next one has not come across it yet."""
