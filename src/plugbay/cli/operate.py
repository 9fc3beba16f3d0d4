"""Commands for operators of a running server: ps, logs, start, stop, restart, reload, grant, revoke, dashboard, prune.

Each is one request to the server's API (`plugbay.cli.remote`); `ps --plugins DIR` uses a local host instead.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plugbay.cli import completion, exit_codes, local_host, remote
from plugbay.cli.options import AsJson, ConfigFile, Grant, GrantAll, NoSandbox, Server, TokenFile
from plugbay.cli.paths import CONFIG_NAME
from plugbay.cli.remote import ServerClient
from plugbay.cli.render import output, policy_view
from plugbay.cli.render.call_view import HumanView, JsonView

if TYPE_CHECKING:
    from plugbay.host.host import Host

Id = Annotated[
    str, typer.Argument(metavar="ID", help="The plugin's id.", autocompletion=completion.ids_of(completion.PLUGINS))
]
PluginOrPackage = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The id of a plugin, or of a package.",
        autocompletion=completion.ids_of(completion.PLUGINS, completion.PACKAGES),
    ),
]
Capabilities = Annotated[list[str], typer.Argument(metavar="CAP…", help="Requested capabilities.")]


def start(plugin: Id, server: Server = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Start a stopped or quarantined plugin of the running server."""
    _operate("start", plugin, None, server, token_file, as_json)


def stop(plugin: Id, server: Server = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Stop a plugin of the running server. Calls to it fail until it is started."""
    _operate("stop", plugin, None, server, token_file, as_json)


def restart(plugin: Id, server: Server = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Stop a plugin of the running server at once, and start it again."""
    _operate("restart", plugin, None, server, token_file, as_json)


def reload(plugin: Id, server: Server = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Restart a plugin of the running server after its running calls."""
    _operate("reload", plugin, None, server, token_file, as_json)


def grant(
    plugin: Id,
    capabilities: Capabilities,
    server: Server = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Grant capabilities to a plugin of the running server. Its plugbay.toml keeps them."""
    _operate("grant", plugin, {"capabilities": capabilities}, server, token_file, as_json)


def revoke(
    plugin: Id,
    capabilities: Capabilities,
    server: Server = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Revoke capabilities of a plugin of the running server. Changes its plugbay.toml."""
    _operate("revoke", plugin, {"capabilities": capabilities}, server, token_file, as_json)


def _operate(operation: str, plugin: str, body: Any, server: Any, token_file: Any, as_json: bool) -> None:
    done = remote.find(server, token_file, quiet=as_json).post(remote.plugin_path(plugin, f":{operation}"), body)
    if as_json:
        output.print_json(done)
        return
    granted = ", ".join(done["granted"]) or "nothing"
    text = f" is {done['state']}{output.DOT}granted {granted}"
    output.err().line((output.OK, output.GOOD_STYLE), " ", (done["id"], output.NAME), text)
    if done["refused"]:
        output.note(f"{done['id']}: {done['refused']}")


# plugbay ps.

START_SECONDS = 20.0
"""Maximum wait for plugins that start with the host."""

COLUMNS = ("PLUGIN", "CONTRACT", "STATE", "VERSION", "PID", "SANDBOX AND GRANTS")
NODE_COLUMNS = ("PLUGIN", "CONTRACT", "STATE", "VERSION", "PID", "NODE", "SANDBOX AND GRANTS")

PsFolder = Annotated[
    Path | None, typer.Option("--plugins", metavar="DIR", help="Show this plugin or folder of plugins.")
]


def ps(
    plugins: PsFolder = None,
    grant: Grant = None,
    grant_all: GrantAll = False,
    no_sandbox: NoSandbox = False,
    config: ConfigFile = None,
    server: Server = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the plugins of the running server: state, process, grants.

    With --plugins, or when no server runs, shows the plugins of a folder and of plugbay.toml, and starts those that
    start with their host. In a cluster, also shows the packages that nodes run.
    """
    view = JsonView() if as_json else HumanView()
    settings = local_host.load_config(config)
    client = None if plugins is not None else _find_server(server, token_file, bool(settings and settings.mcp), as_json)
    found = [] if plugins is None else local_host.discover_in(plugins)
    invalid: list[dict[str, Any]] = []
    on_nodes: list[dict[str, Any]] = []
    if client is not None:
        answer = client.get("/api/v1/plugins")
        shown, invalid, on_nodes = answer["plugins"], answer["invalid"], answer.get("on_nodes", [])
    else:
        if plugins is None and not as_json:
            output.using(local_host.describe(CONFIG_NAME if config is None else config))
        output.show_host_log()
        view.show_warnings(found, grant or ())
        host = local_host.make_host(
            found, settings, grants=grant, grant_all=grant_all, unconfined=no_sandbox, eager=True
        )
        shown = local_host.run_with(host, _read_statuses)
    if as_json:
        more = {} if client is None else {"invalid": invalid, "on_nodes": on_nodes}
        output.print_json({"plugins": shown, **more})
    else:
        show(output.out(), shown, invalid, on_nodes)


def _find_server(server: str | None, token_file: Path | None, has_others: bool, quiet: bool) -> ServerClient | None:
    """The running server; None when there is none and plugbay.toml declares plugins for a local host."""
    try:
        return remote.find(server, token_file, quiet=quiet)
    except remote.NoServer as error:
        if server is None and has_others:
            return None
        hint = f"{error.hint}; --plugins DIR shows the plugins of a folder" if error.hint else ""
        raise remote.NoServer(error.failure.message, hint) from None


async def _read_statuses(host: Host) -> list[dict[str, Any]]:
    from plugbay.host.admin import operating

    await host.settled(START_SECONDS)
    return [operating.shape(host, status) for status in host.plugins()]


def show(
    page: output.Printer,
    plugins: Sequence[dict[str, Any]],
    invalid: Sequence[dict[str, Any]] = (),
    on_nodes: Sequence[dict[str, Any]] = (),
) -> None:
    """Print the table of plugins, with those on nodes, then the folders that could not be loaded."""
    if on_nodes:
        rows = [((*_cells(plugin), ""), _confinement_and_grants(plugin)) for plugin in plugins]
        rows += [
            ((each["id"], "vai", "running", each["version"], "", ", ".join(each["nodes"])), []) for each in on_nodes
        ]
        page.table(NODE_COLUMNS, rows)
    elif plugins:
        page.table(COLUMNS, [(_cells(plugin), _confinement_and_grants(plugin)) for plugin in plugins])
    else:
        page.line("no plugins yet; put one into a folder of the server, or install one: plugbay install FILE")
    for each in invalid:
        problems = [problem["message"] for problem in each["problems"] if problem["severity"] == "error"]
        page.line((f"{output.BAD} ", output.BAD_STYLE), each["folder"], f": {'; '.join(problems)}")


def _cells(plugin: dict[str, Any]) -> tuple[str, ...]:
    pid = "" if plugin["pid"] is None else str(plugin["pid"])
    return plugin["id"], plugin["contract"], plugin["state"], plugin["version"], pid


def _confinement_and_grants(plugin: dict[str, Any]) -> list[output.Part]:
    """Confinement and grants; refusals and missing confinement in the warning colour."""
    sandbox = plugin["sandbox"]
    limits = f", limits {plugin['limits']}" if plugin["limits"] == "degraded" else ""
    confined = f"{sandbox['confined']}{limits}"
    parts: list[output.Part] = [(confined, "" if confined == "confined" else output.WARN_STYLE)]
    if sandbox["policy"] is not None:
        parts.append(f"{output.DOT}{policy_view.summarize_json(sandbox['policy'])}")
    if plugin["refused"]:
        return [*parts, output.DOT, (plugin["refused"], output.WARN_STYLE)]
    return [*parts, f"{output.DOT}granted {', '.join(plugin['granted']) or 'nothing'}"]


# plugbay dashboard.

Open = Annotated[bool, typer.Option("--open", help="Open the link in a browser.")]


def dashboard(
    server: Server = None, token_file: TokenFile = None, open_it: Open = False, as_json: AsJson = False
) -> None:
    """Print a dashboard link of the running server. It works once, within ten minutes."""
    link = remote.find(server, token_file, quiet=as_json).post("/api/v1/dashboard-links")
    if as_json:
        output.print_json(link)
    else:
        print(link["url"])
    if open_it:
        import webbrowser

        if not webbrowser.open(link["url"]):
            output.note("no browser was found; open the link yourself")


# plugbay prune.

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show the number of old records; remove nothing.")]

HOUR, DAY = 3600, 24 * 3600


def prune(
    dry_run: DryRun = False, server: Server = None, token_file: TokenFile = None, as_json: AsJson = False
) -> None:
    """Remove old records of the running server. Its plugbay.toml sets the ages.

    The server does this by itself every ten minutes. Records of unfinished work stay, however old they are.
    """
    done = remote.find(server, token_file, quiet=as_json).post("/api/v1/records:prune", {"dry_run": dry_run})
    if as_json:
        output.print_json(done)
        return
    rows = [
        ((kind.replace("_", " "), _age(old["kept"])), [str(old["number"])]) for kind, old in done["records"].items()
    ]
    output.out().table(("RECORDS", "KEPT", "TOO OLD" if dry_run else "REMOVED"), rows)


def _age(seconds: float | None) -> str:
    """Format an age as plugbay.toml writes it."""
    if not seconds:
        return "forever" if seconds is None else "until they expire"
    whole = round(seconds)
    return output.count(whole // DAY, "day") if whole % DAY == 0 else output.count(whole // HOUR, "hour")


# plugbay logs.

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until Ctrl-C.")]
Tail = Annotated[int, typer.Option(metavar="N", min=0, max=1000, help="Past lines to show; 100 by default.")]
LinesAsJson = Annotated[bool, typer.Option("--json", help="Print a JSON object for each line.")]
Org = Annotated[str | None, typer.Option("--org", metavar="ORG", help="Show the log of a package for this org.")]

STYLES = {"warn": output.WARN_STYLE, "error": output.BAD_STYLE}


def logs(
    plugin: PluginOrPackage,
    follow: Follow = False,
    tail: Tail = 100,
    org: Org = None,
    server: Server = None,
    token_file: TokenFile = None,
    as_json: LinesAsJson = False,
) -> None:
    """Show the log of a plugin or a package of the running server.

    The log of a plugin has its output, and notes of the host. The log of a package has the output of its processes for
    one org: that of the token, or of --org. Nodes add their last 200 lines, with their names.
    """
    client = remote.find(server, token_file, quiet=as_json)
    path, query = _log_of(client, plugin, org)
    query["tail"] = tail
    try:
        if follow:
            for _, line in client.events("GET", path, **query, follow="true"):
                _show_log_line(line, as_json)
            return
        lines = client.get(path, **query)["lines"]
    except KeyboardInterrupt:
        raise typer.Exit(exit_codes.for_signal(signal.SIGINT)) from None
    for line in lines:
        _show_log_line(line, as_json)
    if not lines and not as_json:
        output.note(f"the log of {plugin} is empty")


def _log_of(client: ServerClient, plugin: str, org: str | None) -> tuple[str, dict[str, Any]]:
    """The path and the query of a log: of a plugin of the host, else of a package that the token can see."""
    path = remote.plugin_path(plugin, "/logs")
    if org is None:
        try:
            client.get(path, tail=0)
            return path, {}
        except remote.RemoteRefused as refused:
            if refused.http_status not in (403, 404):
                raise
            missing = refused
    else:
        missing = None
    found = _package_row(client, plugin)
    if found is not None:
        return f"/v1/plugin-packages/{found}/logs", {"org_id": org}
    raise missing or remote.RemoteRefused(
        404, {"code": "package.not_found", "message": f"there is no package {plugin!r}"}, client.url
    )


def _package_row(client: ServerClient, word: str) -> str | None:
    """The id of a package's row, from that id or from the package's own; None if the token sees no such package."""
    if word.startswith("pkg_"):
        return word
    try:
        found = client.get("/v1/plugin-packages", package_id=word, limit=1)["items"]
    except remote.RemoteRefused as refused:
        if refused.http_status == 400:  # a word that no package id looks like
            return None
        raise
    return found[0]["id"] if found else None


def _show_log_line(line: dict[str, Any], as_json: bool) -> None:
    if as_json:
        output.print_line(line)
        return
    node = f"{line['node']} " if line.get("node") else ""
    head = (f"{line['at']} {line['source']:6} {node}", output.DIM)
    output.out().line(head, (line["text"], STYLES.get(line["level"], "")))
