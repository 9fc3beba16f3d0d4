"""Records in SQL, one module per aggregate, on SQLite and on PostgreSQL alike.

Owns tables, migrations and statements. Decides nothing: who may do what, and what follows from it, is the gateway's.
"""
