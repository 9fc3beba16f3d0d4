"""Checks of a server's disk and database."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from plugbay.cli.doctor.checks import ERROR, OK, WARNING
from plugbay.cli.doctor.server_checks import check_server
from plugbay.cli.exit_codes import Exit
from plugbay.server.domain.settings import GatewaySettings
from plugbay.store.database import Database
from tests.store.test_database import overwrite_pages
from tests.support.commands import plugbay
from tests.support.databases import database, postgresql
from tests.support.requirements import requirement


@requirement("vai:control-damaged-database")
def test_a_sound_and_a_damaged_database_are_told_apart(tmp_path: Path) -> None:
    async def make() -> None:
        made = await Database.open(GatewaySettings(tmp_path).database_url)
        file = made.file
        await made.close()
        assert file is not None
        files.append(file)

    files: list[Path] = []
    asyncio.run(make())
    found = list(check_server(tmp_path, None))
    assert [(check.id, check.status) for check in found] == [
        ("server_disk", OK),
        ("server_database", OK),
    ], found
    overwrite_pages(files[0])
    _, check = check_server(tmp_path, None)
    assert (check.status, "damaged" in check.detail, "recover" in check.fix) == (ERROR, True, True)


def test_a_folder_without_a_database_is_an_error(tmp_path: Path) -> None:
    disk, missing = check_server(tmp_path, None)
    assert (disk.status, missing.status, "there is no file" in missing.detail) == (OK, ERROR, True)
    disk, _ = check_server(tmp_path / "missing", None)
    assert (disk.status, "No such file" in disk.detail) == (ERROR, True)
    assert not (tmp_path / "missing").exists()


def test_a_database_elsewhere_is_asked(tmp_path: Path) -> None:
    with database("postgresql", tmp_path) as url:
        (check,) = check_server(None, url)
        assert check.status == OK, check.detail
    (check,) = check_server(None, "postgresql://nobody@127.0.0.1:1/nothing")
    assert check.status == ERROR


@requirement("vai:control-second-wall")
def test_a_user_that_ignores_row_level_security_is_a_warning() -> None:
    name = postgresql().create()
    (check,) = check_server(None, postgresql().superuser_url(name))
    assert (check.status, "row-level security" in check.detail, "SUPERUSER" in check.fix) == (WARNING, True, True)
    assert not check.is_finding
    postgresql().drop(name)


def test_doctor_checks_a_server(tmp_path: Path) -> None:
    done = plugbay("doctor", "--data", str(tmp_path), "--json")
    found = {check["id"]: check["status"] for check in json.loads(done.stdout)["checks"]}
    assert found["server_disk"] == "ok" and found["server_database"] == "error"
    assert done.returncode == Exit.FINDINGS
