"""`plugbay audit verify`: checks the hash chains of the audit log, of a running server or of its database directly.

Without the server the check does not depend on the program that wrote the log.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plugbay.cli import remote
from plugbay.cli.exit_codes import Exit, refusal
from plugbay.cli.options import AsJson, Server, TokenFile
from plugbay.cli.render import output

if TYPE_CHECKING:
    from plugbay.store.audit import Head

PATH = "/v1/audit/verification"

Heads = Annotated[
    list[str] | None,
    typer.Option("--head", metavar="HEAD", help="A head that an earlier check printed; repeatable."),
]
Data = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="Read the database of this data folder, without a server.")
]
DatabaseUrl = Annotated[
    str | None, typer.Option("--database", metavar="URL", help="Read this PostgreSQL database, without a server.")
]


def verify(
    head: Heads = None,
    data: Data = None,
    database: DatabaseUrl = None,
    server: Server = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Check the audit log: every entry, its place and its hash.

    Prints the head of each chain. Keep it in another place: with --head, a later check also finds a log whose end was
    cut off or that was written anew. The exit status is 9 if an entry was changed, removed or inserted.
    """
    if data is None and database is None:
        found = remote.find(server, token_file, quiet=as_json).get(PATH, head=head)
    elif server is not None:
        raise refusal("--data and --database work without a server", "leave out --server", Exit.USAGE)
    else:
        found = _verify_database(data, database, head or [])
    if as_json:
        output.print_json(found)
    else:
        _show(found)
    if not found["valid"]:
        raise typer.Exit(Exit.FINDINGS)


def _show(found: dict[str, Any]) -> None:
    for chain in found["chains"]:
        broken = chain["broken"]
        whose = "the operator" if chain["chain"] == "*" else f"the org {chain['chain']}"
        mark = (output.OK, output.GOOD_STYLE) if broken is None else (output.BAD, output.BAD_STYLE)
        text = output.count(chain["entries"], "entry", "entries") if broken is None else broken["message"]
        removed = f", {chain['removed']:,} removed by age" if chain["removed"] else ""
        output.out().line(mark, f" {whose}: {text}{removed}")
        output.out().field("head", chain["head"])
    if not found["chains"]:
        output.note("the audit log is empty")


def _verify_database(data: Path | None, database: str | None, heads: list[str]) -> dict[str, Any]:
    """Check the log in a database; the server may be running."""
    try:
        import asyncio

        from plugbay.server.domain.settings import GatewaySettings
        from plugbay.store.audit import Head
        from plugbay.store.database import sqlite_file
        from plugbay.store.failures import StoreRefused, StoreUnavailable
    except ImportError as error:
        text = f"the database cannot be read: {error.name} is not installed"
        raise refusal(text, "pip install 'plugbay[serve]'") from None
    url = database or GatewaySettings(data or Path()).database_url
    try:
        known = [Head.parse(text) for text in heads]
    except ValueError as error:
        text = f"{str(error)!r} is not a head"
        raise refusal(text, "a head is chain:position:hash, as an earlier check printed it", Exit.USAGE) from None
    try:
        file = sqlite_file(url)
        if file is not None and not file.exists():
            raise refusal(f"there is no file {file}", "name the folder of the server with --data", Exit.NOT_FOUND)
        return asyncio.run(_read_reports(url, known))
    except (StoreRefused, StoreUnavailable) as error:
        raise refusal(f"the database cannot be used: {error}", "plugbay doctor --data DIR checks it") from None


async def _read_reports(url: str, known: list[Head]) -> dict[str, Any]:
    from plugbay.store import audit, migrations
    from plugbay.store.database import Database

    database = await Database.open(url, migrate=False, check=False)
    try:
        async with database.reading() as tx:
            await tx.run_sync(migrations.require_current)
            return audit.to_json(await audit.verify(tx, known=known))
    finally:
        await database.close()
