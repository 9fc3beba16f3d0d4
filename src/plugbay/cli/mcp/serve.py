"""`plugbay mcp serve` and `plugbay mcp install`: plugins as one MCP server, and its entry in the files of MCP clients.

Over stdio only protocol messages may go to stdout, so `take_wire` must run before anything can print. `install` shows
an entry before it writes it, and keeps the old file as a backup. `plugbay.mcp_server` implements both.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from plugbay.cli import local_host, lookup, tracing
from plugbay.cli.exit_codes import Exit, refusal
from plugbay.cli.options import AsJson, ConfigFile, Folders, Grant, GrantAll, NoSandbox, Timeout
from plugbay.cli.paths import config_in_use
from plugbay.cli.render import output
from plugbay.cli.render.call_view import HumanView

if TYPE_CHECKING:
    from plugbay.host.discovery.folders import Found
    from plugbay.host.host import Host
    from plugbay.mcp_server.client_config import Client
    from plugbay.mcp_server.server import McpServer

SERVE_EXAMPLES = """\
Examples
plugbay mcp serve plugins/
plugbay mcp serve plugins/ --only weather --only 'notes/read_*' --grant network
plugbay mcp serve plugins/ --http 127.0.0.1:8765"""

TOKEN_VARIABLE = "PLUGBAY_MCP_TOKEN"
"""Environment variable with the token of the HTTP server; without one, a token is generated."""

Http = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Serve over HTTP at /mcp instead of stdio.")]
TokenFile = Annotated[Path | None, typer.Option(metavar="FILE", help=f"The token, instead of {TOKEN_VARIABLE}.")]
AllowHost = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="A host name that clients use for this server; repeatable.")
]
AllowOrigin = Annotated[
    list[str] | None, typer.Option(metavar="URL", help="An origin of web pages that may connect; repeatable.")
]
Only = Annotated[
    list[str] | None, typer.Option(metavar="GLOB", help="Serve only this PLUGIN or PLUGIN/EXPORT; repeatable.")
]
NamesRule = Annotated[
    str,
    typer.Option(
        "--names", metavar="full|short", help="Tool names with the plugin's id (full, the default) or without."
    ),
]


def _naming_rule(word: str) -> Callable[[str, str], str]:
    from plugbay.mcp_server.listing import NAMING_RULES

    if word not in NAMING_RULES:
        raise typer.BadParameter(f"{word!r} is not {' or '.join(NAMING_RULES)}", param_hint="--names")
    return NAMING_RULES[word]


def serve(
    places: Folders = None,
    http: Http = None,
    token_file: TokenFile = None,
    allow_host: AllowHost = None,
    allow_origin: AllowOrigin = None,
    only: Only = None,
    names: NamesRule = "full",
    timeout: Timeout = None,
    grant: Grant = None,
    grant_all: GrantAll = False,
    no_sandbox: NoSandbox = False,
    config: ConfigFile = None,
) -> None:
    """Serve the tools of plugins as one MCP server. Uses stdio, for the client that starts it, or HTTP.

    Also serves the resources and prompts of MCP servers. Messages for people go to stderr.
    """
    from plugbay.mcp_server.stdio import take_wire

    if http is None and os.isatty(0):
        output.note("stdin is a terminal, not an MCP client; plugbay mcp install configures a client")
    wire = take_wire() if http is None else None
    rule = _naming_rule(names)
    http_server = None if http is None else _make_http_server(http, token_file, allow_host or [], allow_origin or [])
    found, settings = _find(places or [Path()], config)
    output.show_host_log()

    from plugbay.mcp_server.server import McpServer, QuestionRouter

    router = QuestionRouter()
    options = {"grant_all": grant_all, "unconfined": no_sandbox, "questions": router.ask}

    async def work(host: Host) -> None:
        async with McpServer(host, router, rule=rule, only=only or (), timeout=timeout) as server:
            _show_served(server)
            if wire is not None:
                from plugbay.mcp_server import stdio

                await stdio.serve(server, wire)
            elif http_server is not None:
                await http_server.serve(server)

    with tracing.export_traces(os.environ, output.note) as tracer:
        host = local_host.make_host(found, settings, grants=grant, eager=True, joins=True, tracer=tracer, **options)
        local_host.run_with(host, work)


def _find(places: list[Path], config: Path | None) -> tuple[list[Found], Any]:
    """The plugins and the operator's settings. Broken plugins are reported and left out; at least one must work."""
    from plugbay.host.discovery.folders import discover, reject_duplicates

    settings = local_host.load_config(config)
    sources = [item for place in places if lookup.is_source(place) for item in local_host.discover_in(place)]
    others = [place for place in places if not lookup.is_source(place)]
    found = discover([place if place.is_file() else local_host.check_folder(place) for place in others])
    found = reject_duplicates([*sources, *found])
    if not any(item.spec for item in found) and not (settings and settings.mcp):
        local_host.discover_in(places[0])  # raises `Refusal` with the reason
    there = [item for item in found if not lookup.is_absent(item)]
    HumanView().show_warnings(there, ())
    return there, settings


def _show_served(server: McpServer) -> None:
    """Print the number of served exports, and each plugin that is left out with the reason."""
    offer = server.listing.offer
    counted = [output.count(len(offer["tools"]), "tool")]
    for part, noun in (("resources", "resource"), ("resource_templates", "template"), ("prompts", "prompt")):
        if offer[part]:
            counted.append(output.count(len(offer[part]), noun))
    output.err().line("serving ", (", ".join(counted), output.NAME))
    for plugin_id, failure in server.refused_plugins().items():
        hint = failure.detail.get("hint", "")
        output.note(f"{plugin_id} is left out: {failure.message}{f'; {hint}' if hint else ''}")


def _make_http_server(http: str, token_file: Path | None, hosts: list[str], origins: list[str]) -> Any:
    """The HTTP server, not yet listening; exits with a hint when uvicorn is missing."""
    try:
        from plugbay.mcp_server.http_server import HttpServer, NotAllowed
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "uvicorn":
            raise
        text = "serving over HTTP needs uvicorn, which is not installed"
        raise refusal(text, "pip install 'plugbay[serve]'") from None
    try:
        return HttpServer(http, _token(token_file), hosts, origins, say=output.err().line)
    except NotAllowed as error:
        raise typer.BadParameter(str(error)) from None


def _token(file: Path | None) -> str | None:
    """The configured token; None when one is to be generated."""
    if file is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    token = file.read_text(encoding="utf-8").strip()
    if not token:
        raise typer.BadParameter(f"{file} is empty")
    return token


# plugbay mcp install.

INSTALL_EXAMPLES = """\
Examples
plugbay mcp install claude-code plugins/
plugbay mcp install cursor plugins/ --scope project --yes
plugbay mcp install codex plugins/weather --grant network --print"""

MAX_FILE = 16 << 20
"""Bytes; a larger file is not a client's configuration."""

ClientName = Annotated[str, typer.Argument(metavar="CLIENT", help="claude-code, claude-desktop, codex, cursor, …")]
Served = Annotated[
    list[Path] | None, typer.Argument(metavar="DIR…", help="Plugins, or folders of plugins; this directory by default.")
]
Name = Annotated[
    str, typer.Option("--name", metavar="NAME", help="The server's name in the client; plugbay by default.")
]
Scope = Annotated[
    str | None,
    typer.Option("--scope", metavar="user|project", help="For your user (the default), or for this project."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Write without asking.")]
Print = Annotated[bool, typer.Option("--print", help="Print the entry and write nothing.")]


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
    client: ClientName,
    places: Served = None,
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
    """Add plugbay mcp serve to the configuration of an MCP client. Shows the entry first and asks."""
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
        hint = "--yes writes without asking; --print only shows the entry"
        raise refusal("nothing was written", hint, Exit.DENIED)
    _show_result(change, _write(change), True, as_json)


def serve_command(
    places: list[Path], config: Path | None, grant: list[str] | None, grant_all: bool, only: list[str] | None
) -> list[str]:
    """The command for the client. All paths are absolute: the client's directory and PATH are unknown."""
    for place in places:
        if not place.exists():
            raise refusal(f"{place} does not exist", local_host.FOLDER_HINT, Exit.NOT_FOUND)
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
        raise typer.BadParameter(f"there is no client {word!r}; there are {', '.join(CLIENTS)}")
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
        hint = "correct the file, or add the entry that --print shows by hand"
        raise refusal(f"{file} cannot be changed: {error}", hint, Exit.INVALID) from None
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
        raise refusal(f"{change.file} was changed by another program; nothing was written", "run the command again")
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
    output.note(f"add this entry to {change.file}")


def _show(change: Change) -> None:
    page = output.err()
    page.line((change.client.title, output.NAME), f" {change.file}", ("" if change.before else " (new)", output.DIM))
    for line in change.client.shown(change.name, change.entry).rstrip("\n").split("\n"):
        page.line(line, indent=2)


def _show_result(change: Change, backup: Path | None, written: bool, as_json: bool) -> None:
    if as_json:
        output.print_json(change.to_json(backup, written))
    elif not written:
        output.note(f"{change.file} already has this entry; nothing was written")
    else:
        kept = f"; the backup is {backup}" if backup else ""
        output.note(f"{change.name} was added to {change.file}{kept}. Restart {change.client.title} to use it")
