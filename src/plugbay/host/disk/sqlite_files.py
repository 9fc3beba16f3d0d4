"""The names of SQLite's files, for code that opens none."""

from __future__ import annotations

IN_MEMORY = ":memory:"
"""The name of a database that is not a file."""

JOURNALS = ("-wal", "-shm", "-journal")
"""Suffixes of the files that SQLite keeps beside a database."""
