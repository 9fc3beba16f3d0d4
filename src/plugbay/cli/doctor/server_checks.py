"""Checks of a server's data folder and database, for `plugbay doctor --data FOLDER`. The server may be running."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from plugbay.cli.doctor.checks import ERROR, OK, WARNING, Check
from plugbay.host.disk.durable import room_problem
from plugbay.server.domain.settings import GatewaySettings
from plugbay.store.database import Database, sqlite_file
from plugbay.store.failures import StoreRefused, StoreUnavailable

RECOVER = "stop the server; restore a backup of the database, or save the readable records: sqlite3 FILE .recover"


def check_server(data: Path | None, url: str | None) -> Iterator[Check]:
    """The room on the disk, and every page and index of the database."""
    if data is not None:
        problem = room_problem(data)
        text, fix = problem or f"there is room in {data}", "" if problem is None else "free some space"
        yield Check("server_disk", OK if problem is None else ERROR, "Disk of the server", text, fix)
    url = url or GatewaySettings(data or Path()).database_url
    yield asyncio.run(_check_database(url))


async def _check_database(url: str) -> Check:
    title = "Database of the server"
    try:
        file = sqlite_file(url)
        if file is not None and not file.exists():
            return Check("server_database", ERROR, title, f"there is no file {file}", "name its folder with --data")
        database = await Database.open(url, migrate=False, check=False)
        try:
            damage = await database.find_damage(quick=False)
            ignored = await database.ignores_policies()
        finally:
            await database.close()
    except (StoreRefused, StoreUnavailable) as error:
        return Check("server_database", ERROR, title, str(error), "check the URL of the database and its server")
    if damage is not None:
        return Check("server_database", ERROR, title, f"it is damaged: {damage}", RECOVER)
    if ignored:
        text = "it answers, but its user bypasses row-level security, the second protection between orgs"
        return Check(
            "server_database", WARNING, title, text, "use a role without SUPERUSER and BYPASSRLS", optional=True
        )
    return Check("server_database", OK, title, "every page and index is sound" if file else "it answers")
