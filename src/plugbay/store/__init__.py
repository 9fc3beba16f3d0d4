"""SQL records on SQLite and PostgreSQL: tables, migrations, and one module of statements per kind of record.

No business rules here: authorization and consequences are decided in `server.domain`.
"""
