"""`plugbay ps`: every plugin, what it is doing, what it may do, and whether it is confined.

Asks the running server, or with `--plugins DIR` a local host, which starts the plugins that start with their host.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plugbay.cli import local_host, remote
from plugbay.cli.call import ConfigFile, Grant, GrantAll, NoSandbox, load_config
from plugbay.cli.remote import Server, ServerClient, TokenFile
from plugbay.cli.render import output, policy_view
from plugbay.cli.render.call_view import HumanView, JsonView

if TYPE_CHECKING:
    from plugbay.host.host import Host

START_SECONDS = 20.0
"""Maximum wait for plugins that start with the host."""

COLUMNS = ("PLUGIN", "CONTRACT", "STATE", "VERSION", "PID")
LAST = ("SANDBOX AND GRANTS", output.DIM)
GAP = "  "

Plugins = Annotated[Path | None, typer.Option(metavar="DIR", help="A plugin, or a folder of plugins.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]


def ps(
    plugins: Plugins = None,
    grant: Grant = None,
    grant_all: GrantAll = False,
    no_sandbox: NoSandbox = False,
    config: ConfigFile = None,
    server: Server = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Show every plugin of the running server: state, process, confinement, grants.

    With --plugins, and where no server runs, those of a folder and of plugbay.toml; plugins that start with their host
    are started then.
    """
    view = JsonView() if as_json else HumanView()
    settings = load_config(config)
    client = None if plugins is not None else _server(server, token_file, bool(settings and settings.mcp), as_json)
    found = [] if plugins is None else local_host.discover_in(plugins)
    if client is not None:
        shown = client.get("/api/v1/plugins")["plugins"]
    else:
        output.show_host_log()
        view.show_warnings(found, grant or ())
        host = local_host.make_host(
            found, settings, grants=grant, grant_all=grant_all, unconfined=no_sandbox, eager=True
        )
        shown = local_host.run_with(host, _read_statuses)
    if as_json:
        output.print_json({"plugins": shown})
    else:
        show(output.out(), shown)


def _server(server: str | None, token_file: Path | None, has_others: bool, quiet: bool) -> ServerClient | None:
    """The running server; None when there is none and plugbay.toml declares plugins for a local host."""
    try:
        return remote.find(server, token_file, quiet=quiet)
    except remote.NoServer as error:
        if server is None and has_others:
            return None
        error.hint = f"{error.hint}; --plugins DIR shows those of a folder" if error.hint else ""
        raise


async def _read_statuses(host: Host) -> list[dict[str, Any]]:
    from plugbay.host.admin import operating

    await host.settled(START_SECONDS)
    return [operating.shape(host, status) for status in host.plugins()]


def show(page: output.Printer, plugins: Sequence[dict[str, Any]]) -> None:
    """Print the table; the last column takes the remaining width."""
    rows = [COLUMNS, *map(_row, plugins)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(COLUMNS))]
    page.row([(name.ljust(width) + GAP, output.DIM) for name, width in zip(COLUMNS, widths, strict=True)], LAST)
    for row, plugin in zip(rows[1:], plugins, strict=True):
        name, *cells = [text.ljust(width) + GAP for text, width in zip(row, widths, strict=True)]
        page.row([(name, output.NAME), *cells], *_confinement_and_grants(plugin))


def _row(plugin: dict[str, Any]) -> tuple[str, ...]:
    pid = "" if plugin["pid"] is None else str(plugin["pid"])
    return plugin["id"], plugin["contract"], plugin["state"], plugin["version"], pid


def _confinement_and_grants(plugin: dict[str, Any]) -> list[output.Part]:
    """Confinement and grants; refusals and missing confinement in the warning colour."""
    sandbox = plugin["sandbox"]
    confined = (
        f"{sandbox['confined']}, limits {plugin['limits']}" if plugin["limits"] == "degraded" else sandbox["confined"]
    )
    parts: list[output.Part] = [(confined, "" if confined == "confined" else output.WARN_STYLE)]
    if sandbox["policy"] is not None:
        parts.append(f"{output.DOT}{policy_view.summarize_json(sandbox['policy'])}")
    if plugin["refused"]:
        return [*parts, output.DOT, (plugin["refused"], output.WARN_STYLE)]
    return [*parts, f"{output.DOT}granted {', '.join(plugin['granted']) or 'nothing'}"]
