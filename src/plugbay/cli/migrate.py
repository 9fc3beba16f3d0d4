"""`plugbay migrate`: brings the tables of a database up to date, before gateways of this version start.

A single server migrates its own database at its start; several gateways do not, because those of the version before may
still run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plugbay.cli.exit_codes import refusal
from plugbay.cli.options import AsJson, database_url
from plugbay.cli.paths import directories
from plugbay.cli.render import output

DATA_FOLDER = "gateway"

Data = Annotated[Path | None, typer.Option("--data", metavar="DIR", help="Migrate the database of this data folder.")]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL|@FILE",
        callback=database_url,
        help="Migrate this PostgreSQL database; @FILE has its URL.",
    ),
]


def migrate(data: Data = None, database: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Bring the tables of a database up to date.

    Run it once before you start gateways of a new version. Gateways that run meanwhile go on. If two commands run at
    the same time, one waits for the other. A database that is newer than this plugbay is left alone.
    """
    try:
        import asyncio

        from plugbay.server.domain.settings import GatewaySettings
        from plugbay.store.failures import StoreRefused, StoreUnavailable
    except ImportError as error:
        text = f"the database cannot be migrated: {error.name} is not installed"
        raise refusal(text, "pip install 'plugbay[serve]'") from None
    place = (data or directories()["data"] / DATA_FOLDER).absolute()
    try:
        before, after = asyncio.run(migrate_database(database or GatewaySettings(place).database_url))
    except (StoreRefused, StoreUnavailable) as error:
        raise refusal(f"the database cannot be migrated: {error}", "check --database, or --data") from None
    if as_json:
        output.print_json({"before": before, "after": after})
    elif before == after:
        output.out().line((output.OK, output.GOOD_STYLE), f" the tables are up to date (version {after})")
    else:
        output.out().line((output.OK, output.GOOD_STYLE), f" migrated from version {before or 'none'} to {after}")


async def migrate_database(url: str) -> tuple[str | None, str | None]:
    """Migrate a database; the versions before and after."""
    from plugbay.store.database import Database
    from plugbay.store.migrations import version_of

    database = await Database.open(url, migrate=False)
    try:
        async with database.reading() as tx:
            before = await tx.run_sync(version_of)
        await database.migrate()
        async with database.reading() as tx:
            return before, await tx.run_sync(version_of)
    finally:
        await database.close()
