"""The command group `plugbay mcp`: add, import, list, approve, diff, remove, secret; serve and install are beside it.

`config_file` edits plugbay.toml, `approval` shows the offer of a server, `sources` reads other programs' files.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plugbay.cli import local_host
from plugbay.cli.exit_codes import Exit
from plugbay.cli.help import HelpCommand, HelpGroup
from plugbay.cli.mcp import approval, config_file
from plugbay.cli.mcp.install import EXAMPLES as INSTALL_EXAMPLES
from plugbay.cli.mcp.install import install
from plugbay.cli.mcp.serve import EXAMPLES as SERVE_EXAMPLES
from plugbay.cli.mcp.serve import serve
from plugbay.cli.packages.common import report_refusals
from plugbay.cli.render import output
from plugbay.model.errors import CallFailed, Code, Failure, ManifestInvalid, Origin
from plugbay.model.ids import id_problem

if TYPE_CHECKING:
    from plugbay.cli.mcp.sources import ImportedServer, SkippedServer
    from plugbay.host.config.config import Config
    from plugbay.host.discovery.folders import Found
    from plugbay.host.host import Host
    from plugbay.host.status import PluginStatus

Name = Annotated[str, typer.Argument(metavar="NAME", help="The server's name, which is its plugin id.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Instead of plugbay.toml in this directory.")
]
Plugins = Annotated[Path | None, typer.Option(metavar="DIR", help="Also look for servers in a folder of plugins.")]
Env = Annotated[list[str] | None, typer.Option(metavar="K=V", help="A variable; V may be secret://NAME or ${VAR}.")]
Cwd = Annotated[Path | None, typer.Option(metavar="DIR", help="Where it runs, instead of beside the config.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Approve what it offers without asking.")]
Replace = Annotated[bool, typer.Option("--replace", help="Put it in the place of one of the same name.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]

EXAMPLES = """\
Examples
plugbay mcp add files -- npx -y @modelcontextprotocol/server-filesystem .
plugbay mcp add github --env TOKEN=secret://token -- docker run -i --rm ghcr.io/example/github
plugbay mcp add notes notes.mcpb
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

        self.file = config_file.resolve_path(named)
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
    words: Annotated[list[str], typer.Argument(metavar="-- CMD… | FILE.mcpb", help="What to run, or a bundle.")],
    env: Env = None,
    cwd: Cwd = None,
    replace: Replace = False,
    yes: Yes = False,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Declare an MCP server in plugbay.toml, start it once, show what it offers and approve that.

    Exits with 5 unless it is approved: it stays declared, and pending.
    """
    from plugbay.cli.mcp import sources

    state = State(config)
    _check_name(state, name, replace)
    with report_refusals(as_json):
        if len(words) == 1 and sources.is_bundle(words[0]):
            entry: dict[str, Any] = {"bundle": str(_unpack_bundle(Path(words[0]), state.folder))}
        else:
            folder = None if cwd is None else str(cwd.absolute())
            entry = sources.ImportedServer(name, list(words), _variables(env or ()), cwd=folder).entry()
        config_file.write_servers(state.file, {name: entry})
    if not as_json:
        output.note(f"{name} is declared in {state.file}")
    _ask_for_secrets(name, entry.get("env", {}), state.folder)
    try:
        _approve(name, State(config), yes, as_json)
    except CallFailed:
        output.note(f"{name} stays declared: --replace declares it anew, plugbay mcp remove {name} takes it out")
        raise


@mcp.command("import", cls=HelpCommand, epilog=EXAMPLES)
def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Configuration files of MCP clients.")],
    replace: Replace = False,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Declare in plugbay.toml the servers that other programs have in their configuration.

    Reads the files of Claude, Cursor, VS Code, Windsurf, Zed and Codex, and changes none of them. Shows what it imports
    and what it skips and why; servers stay pending until plugbay mcp approve.
    """
    from plugbay.cli.mcp import sources

    state = State(config)
    taken: dict[str, ImportedServer] = {}
    left: list[SkippedServer] = []
    for file in files:
        found, refused = sources.read(file)
        left += refused
        for server in found:
            known = server.name in config_file.read_servers(state.file)
            if server.name in taken or (known and not replace):
                why = "is named twice" if server.name in taken else f"is in {state.file} already; --replace replaces it"
                left.append(sources.SkippedServer(server.name, why))
            else:
                taken[server.name] = server
    if taken:
        config_file.write_servers(state.file, {name: server.entry() for name, server in taken.items()})
        for server in taken.values():
            _save_secrets(server.name, server.secrets, state.folder)
    _show_import(state.file, list(taken.values()), left, as_json)


@mcp.command("list", cls=HelpCommand, epilog=EXAMPLES)
def list_(plugins: Plugins = None, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Show every MCP server, whether it is approved, and what was approved. Starts nothing."""
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
        page.line((shlex.join(row["command"]), output.DIM), indent=2)
        if row["problem"]:
            page.line((output.WARN, output.WARN_STYLE), f" {row['problem']}", indent=2)
    for item in broken:
        page.line((item.entry, output.NAME), "  ", ("invalid", output.BAD_STYLE))
        for problem in item.errors:
            page.line(str(problem), indent=2)
    if not rows and not broken:
        output.note("there are no MCP servers here; plugbay mcp add begins with one")


@mcp.command(cls=HelpCommand, epilog=EXAMPLES)
def approve(
    name: Name, yes: Yes = False, plugins: Plugins = None, config: ConfigFile = None, as_json: AsJson = False
) -> None:
    """Start a server once, show what it offers, or what has changed since, and approve that.

    Exits with 5 unless it is approved.
    """
    _approve(name, State(config, plugins), yes, as_json)


@mcp.command(cls=HelpCommand, epilog=EXAMPLES)
def diff(name: Name, plugins: Plugins = None, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Start a server once and show how what it offers differs from what was approved.

    Exits with 9 when it differs, with 5 when nothing was approved yet.
    """
    state = State(config, plugins)
    offer = approval.read_offer(name, state.found, state.config)
    if offer.approved is None:
        raise CallFailed(_denied(f"nothing of {name} has been approved yet", f"plugbay mcp approve {name}"))
    if as_json:
        output.print_json(offer.to_json())
    elif offer.changes:
        approval.show_changes(output.out(), offer.changes)
    else:
        output.note(f"{name} offers exactly what was approved on {offer.approved.approved_at}")
    raise typer.Exit(Exit.FINDINGS if offer.changes else Exit.OK)


@mcp.command(cls=HelpCommand, epilog=EXAMPLES)
def remove(name: Name, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Take a server out of plugbay.toml, with its approval, its secrets and its unpacked bundle."""
    from plugbay.cli.mcp import sources
    from plugbay.host.catalog.approvals import Approvals
    from plugbay.host.config import settings as settings_files

    state = State(config)
    known = {} if state.config is None else state.config.mcp
    if name not in known:
        raise CallFailed(approval.unknown_server(name, list(known), f"{state.file} declares no server {name!r}"))
    config_file.remove_server(state.file, name)
    was_approved = Approvals(state.folder).forget(name)
    with settings_files.changing(state.folder):
        had_secrets = sorted(settings_files.load_secrets(state.folder, name))
        if had_secrets:
            settings_files.save_secrets(state.folder, name, {})
    bundle = known[name].bundle
    others = [server.bundle for other, server in known.items() if other != name]
    if bundle is not None and bundle not in others:
        sources.remove_bundle(Path(bundle), state.folder)
    if as_json:
        output.print_json({"server": name, "removed": True, "was_approved": was_approved, "secrets": had_secrets})
    else:
        output.note(f"{name} is no longer in {state.file}")


@mcp.command(cls=HelpCommand, epilog=EXAMPLES)
def secret(
    name: Name,
    key: Annotated[str, typer.Argument(metavar="KEY", help="As it stands after secret:// in its variables.")],
    config: ConfigFile = None,
) -> None:
    """Set a secret of a server; its value is read from the terminal without showing it, or from standard input."""
    import getpass
    import sys

    state = State(config)
    if state.config is None or name not in state.config.mcp:
        known = [] if state.config is None else list(state.config.mcp)
        raise CallFailed(approval.unknown_server(name, known, f"{state.file} declares no server {name!r}"))
    at_terminal = sys.stdin is not None and sys.stdin.isatty()
    typed = getpass.getpass(f"{key}: ") if at_terminal else sys.stdin.read().removesuffix("\n")
    if not typed:
        hint = {"hint": "type it, or pipe it in: … < FILE"}
        raise CallFailed(Failure(Code.INVALID_INPUT, f"nothing was given for {key}", plugin=name, detail=hint))
    _save_secrets(name, {key: typed}, state.folder)
    output.note(f"{name}: {key} is kept")


mcp.command(cls=HelpCommand, epilog=SERVE_EXAMPLES)(serve)
mcp.command(cls=HelpCommand, epilog=INSTALL_EXAMPLES)(install)


def _approve(name: str, state: State, yes: bool, as_json: bool) -> None:
    """Read the server's offer, show it, ask, save the approval."""
    offer = approval.read_offer(name, state.found, state.config)
    page = output.err() if as_json else output.out()
    if offer.approved is not None and offer.changes:
        approval.show_changes(page, offer.changes)
    elif not as_json:
        approval.show(page, offer)
    unchanged = offer.approved is not None and not offer.changes
    approved = unchanged or yes or output.confirm(f"May {name} offer this?")
    if approved and not unchanged:
        approval.approve(offer, state.folder)
    if as_json:
        output.print_json({**offer.to_json(), "approved": approved})
    if not approved:
        if not as_json:
            output.problem(f"{name} is not approved, so it stays pending", hint="--yes approves it without asking")
        raise typer.Exit(Exit.DENIED)
    if not as_json:
        output.note(f"{name} was approved already" if unchanged else f"{name} is approved")


def _check_name(state: State, name: str, replace: bool) -> None:
    problem = id_problem(name)
    if problem is not None:
        raise typer.BadParameter(f"{name!r} cannot be the name of a server: it {problem}", param_hint="NAME")
    if name in config_file.read_servers(state.file) and not replace:
        text = f"{state.file} declares a server {name!r} already"
        raise CallFailed(_denied(text, "--replace puts the new one in its place"))


def _variables(given: list[str] | tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    wrong = [name + sign for name, sign, _ in pairs if not name or not sign]
    if wrong:
        raise typer.BadParameter(f"{wrong[0]!r} is not K=V", param_hint="--env")
    return {name: value for name, _, value in pairs}


def _unpack_bundle(bundle: Path, state: Path) -> Path:
    """Unpack a bundle; raises `ManifestInvalid` if it has no server that can run here."""
    from plugbay.cli.mcp import sources
    from plugbay.host.discovery.folders import inspect

    folder = sources.unpack_bundle(bundle, state)
    found = inspect(folder, "mcp")
    if found.spec is None:
        sources.remove_bundle(folder, state)
        raise ManifestInvalid(str(bundle), found.errors)
    return folder


def _ask_for_secrets(name: str, env: dict[str, str], state: Path) -> None:
    """Prompt for secrets that the server refers to and that are not set; without a terminal, name the commands."""
    import getpass
    import sys

    from plugbay.cli.mcp.sources import SECRET
    from plugbay.host.config import settings as settings_files

    wanted = [value.removeprefix(SECRET) for value in env.values() if value.startswith(SECRET)]
    missing = [key for key in wanted if key not in settings_files.load_secrets(state, name)]
    if missing and sys.stdin is not None and sys.stdin.isatty():
        _save_secrets(name, {key: getpass.getpass(f"{key}: ") for key in missing}, state)
    elif missing:
        commands = "; ".join(f"plugbay mcp secret {name} {key}" for key in missing)
        output.note(f"{name} needs secrets that are not set yet: {commands}")


def _save_secrets(name: str, secrets: dict[str, str], state: Path) -> None:
    from plugbay.host.config import settings as settings_files

    if secrets:
        with settings_files.changing(state):
            kept = settings_files.load_secrets(state, name)
            settings_files.save_secrets(state, name, {**kept, **secrets})


def _show_import(file: Path, taken: list[ImportedServer], left: list[SkippedServer], as_json: bool) -> None:
    if as_json:
        said = [{"server": item.name, "command": item.command, "notes": item.notes} for item in taken]
        refused = [{"server": item.name, "why": item.why} for item in left]
        output.print_json({"config": str(file), "taken": said, "left": refused})
        return
    page = output.out()
    for server in taken:
        page.line((output.OK, output.GOOD_STYLE), " ", (server.name, output.NAME), f"  {shlex.join(server.command)}")
        for note in server.notes:
            page.line((output.WARN, output.WARN_STYLE), f" {note}", indent=2)
    for item in left:
        page.line((output.SKIP, output.DIM), " ", (item.name, output.NAME), f"  left: {item.why}")
    if taken:
        output.note(f"{output.count(len(taken), 'server')} in {file}, pending: plugbay mcp approve {taken[0].name}")


def _row(host: Host, status: PluginStatus) -> dict[str, Any]:
    """The public shape of one server in the list."""
    from plugbay.host.catalog.approvals import NOUNS

    pin = host.runtime_exports.approval(status.spec.id)
    numbers = {NOUNS[part]: len(items) for part, items in (pin.offer if pin else {}).items() if items}
    return {
        "server": status.spec.id,
        "state": "approved" if pin else "pending",
        "offers": ", ".join(output.count(number, noun) for noun, number in numbers.items()),
        "approved_at": pin.approved_at if pin else None,
        "era": pin.era if pin else None,
        "command": list(status.spec.command),
        "problem": host.runtime_exports.problems.get(status.spec.id),
    }


def _denied(text: str, hint: str) -> Failure:
    return Failure(Code.CAPABILITY_NOT_ALLOWED, text, origin=Origin.POLICY, detail={"hint": hint})
