"""`plugbay mcp install CLIENT [DIR…]`: write the entry that makes an MCP client start `plugbay mcp serve`.

Nothing is written before it was shown and confirmed, and the old file is kept as a backup. `mcp_server.clients` knows
the files and the entries of each client.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from plugbay.cli.exit_codes import Exit
from plugbay.cli.paths import config_in_use
from plugbay.cli.render import output

if TYPE_CHECKING:
    from plugbay.mcp_server.client_config import Client

EXAMPLES = """\
Examples
plugbay mcp install claude-code plugins/
plugbay mcp install cursor plugins/ --scope project --yes
plugbay mcp install codex plugins/weather --grant network --print"""

MAX_FILE = 16 << 20
"""Bytes; a larger file is not a client's configuration."""

Who = Annotated[str, typer.Argument(metavar="CLIENT", help="claude-code, claude-desktop, codex, cursor, …")]
Where = Annotated[list[Path] | None, typer.Argument(metavar="DIR…", help="What to serve; this directory if left out.")]
Name = Annotated[
    str, typer.Option("--name", metavar="NAME", help="What the client calls the server; plugbay if left out.")
]
Scope = Annotated[
    str | None, typer.Option("--scope", metavar="user|project", help="For you, as if left out, or for this project.")
]
ConfigFile = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="The plugbay.toml to serve with.")]
Grant = Annotated[list[str] | None, typer.Option(metavar="CAP", help="Grant a capability; repeatable.")]
GrantAll = Annotated[bool, typer.Option("--grant-all", help="Grant everything that is requested.")]
Only = Annotated[list[str] | None, typer.Option(metavar="GLOB", help="Serve only these exports; repeatable.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Write without asking.")]
Print = Annotated[bool, typer.Option("--print", help="Print the entry and write nothing.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]


class Change(NamedTuple):
    """A planned change of a client's configuration file."""

    client: Client
    file: Path
    name: str
    entry: dict[str, Any]
    before: str | None
    """The old text; None when the file does not exist."""
    after: str

    @property
    def is_needed(self) -> bool:
        return self.before != self.after

    def to_json(self, backup: Path | None, written: bool) -> dict[str, Any]:
        """The public shape."""
        return {
            "client": self.client.title,
            "file": str(self.file),
            "name": self.name,
            "entry": self.entry,
            "changed": written,
            "backup": str(backup) if backup else None,
        }


def install(
    client: Who,
    places: Where = None,
    name: Name = "plugbay",
    scope: Scope = None,
    config: ConfigFile = None,
    grant: Grant = None,
    grant_all: GrantAll = False,
    only: Only = None,
    yes: Yes = False,
    print_only: Print = False,
    as_json: AsJson = False,
) -> None:
    """Write the entry for `plugbay mcp serve` into the configuration of an MCP client, after showing it."""
    command = serve_command([path.absolute() for path in places or [Path()]], config, grant, grant_all, only)
    change = _plan_change(client, scope, name, command)
    if print_only:
        _print(change, as_json)
        return
    if not change.is_needed:
        _show_result(change, None, False, as_json)
        return
    _show(change)
    if not (yes or output.confirm("Write it?")):
        output.problem("nothing was written", hint="--yes writes without asking, --print only shows the entry")
        raise typer.Exit(Exit.DENIED)
    _show_result(change, _write(change), True, as_json)


def serve_command(
    places: list[Path], config: Path | None, grant: list[str] | None, grant_all: bool, only: list[str] | None
) -> list[str]:
    """The command for the client. All paths are absolute: the client's directory and PATH are unknown."""
    for place in places:
        if not place.exists():
            output.problem(f"there is no {place}", hint="name a plugin's folder, or a folder of such folders")
            raise typer.Exit(Exit.NOT_FOUND)
    used = config_in_use(config)
    beside = Path(sys.executable).with_name("plugbay")
    return [
        *([str(beside)] if beside.is_file() else [sys.executable, "-m", "plugbay"]),
        "mcp",
        "serve",
        *map(str, places),
        *(["--config", str(used.absolute())] if used else []),
        *(word for capability in grant or () for word in ("--grant", capability)),
        *(["--grant-all"] if grant_all else []),
        *(word for glob in only or () for word in ("--only", glob)),
    ]


def _plan_change(word: str, scope: str | None, name: str, command: list[str]) -> Change:
    from plugbay.mcp_server.client_config import CLIENTS, Unusable, places

    client = CLIENTS.get(word)
    if client is None:
        raise typer.BadParameter(f"there is no client {word!r}; known are {', '.join(CLIENTS)}")
    chosen = scope or next(iter(client.files))
    if chosen not in client.files:
        raise typer.BadParameter(f"{client.title} has no scope {chosen!r}; it has {', '.join(client.files)}")
    file = client.files[chosen](places())
    entry = client.entry(command, {})
    try:
        before = _read(file)
        same = client.present(before or "", name) == entry
        after = before if same and before is not None else client.changed(before or "", name, entry)
    except (Unusable, UnicodeDecodeError) as error:
        output.problem(f"{file} cannot be changed: {error}", hint="mend it, or add what --print shows by hand")
        raise typer.Exit(Exit.INVALID) from None
    return Change(client, file, name, entry, before, after)


def _read(file: Path) -> str | None:
    """The text of a file with its line ends unchanged; None when there is no file."""
    try:
        with open(file, "rb") as stream:
            data = stream.read(MAX_FILE + 1)
    except FileNotFoundError:
        return None
    if len(data) > MAX_FILE:
        from plugbay.mcp_server.client_config import Unusable

        raise Unusable(f"it has more than {MAX_FILE:,} bytes")
    return data.decode("utf-8")


def _write(change: Change) -> Path | None:
    """Replace the file and return the backup of the old one. A symbolic link stays; its target changes."""
    from plugbay.host.disk.durable import write_file

    target = Path(os.path.realpath(change.file))
    target.parent.mkdir(parents=True, exist_ok=True)
    if change.before is None:
        write_file(target, change.after.encode(), 0o600)
        return None
    if _read(target) != change.before:
        output.problem(f"{change.file} has changed meanwhile; nothing was written", hint="run the command again")
        raise typer.Exit(Exit.FAILURE)
    backup = _free_name(target)
    shutil.copy2(target, backup)
    write_file(target, change.after.encode(), target.stat().st_mode & 0o7777)
    return backup


def _free_name(target: Path) -> Path:
    """`settings.json.bak`, or the first free numbered name: no backup is overwritten."""
    backup, number = target.with_name(f"{target.name}.bak"), 1
    while backup.exists():
        number += 1
        backup = target.with_name(f"{target.name}.bak{number}")
    return backup


def _print(change: Change, as_json: bool) -> None:
    if as_json:
        output.print_json(change.to_json(None, False))
        return
    print(change.client.shown(change.name, change.entry).rstrip("\n"))
    output.note(f"this belongs into {change.file}")


def _show(change: Change) -> None:
    page = output.err()
    page.line((change.client.title, output.NAME), f" {change.file}", ("" if change.before else " (new)", output.DIM))
    for line in change.client.shown(change.name, change.entry).rstrip("\n").split("\n"):
        page.line(line, indent=2)


def _show_result(change: Change, backup: Path | None, written: bool, as_json: bool) -> None:
    if as_json:
        output.print_json(change.to_json(backup, written))
    elif not written:
        output.note(f"{change.file} has this entry already; nothing was written")
    else:
        kept = f"; what it was is in {backup}" if backup else ""
        output.note(f"{change.name} is in {change.file}{kept}. Start {change.client.title} again to use it")
