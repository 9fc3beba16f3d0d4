"""`plugbay prune`: have a running server remove what is too old to be kept, at once.

Owns the words on the command line and the table of what went. What is too old is the server's to say.
"""

from __future__ import annotations

from typing import Annotated

import typer

from plugbay.cli import output, remote
from plugbay.cli.remote import Server, TokenFile

DryRun = Annotated[bool, typer.Option("--dry-run", help="Remove nothing; say what would be.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]

GAP = "  "

HOUR, DAY = 3600, 24 * 3600


def prune(
    dry_run: DryRun = False, server: Server = None, token_file: TokenFile = None, as_json: AsJson = False
) -> None:
    """Have the running server remove records that are older than its plugbay.toml keeps them.

    It does so by itself every ten minutes. Nothing that has not ended is removed, however old it is.
    """
    done = remote.find(server, token_file, quiet=as_json).post("/api/v1/records:prune", {"dry_run": dry_run})
    if as_json:
        output.print_json(done)
        return
    head = ("RECORDS", "KEPT", "TOO OLD" if dry_run else "REMOVED")
    rows = [(kind.replace("_", " "), _age(old["kept"]), str(old["number"])) for kind, old in done["records"].items()]
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(2)]
    _print(head, widths, output.DIM)
    for row in rows:
        _print(row, widths, output.NAME)


def _print(row: tuple[str, str, str], widths: list[int], style: str) -> None:
    kind, kept, number = row
    output.out().row([(kind.ljust(widths[0]) + GAP, style), (kept.ljust(widths[1]) + GAP, output.DIM)], number)


def _age(seconds: float | None) -> str:
    """As plugbay.toml has it."""
    if not seconds:
        return "forever" if seconds is None else "until they expire"
    whole = round(seconds)
    return output.count(whole // DAY, "day") if whole % DAY == 0 else output.count(whole // HOUR, "hour")
