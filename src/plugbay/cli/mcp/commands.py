"""The command group `plugbay mcp`: MCP servers in plugbay.toml, their approval and their secrets.

An approval covers exactly the offer that was shown: a server is started once to read it, and `host.catalog` enforces
it. Edits of plugbay.toml change only `[mcp.NAME]` sections; the new text is validated before it atomically replaces the
file. `serve` has the commands serve and install; `sources` reads files of other programs, and bundles.
"""

from __future__ import annotations

import difflib
import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from plugbay.cli import local_host
from plugbay.cli.exit_codes import Exit
from plugbay.cli.help import HelpCommand, HelpGroup
from plugbay.cli.mcp.login import login, logout
from plugbay.cli.mcp.serve import INSTALL_EXAMPLES, SERVE_EXAMPLES, install, serve
from plugbay.cli.options import AsJson, ConfigFile, read_secret
from plugbay.cli.packages.common import report_refusals
from plugbay.cli.paths import CONFIG_NAME
from plugbay.cli.render import output, schema_text
from plugbay.contracts.mcp import remote
from plugbay.model.errors import CallFailed, Code, ConfigInvalid, Failure, ManifestInvalid, Origin, Problem
from plugbay.model.ids import id_problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugbay.cli.mcp.sources import ImportedServer, SkippedServer
    from plugbay.host.admin.servers import ServerEntry
    from plugbay.host.catalog.approvals import Approval, Change
    from plugbay.host.config.config import Config
    from plugbay.host.discovery.folders import Found
    from plugbay.host.host import Host
    from plugbay.host.status import PluginStatus


Name = Annotated[str, typer.Argument(metavar="NAME", help="The server's name; it is also its plugin id.")]
Plugins = Annotated[Path | None, typer.Option(metavar="DIR", help="Also look in this folder of plugins.")]
Env = Annotated[
    list[str] | None, typer.Option(metavar="K=V", help="An environment variable; V may be secret://NAME or ${VAR}.")
]
Headers = Annotated[
    list[str] | None,
    typer.Option(metavar="'NAME: VALUE'", help="A header for a URL; VALUE may have secret://NAME or ${VAR}."),
]
Cwd = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Its working directory; the folder of plugbay.toml by default.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Approve the offer without asking.")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace a server of the same name.")]

EXAMPLES = """\
Examples
plugbay mcp add files -- npx -y @modelcontextprotocol/server-filesystem .
plugbay mcp add github --env TOKEN=secret://token -- docker run -i --rm ghcr.io/example/github
plugbay mcp add notes notes.mcpb
plugbay mcp add hub https://mcp.example.com/mcp --header 'Authorization: Bearer secret://token'
plugbay mcp login hub
plugbay mcp import ~/.cursor/mcp.json
plugbay mcp approve files"""

mcp = typer.Typer(
    name="mcp",
    help="Host MCP servers as plugins, and serve plugins over MCP.",
    epilog=EXAMPLES,
    cls=HelpGroup,
    no_args_is_help=True,
)


class State:
    """plugbay.toml, the state folder, and the plugins of an optional folder."""

    def __init__(self, named: Path | None, plugins: Path | None = None) -> None:
        from plugbay.host.discovery.folders import discover

        self.file = named or Path(CONFIG_NAME)
        self.config: Config | None = _load(self.file)
        self.folder = local_host.state_dir(self.config)
        self.found: list[Found] = [] if plugins is None else discover([local_host.check_folder(plugins)])


def _load(file: Path) -> Config | None:
    """The operator's settings; None while the file does not exist."""
    from plugbay.host.config import config

    return config.load(file) if file.exists() else None


@mcp.command(cls=HelpCommand, epilog=EXAMPLES)
def add(
    name: Name,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="-- CMD… | FILE.mcpb | URL", help="The command that starts the server, a bundle, or its URL."
        ),
    ],
    env: Env = None,
    header: Headers = None,
    cwd: Cwd = None,
    replace: Replace = False,
    yes: Yes = False,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Declare an MCP server in plugbay.toml, and approve its offer. Starts the server once to read the offer.

    Exits with 5 unless the offer is approved; the server stays declared, and pending.
    """
    from plugbay.cli.mcp import sources
    from plugbay.host.admin.servers import ServerEntry, save_secrets

    state = State(config)
    _check_name(state, name, replace)
    is_remote = len(words) == 1 and remote.is_url(words[0])
    if is_remote and (env or cwd is not None):
        raise typer.BadParameter("a URL has headers; --env and --cwd are for a command", param_hint="URL")
    if header and not is_remote:
        raise typer.BadParameter("headers are for a URL; a command has --env", param_hint="--header")
    with report_refusals(as_json):
        entry = ServerEntry(name)
        section: dict[str, Any]
        if len(words) == 1 and sources.is_bundle(words[0]):
            section = {"bundle": str(_unpack_bundle(Path(words[0]), state.folder))}
        else:
            _fill(entry, words, env or (), header or (), cwd)
            save_secrets(state.folder, name, entry.secrets)
            for key in entry.secrets:
                output.note(f"{key} is saved as a secret of {name}")
            section = entry.section()
        write_servers(state.file, {name: section})
    if not as_json:
        output.note(f"{name} is declared in {state.file}")
    _ask_for_secrets(entry, state.folder)
    try:
        _approve(name, State(config), yes, as_json)
    except CallFailed:
        output.note(f"{name} stays declared; --replace changes the declaration, plugbay mcp remove {name} removes it")
        raise


@mcp.command("import", cls=HelpCommand, epilog=EXAMPLES)
def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Configuration files of MCP clients.")],
    replace: Replace = False,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Declare the MCP servers of other programs in plugbay.toml.

    Reads the files of Claude, Cursor, VS Code, Windsurf, Zed and Codex, and changes none of them. Shows the imported
    servers, and each skipped one with the reason. Servers stay pending until plugbay mcp approve.
    """
    from plugbay.cli.mcp import sources
    from plugbay.host.admin.servers import save_secrets

    state = State(config)
    taken: dict[str, ImportedServer] = {}
    left: list[SkippedServer] = []
    for file in files:
        found, refused = sources.read(file)
        left += refused
        for server in found:
            known = server.name in read_servers(state.file)
            if server.name in taken or (known and not replace):
                why = "appears twice" if server.name in taken else f"is already in {state.file}; --replace replaces it"
                left.append(sources.SkippedServer(server.name, why))
            else:
                taken[server.name] = server
    if taken:
        write_servers(state.file, {name: server.section() for name, server in taken.items()})
        for server in taken.values():
            save_secrets(state.folder, server.name, server.secrets)
    _show_import(state.file, list(taken.values()), left, as_json)


@mcp.command("list", cls=HelpCommand, epilog=EXAMPLES)
def list_(plugins: Plugins = None, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Show every MCP server, its approval, and its approved offer. Starts nothing."""
    state = State(config, plugins)
    host = local_host.make_host(state.found, state.config, grants=())
    rows = [_row(host, status) for status in host.plugins() if status.needs_approval]
    broken = [item for item in host.problems if item.errors and item.entry]
    if as_json:
        failed = [{"server": item.entry, "problems": [each.to_json() for each in item.errors]} for item in broken]
        output.print_json({"servers": rows, "invalid": failed})
        return
    page = output.out()
    for row in rows:
        style = output.GOOD_STYLE if row["state"] == "approved" else output.WARN_STYLE
        page.line((row["server"], output.NAME), "  ", (row["state"], style), (f"  {row['offers']}", output.DIM))
        page.line((row.get("url") or shlex.join(row["command"]), output.DIM), indent=2)
        if row["problem"]:
            page.line((output.WARN, output.WARN_STYLE), f" {row['problem']}", indent=2)
    for item in broken:
        page.line((item.entry, output.NAME), "  ", ("invalid", output.BAD_STYLE))
        for problem in item.errors:
            page.line(str(problem), indent=2)
    if not rows and not broken:
        output.note("there are no MCP servers; plugbay mcp add declares one")


@mcp.command(cls=HelpCommand, epilog=EXAMPLES)
def approve(
    name: Name, yes: Yes = False, plugins: Plugins = None, config: ConfigFile = None, as_json: AsJson = False
) -> None:
    """Approve the offer of a server. Starts it once, and shows the offer, or the changes since the last approval.

    Exits with 5 unless the offer is approved.
    """
    _approve(name, State(config, plugins), yes, as_json)


@mcp.command(cls=HelpCommand, epilog=EXAMPLES)
def diff(name: Name, plugins: Plugins = None, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Compare the offer of a server with the approved one. Starts the server once.

    Exits with 9 when there are differences, with 5 when no offer was approved yet.
    """
    state = State(config, plugins)
    offer = read_offer(name, state.found, state.config)
    if offer.approved is None:
        raise CallFailed(_denied(f"no offer of {name} has been approved yet", f"plugbay mcp approve {name}"))
    if as_json:
        output.print_json(offer.to_json())
    elif offer.changes:
        show_changes(output.out(), offer.changes)
    else:
        output.note(f"the offer of {name} is the one approved on {offer.approved.approved_at}")
    raise typer.Exit(Exit.FINDINGS if offer.changes else Exit.OK)


@mcp.command(cls=HelpCommand, epilog=EXAMPLES)
def remove(name: Name, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Remove a server from plugbay.toml. Also removes its approval, secrets, login and unpacked bundle."""
    from plugbay.host.admin.servers import forget_server

    state = State(config)
    known = {} if state.config is None else dict(state.config.mcp)
    if name not in known:
        raise CallFailed(unknown_server(name, list(known), f"{state.file} declares no server {name!r}"))
    remove_server(state.file, name)
    forgotten = forget_server(state.folder, name, known.pop(name), known.values())
    if as_json:
        output.print_json({"server": name, "removed": True, **forgotten._asdict()})
    else:
        output.note(f"{name} is no longer in {state.file}")


@mcp.command(cls=HelpCommand, epilog=EXAMPLES)
def secret(
    name: Name,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The name after secret:// in its variables.")],
    config: ConfigFile = None,
) -> None:
    """Set a secret of a server. The value is read from the terminal without echo, or from standard input."""
    from plugbay.host.admin.servers import save_secrets

    state = State(config)
    if state.config is None or name not in state.config.mcp:
        known = [] if state.config is None else list(state.config.mcp)
        raise CallFailed(unknown_server(name, known, f"{state.file} declares no server {name!r}"))
    typed = read_secret(key)
    if not typed:
        hint = {"hint": "type the value, or pipe it in: … < FILE"}
        raise CallFailed(Failure(Code.INVALID_INPUT, f"no value was given for {key}", plugin=name, detail=hint))
    save_secrets(state.folder, name, {key: typed})
    output.note(f"{name}: the secret {key} is saved")


mcp.command(cls=HelpCommand, epilog=EXAMPLES)(login)
mcp.command(cls=HelpCommand, epilog=EXAMPLES)(logout)
mcp.command(cls=HelpCommand, epilog=SERVE_EXAMPLES)(serve)
mcp.command(cls=HelpCommand, epilog=INSTALL_EXAMPLES)(install)


def _approve(name: str, state: State, yes: bool, as_json: bool) -> None:
    """Read the server's offer, show it, ask, save the approval."""
    offer = read_offer(name, state.found, state.config)
    page = output.err() if as_json else output.out()
    if offer.approved is not None and offer.changes:
        show_changes(page, offer.changes)
    elif not as_json:
        show(page, offer)
    unchanged = offer.approved is not None and not offer.changes
    approved = unchanged or yes or output.confirm(f"Approve this offer of {name}?")
    if approved and not unchanged:
        save_approval(offer, state.folder)
    if as_json:
        output.print_json({**offer.to_json(), "approved": approved})
    if not approved:
        if not as_json:
            output.problem(f"{name} is not approved and stays pending", hint="--yes approves it without asking")
        raise typer.Exit(Exit.DENIED)
    if not as_json:
        output.note(f"{name} was already approved" if unchanged else f"{name} is approved")


def _check_name(state: State, name: str, replace: bool) -> None:
    problem = id_problem(name)
    if problem is not None:
        raise typer.BadParameter(f"{name!r} cannot be the name of a server: it {problem}", param_hint="NAME")
    if name in read_servers(state.file) and not replace:
        text = f"{state.file} already declares a server {name!r}"
        raise CallFailed(_denied(text, "--replace replaces it"))


def _fill(entry: ServerEntry, words: list[str], env: Sequence[str], headers: Sequence[str], cwd: Path | None) -> None:
    """The section of a server; a credential in plain text becomes a secret."""
    from plugbay.host.admin.servers import parse_header, parse_variable

    try:
        param = "URL"
        if remote.is_url(words[0]) and len(words) == 1:
            entry.set_url(words[0])
        else:
            entry.command, entry.cwd = list(words), None if cwd is None else str(cwd.absolute())
        param = "--header"
        for text in headers:
            entry.add_header(*parse_header(text))
        param = "--env"
        for text in env:
            entry.add_variable(*parse_variable(text))
    except ValueError as error:
        text = f"the {error}" if param == "URL" else str(error)
        raise typer.BadParameter(text, param_hint=param) from None
    wrong = remote.headers_problem(entry.headers)
    if wrong is not None:
        raise typer.BadParameter(f"the header {wrong[0]} {wrong[1]}", param_hint="--header")


def _unpack_bundle(bundle: Path, state: Path) -> Path:
    """Unpack a bundle; raises `ManifestInvalid` if it has no server that can run here."""
    from plugbay.cli.mcp import sources
    from plugbay.host.admin.servers import remove_bundle
    from plugbay.host.discovery.folders import inspect

    folder = sources.unpack_bundle(bundle, state)
    found = inspect(folder, "mcp")
    if found.spec is None:
        remove_bundle(folder, state)
        raise ManifestInvalid(str(bundle), found.errors)
    return folder


def _ask_for_secrets(entry: ServerEntry, state: Path) -> None:
    """Prompt for secrets that the server refers to and that are not set; without a terminal, name the commands."""
    import getpass
    import sys

    from plugbay.host.admin.servers import save_secrets

    missing = entry.missing_secrets(state)
    if missing and sys.stdin is not None and sys.stdin.isatty():
        save_secrets(state, entry.name, {key: getpass.getpass(f"{key}: ") for key in missing})
    elif missing:
        commands = "; ".join(f"plugbay mcp secret {entry.name} {key}" for key in missing)
        output.note(f"{entry.name} needs secrets that are not set yet: {commands}")


def _show_import(file: Path, taken: list[ImportedServer], left: list[SkippedServer], as_json: bool) -> None:
    if as_json:
        imported = [
            {
                "server": item.name,
                "command": item.command,
                "notes": item.notes,
                **({"url": item.url} if item.url else {}),
            }
            for item in taken
        ]
        skipped = [{"server": item.name, "why": item.why} for item in left]
        output.print_json({"config": str(file), "taken": imported, "left": skipped})
        return
    page = output.out()
    for server in taken:
        page.line((output.OK, output.GOOD_STYLE), " ", (server.name, output.NAME), f"  {server.shown}")
        for note in server.notes:
            page.line((output.WARN, output.WARN_STYLE), f" {note}", indent=2)
    for item in left:
        page.line((output.SKIP, output.DIM), " ", (item.name, output.NAME), f"  skipped: {item.why}")
    if taken:
        count = output.count(len(taken), "server")
        output.note(f"{count} declared in {file}, pending; next: plugbay mcp approve {taken[0].name}")


def _row(host: Host, status: PluginStatus) -> dict[str, Any]:
    """The public shape of one server in the list."""
    from plugbay.host.admin.servers import summarize

    pin = host.runtime_exports.approval(status.spec.id)
    return {
        "server": status.spec.id,
        "state": "approved" if pin else "pending",
        "offers": summarize(pin),
        "approved_at": pin.approved_at if pin else None,
        "era": pin.era if pin else None,
        "command": [] if status.spec.url else list(status.spec.command),
        **({"url": status.spec.url} if status.spec.url else {}),
        "problem": host.runtime_exports.problems.get(status.spec.id),
    }


def _denied(text: str, hint: str) -> Failure:
    return Failure(Code.CAPABILITY_NOT_ALLOWED, text, origin=Origin.POLICY, detail={"hint": hint})


# The sections of plugbay.toml.


def read_servers(path: Path) -> dict[str, Any]:
    """The declared servers by name; raises `ConfigInvalid`."""
    from plugbay.host.config import editing

    return editing.servers(editing.read(path))


def write_servers(path: Path, servers: Mapping[str, Mapping[str, Any]]) -> None:
    """Add these servers, replacing those of the same names; raises `ConfigInvalid`."""
    from plugbay.host.config import editing

    with editing.locked(path):
        document = editing.read(path)
        editing.declare_servers(document, servers)
        _replace(path, editing.to_text(document, path))


def remove_server(path: Path, name: str) -> bool:
    """Remove a server; False if it was not declared. Raises `ConfigInvalid`."""
    from plugbay.host.config import editing

    with editing.locked(path):
        document = editing.read(path)
        found = editing.remove_server(document, name)
        if found:
            _replace(path, editing.to_text(document, path))
    return found


def _replace(path: Path, text: str) -> None:
    from plugbay.host.disk.durable import replace_at

    target = path.resolve()  # a link stays a link
    try:
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
        at = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            replace_at(at, target.name, text.encode(), mode)
        finally:
            os.close(at)
    except OSError as error:
        raise ConfigInvalid(str(path), [Problem("unwritable", "", f"cannot be written: {error.strerror}")]) from None


# Offers and approvals.

MAX_TEXT = 2_000
"""Characters of a description that are printed. A cut is marked: an attack may hide in the rest."""

INVISIBLE = frozenset(
    map(chr, [0x34F, 0x115F, 0x1160, 0x3164, 0xFFA0, *range(0xFE00, 0xFE0F), *range(0xE0100, 0xE01F0)])
)
"""Invisible characters that Unicode calls printable; attacks hide text with them. U+FE0F, the last of
the variation selectors, is not listed: emoji need it, and alone it can encode nothing."""


class ServerOffer(NamedTuple):
    """The current offer of a server beside the approved one."""

    name: str
    hello: dict[str, Any]
    candidate: Approval
    approved: Approval | None
    changes: list[Change]

    def to_json(self) -> dict[str, Any]:
        """The public shape."""
        from plugbay.host.catalog.approvals import PARTS

        listed = self.hello["offer"]
        return {
            "server": self.name,
            "era": self.hello.get("era"),
            "protocol_version": self.hello.get("protocol_version"),
            "info": self.hello.get("server"),
            "offers": {part: [item.get(key) for item in listed.get(part) or ()] for part, key in PARTS.items()},
            "definitions": {part: list(listed.get(part) or ()) for part in PARTS},
            "warnings": list(self.hello.get("warnings") or ()),
            "approved_before": self.approved is not None,
            "changes": [change.to_json() for change in self.changes],
        }


def read_offer(name: str, found: list[Found], config: Config | None) -> ServerOffer:
    """Start the server once, without any grant, and read its offer; raises `CallFailed`."""
    output.show_host_log(without=output.FAILED_STARTS)
    host = local_host.make_host(found, config, grants=(), trusted=(name,))
    known = [status.spec.id for status in host.plugins() if status.needs_approval]
    if name not in known:
        raise CallFailed(unknown_server(name, known, f"there is no MCP server {name!r}"))
    problem = host.runtime_exports.problems.get(name)
    if problem is not None:
        output.note(f"{name} must be approved again: {problem}")
    return local_host.run_with(host, lambda running: _read_offer(running, name))


def unknown_server(name: str, known: Sequence[str], text: str) -> Failure:
    """The failure for a wrong server name, with the closest known name."""
    near = difflib.get_close_matches(name, known, n=1)
    meant = f"did you mean {near[0]!r}?" if near else f"known servers: {', '.join(known) or 'none'}"
    hint = "plugbay mcp list shows all servers" if known else "plugbay mcp add declares a server"
    return Failure(Code.NOT_FOUND, f"{text}; {meant}", detail={"hint": hint})


async def _read_offer(host: Host, name: str) -> ServerOffer:
    failures = await host.meet(name)
    if failures:
        raise CallFailed(failures[name])
    hello = host.runtime_exports.hello(name)
    assert hello is not None, "meet() succeeded, so the server has greeted"
    return ServerOffer(
        name,
        dict(hello),
        host.runtime_exports.candidate(name),
        host.runtime_exports.approval(name),
        host.runtime_exports.drift(name),
    )


def save_approval(offer: ServerOffer, state: Path) -> None:
    """Approve exactly this offer; raises `ConfigInvalid`."""
    from plugbay.host.catalog.approvals import Approvals

    Approvals(state).save(offer.name, offer.candidate)


def show(page: output.Printer, offer: ServerOffer) -> None:
    """Print the whole offer."""
    server = offer.hello.get("server") or {}
    title = server.get("title") or server.get("name") or offer.name
    page.line((offer.name, output.NAME), f"  {_shorten(title)} {_shorten(server.get('version', ''))}".rstrip())
    page.field("protocol", f"MCP {offer.hello['protocol_version']}", (f"{output.DOT}{offer.hello['era']}", output.DIM))
    if server.get("instructions"):
        page.field("instructions", _shorten(server["instructions"]))
    for part, definition in _definitions(offer):
        page.line((part, output.DIM), " ", (_shorten(_name(definition)), output.CODE), indent=2)
        for text in _texts(definition):
            page.line(_shorten(text), indent=4)
        if part == "tool":
            page.line(("input ", output.DIM), schema_text.summary(definition.get("inputSchema")), indent=4)
    if not any(offer.hello["offer"].get(part) for part in offer.hello["offer"]):
        page.line(("offers nothing", output.WARN_STYLE), indent=2)
    for warning in offer.hello.get("warnings") or ():
        page.line((output.WARN, output.WARN_STYLE), f" {warning}", indent=2)


def _definitions(offer: ServerOffer) -> list[tuple[str, dict[str, Any]]]:
    from plugbay.host.catalog.approvals import NOUNS, PARTS

    return [(NOUNS[part], definition) for part in PARTS for definition in offer.hello["offer"].get(part) or ()]


def _texts(definition: dict[str, Any]) -> list[str]:
    """Title and description."""
    return [str(definition[key]) for key in ("title", "description") if definition.get(key)]


def _name(definition: dict[str, Any]) -> str:
    return str(definition.get("uri") or definition.get("uriTemplate") or definition.get("name"))


def _shorten(text: str) -> str:
    line = "".join(map(_make_visible, " ".join(text.split())))
    if len(line) <= MAX_TEXT:
        return line
    return f"{line[:MAX_TEXT]}… and {len(line) - MAX_TEXT:,} more characters, which --json shows"


def _make_visible(char: str) -> str:
    """Escape a character that a model reads and a person cannot see, such as one without width."""
    return char if char.isprintable() and char not in INVISIBLE else f"\\u{{{ord(char):x}}}"


def show_changes(page: output.Printer, changes: Sequence[Change]) -> None:
    """Print a diff of each changed definition."""
    for change in changes:
        page.line((str(change), output.NAME))
        page.diff(_difference(change), indent=2)


def _difference(change: Change) -> list[str]:
    before, after = _lines(change.before), _lines(change.after)
    return list(difflib.unified_diff(before, after, lineterm="", n=2))[2:]


def _lines(definition: dict[str, Any] | None) -> list[str]:
    text = json.dumps(definition, indent=2, sort_keys=True, ensure_ascii=False)
    return [] if definition is None else ["".join(map(_make_visible, line)) for line in text.split("\n")]
