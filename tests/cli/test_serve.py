"""`plugbay serve`: what is refused before anything starts, and what is said once it is up."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.control.test_server import served
from tests.support.plugins import write_plugin


@pytest.mark.parametrize("listen", ["8787", "localhost", "127.0.0.1:99999", "127.0.0.1:x"])
def test_what_is_no_address_is_a_usage_error(run: Run, listen: str) -> None:
    done = run("serve", "--listen", listen)
    assert done.code == 2 and "is not like 127.0.0.1:8787" in done.err


def test_other_machines_are_let_in_only_when_they_are_named(run: Run) -> None:
    done = run("serve", "--listen", "0.0.0.0:0")
    assert done.code == 2 and "--public NAME" in done.err


def test_a_folder_that_is_not_there_and_a_config_that_cannot_be_read_are_told(run: Run, cwd: Path) -> None:
    assert run("serve", "nowhere", "--listen", "127.0.0.1:0").code == 4
    (cwd / "plugbay.toml").write_text("[host]\nlog_levle = 1\n")
    assert run("serve", "--listen", "127.0.0.1:0").code == 3


def test_a_database_of_another_kind_is_refused(run: Run) -> None:
    done = run("serve", "--listen", "127.0.0.1:0", "--database", "mysql://host/db")
    assert done.code == 1 and "SQLite or PostgreSQL" in done.err


def test_the_line_for_programs_says_where_to_find_what(tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins", "p")
    with served(tmp_path, "plugins", "--data", "kept") as server:
        facts = server.facts
        assert facts["pid"] == server.process.pid and facts["plugins"] == 1
        assert facts["data"] == str(tmp_path / "kept")
        assert (tmp_path / "kept/plugbay.db").exists()
        assert server.end() == 0
