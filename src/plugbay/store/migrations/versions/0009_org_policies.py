"""On PostgreSQL, row-level security: a transaction sees the rows of the org in `plugbay.org`, or of all orgs (`*`)."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"

COLUMNS = {
    "orgs": "id",
    "projects": "org_id",
    "api_keys": "org_id",
    "audit": "org_id",
    "audit_heads": "chain",
    "plugin_packages": "org_id",
    "plugin_bindings": "org_id",
    "plugin_invocations": "org_id",
    "plugin_tokens": "org_id",
    "plugin_spending": "org_id",
    "secrets": "org_id",
    "sessions": "org_id",
    "chains": "org_id",
    "runs": "org_id",
    "compactions": "org_id",
    "harness_executions": "org_id",
    "events": "org_id",
    "deliveries": "org_id",
}
"""The column that names the org of a row."""

SHARED = {"plugin_packages": " OR org_id = ''"}
"""Rows that every org sees and none may write."""

POLICY = "own_org"


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    for table, column in COLUMNS.items():
        # Without the setting there is no row: a connection has to name an org, or all of them.
        own = f"current_setting('plugbay.org', true) IN ('*', {column})"
        op.execute(f"CREATE POLICY {POLICY} ON {table} USING ({own}{SHARED.get(table, '')}) WITH CHECK ({own})")
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")  # for the owner of the tables too


def downgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    for table in COLUMNS:
        op.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
        op.execute(f"DROP POLICY {POLICY} ON {table}")
