"""`plugbay migrate`."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.cli.conftest import Run
from tests.support.databases import postgresql


def test_a_database_is_migrated_once(run: Run, tmp_path: Path) -> None:
    data = tmp_path / "data"
    done = run("migrate", "--data", data)
    assert done.code == 0, done.err
    assert re.search(r"migrated from version none to \d{4}", done.out)
    assert "up to date" in run("migrate", "--data", data).out
    found = json.loads(run("migrate", "--data", data, "--json").out)
    assert found["before"] == found["after"] is not None


def test_gateways_refuse_a_database_that_is_not_migrated_and_name_the_command(run: Run, tmp_path: Path) -> None:
    server = postgresql()
    name = server.create("template0")
    words = ("--database", server.url(name))
    (tmp_path / "cluster.toml").write_text("[cluster]\n")
    serve = ("serve", "--listen", "127.0.0.1:0", "--data", tmp_path / "data", "--config", tmp_path / "cluster.toml")
    refused = run(*serve, *words)
    assert refused.code == 1 and "plugbay migrate" in refused.err, refused.err
    assert run("migrate", *words).code == 0
    server.execute(
        "UPDATE alembic_version SET version_num = '9999'; UPDATE schema_support SET oldest_program = '9999'", name
    )
    for refused in (run(*serve, *words), run("migrate", *words)):
        assert refused.code == 1 and "newer than this plugbay" in refused.err, refused.err
    server.drop(name)


def test_a_database_that_is_away_is_named(run: Run, tmp_path: Path) -> None:
    done = run("migrate", "--database", f"postgresql://plugbay@/x?host={tmp_path}")
    assert done.code == 1 and "cannot be migrated" in done.err
