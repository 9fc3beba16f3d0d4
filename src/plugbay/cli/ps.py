"""`plugbay ps --plugins DIR`: every plugin, what it is doing, what it may do, and whether it is confined.

Owns the table and the public JSON shape. The host is one of its own: plugins that start with their host are started.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plugbay.cli import ephemeral, output, policy_view
from plugbay.cli.call import ConfigFile, Grant, GrantAll, NoSandbox, load_config
from plugbay.cli.call_view import HumanView, JsonView, Refusal

if TYPE_CHECKING:
    from plugbay.host.host import Host
    from plugbay.host.status import PluginStatus

START_SECONDS = 20.0
"""How long to wait for plugins that start with the host."""

COLUMNS = ("PLUGIN", "CONTRACT", "STATE", "PID", "CONFINED", "POLICY", "GRANTED")
GAP = "  "

Plugins = Annotated[Path, typer.Option(metavar="DIR", help="A plugin, or a folder of plugins.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]


def ps(
    plugins: Plugins,
    grant: Grant = None,
    grant_all: GrantAll = False,
    no_sandbox: NoSandbox = False,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show every plugin of a folder: state, process, confinement, grants. Starts those that start with their host."""
    view = JsonView() if as_json else HumanView()
    try:
        found = ephemeral.found_in(plugins)
        settings = load_config(config)
    except Refusal as refusal:
        view.refused(refusal)
        raise typer.Exit(refusal.status) from None
    output.note_what_hosts_log()
    view.warned(found, grant or ())
    host = ephemeral.make(found, settings, grants=grant, grant_all=grant_all, unconfined=no_sandbox, eager=True)
    plugins_now = ephemeral.visit(host, _look)
    if as_json:
        output.print_json({"plugins": [to_json(status) for status in plugins_now]})
    else:
        show(output.out(), plugins_now)


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
    }


def show(page: output.Printer, plugins: Sequence[PluginStatus]) -> None:
    """A table, its last column as wide as it is."""
    rows = [COLUMNS, *map(_row, plugins)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(COLUMNS))]
    for number, row in enumerate(rows):
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        style = output.DIM if number == 0 else ""
        page.line(*[(cell + GAP, style or _style(at, row[at])) for at, cell in enumerate(cells)])


def _row(status: PluginStatus) -> tuple[str, ...]:
    confined = str(status.confinement)
    return (
        status.spec.id,
        status.spec.contract,
        status.state,
        "" if status.pid is None else str(status.pid),
        f"{confined}, limits {status.limits}" if status.limits == "degraded" else confined,
        policy_view.brief(status.confinement),
        ", ".join(status.granted) or "nothing",
    )


def _style(column: int, text: str) -> str:
    """What an operator should not overlook."""
    if COLUMNS[column] == "CONFINED" and text != "confined":
        return output.WARN_STYLE
    return output.NAME if column == 0 else ""
