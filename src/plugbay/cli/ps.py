"""`plugbay ps`: every plugin, what it is doing, what it may do, and whether it is confined.

Owns the table and the public JSON shape. It is the running server that is asked, or with `--plugins DIR` a host of the
command's own: plugins that start with their host are started then.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plugbay.cli import ephemeral, output, policy_view, remote
from plugbay.cli.call import ConfigFile, Grant, GrantAll, NoSandbox, load_config
from plugbay.cli.call_view import HumanView, JsonView, Refusal
from plugbay.cli.remote import Remote, Server, TokenFile

if TYPE_CHECKING:
    from plugbay.host.host import Host
    from plugbay.host.status import PluginStatus

START_SECONDS = 20.0
"""How long to wait for plugins that start with the host."""

COLUMNS = ("PLUGIN", "CONTRACT", "STATE", "PID", "CONFINED", "POLICY", "GRANTED")
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
    try:
        settings = load_config(config)
        there = None if plugins is not None else _server(server, token_file, bool(settings and settings.mcp))
        found = [] if plugins is None else ephemeral.found_in(plugins)
    except Refusal as refusal:
        view.refused(refusal)
        raise typer.Exit(refusal.status) from None
    if there is not None:
        shown = there.get("/api/v1/plugins")["plugins"]
    else:
        output.note_what_hosts_log()
        view.warned(found, grant or ())
        host = ephemeral.make(found, settings, grants=grant, grant_all=grant_all, unconfined=no_sandbox, eager=True)
        shown = [to_json(status) for status in ephemeral.visit(host, _look)]
    if as_json:
        output.print_json({"plugins": shown})
    else:
        show(output.out(), shown)


def _server(server: str | None, token_file: Path | None, has_others: bool) -> Remote | None:
    """The running server; None where there is none, and plugbay.toml names plugins that can be shown without."""
    try:
        return remote.find(server, token_file)
    except remote.NoServer:
        if server is None and has_others:
            return None
        raise


async def _look(host: Host) -> list[PluginStatus]:
    await host.settled(START_SECONDS)
    return host.plugins()


def to_json(status: PluginStatus) -> dict[str, Any]:
    """The public shape of one plugin."""
    return {
        "id": status.spec.id,
        "version": status.spec.version,
        "contract": status.spec.contract,
        "state": status.state,
        "pid": status.pid,
        "generation": status.generation,
        "granted": list(status.granted),
        "sandbox": status.confinement.to_json(),
        "limits": status.limits,
        "counters": dict(status.counters),
        **({"disabled": list(status.disabled)} if status.needs_approval else {}),
    }


def show(page: output.Printer, plugins: Sequence[dict[str, Any]]) -> None:
    """A table, its last column as wide as it is."""
    rows = [COLUMNS, *map(_row, plugins)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(COLUMNS))]
    for number, row in enumerate(rows):
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        style = output.DIM if number == 0 else ""
        page.line(*[(cell + GAP, style or _style(at, row[at])) for at, cell in enumerate(cells)])


def _row(plugin: dict[str, Any]) -> tuple[str, ...]:
    confined = plugin["sandbox"]["confined"]
    return (
        plugin["id"],
        plugin["contract"],
        plugin["state"],
        "" if plugin["pid"] is None else str(plugin["pid"]),
        f"{confined}, limits {plugin['limits']}" if plugin["limits"] == "degraded" else confined,
        "" if plugin["sandbox"]["policy"] is None else policy_view.brief_of(plugin["sandbox"]["policy"]),
        ", ".join(plugin["granted"]) or "nothing",
    )


def _style(column: int, text: str) -> str:
    """What an operator should not overlook."""
    if COLUMNS[column] == "CONFINED" and text != "confined":
        return output.WARN_STYLE
    return output.NAME if column == 0 else ""
