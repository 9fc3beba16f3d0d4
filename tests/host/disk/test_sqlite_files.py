"""The names of SQLite's files are SQLite's own."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from plugbay.host.disk.sqlite_files import IN_MEMORY, JOURNALS


def test_a_database_in_memory_leaves_no_file() -> None:
    connection = sqlite3.connect(IN_MEMORY)
    connection.execute("create table t (x)")
    assert connection.execute("pragma database_list").fetchone()[2] == ""
    connection.close()


def test_the_files_beside_a_database_have_the_suffixes(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.execute("pragma journal_mode = wal")
    connection.execute("create table t (x)")
    beside = {file.name.removeprefix("a.db") for file in tmp_path.iterdir()} - {""}
    connection.close()
    assert beside == set(JOURNALS[:2])
    connection = sqlite3.connect(tmp_path / "b.db")
    connection.execute("create table t (x)")
    connection.execute("begin immediate")
    connection.execute("insert into t values (1)")
    assert (tmp_path / f"b.db{JOURNALS[2]}").exists()
    connection.close()
