"""`plugbay logs ID [-f]`: what a plugin of the running server wrote, and what happened to it.

Owns how a line looks.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from plugbay.cli import exit_codes, output, remote
from plugbay.cli.operate import Id
from plugbay.cli.remote import Server, TokenFile

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")]
Tail = Annotated[int, typer.Option(metavar="N", min=0, max=1000, help="Lines of the past, 100 if left out.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print a JSON object for each line.")]

STYLES = {"warn": output.WARN_STYLE, "error": output.BAD_STYLE}

INTERRUPT = 2
"""The number of SIGINT."""


def logs(
    plugin: Id,
    follow: Follow = False,
    tail: Tail = 100,
    server: Server = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Show what a plugin of the running server wrote, and what happened to it."""
    there, path = remote.find(server, token_file, quiet=as_json), remote.plugin_path(plugin, "/logs")
    if not follow:
        lines = there.get(path, tail=tail)["lines"]
        for line in lines:
            _show(line, as_json)
        if not lines and not as_json:
            output.note(f"{plugin} has written nothing yet, and nothing has happened to it")
        return
    try:
        for _, line in there.events("GET", path, tail=tail, follow="true"):
            _show(line, as_json)
    except KeyboardInterrupt:
        raise typer.Exit(exit_codes.for_signal(INTERRUPT)) from None


def _show(line: dict[str, Any], as_json: bool) -> None:
    if as_json:
        output.print_line(line)
        return
    head = (f"{line['at']} {line['source']:6} ", output.DIM)
    output.out().line(head, (line["text"], STYLES.get(line["level"], "")))
