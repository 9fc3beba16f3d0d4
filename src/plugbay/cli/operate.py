"""Commands for operators of a running server: start, stop, restart, reload, grant, revoke, dashboard, prune, logs.

Each is one request to the server's API (`plugbay.cli.remote`).
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from plugbay.cli import exit_codes, remote
from plugbay.cli.remote import Server, TokenFile
from plugbay.cli.render import output

Id = Annotated[str, typer.Argument(metavar="ID", help="The plugin's id.")]
Capabilities = Annotated[list[str], typer.Argument(metavar="CAP…", help="Capabilities that it asks for.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the plugin as JSON.")]


def start(plugin: Id, server: Server = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Start a plugin of the running server that was stopped or has failed too often."""
    _operate("start", plugin, None, server, token_file, as_json)


def stop(plugin: Id, server: Server = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Stop a plugin of the running server; calls to it fail until it is started."""
    _operate("stop", plugin, None, server, token_file, as_json)


def restart(plugin: Id, server: Server = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Stop a plugin of the running server at once, and start it again."""
    _operate("restart", plugin, None, server, token_file, as_json)


def reload(plugin: Id, server: Server = None, token_file: TokenFile = None, as_json: AsJson = False) -> None:
    """Restart a plugin of the running server after its running calls have ended."""
    _operate("reload", plugin, None, server, token_file, as_json)


def grant(
    plugin: Id,
    capabilities: Capabilities,
    server: Server = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Grant capabilities to a plugin of the running server; its plugbay.toml keeps them."""
    _operate("grant", plugin, {"capabilities": capabilities}, server, token_file, as_json)


def revoke(
    plugin: Id,
    capabilities: Capabilities,
    server: Server = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Revoke capabilities that plugbay.toml grants to a plugin of the running server."""
    _operate("revoke", plugin, {"capabilities": capabilities}, server, token_file, as_json)


def _operate(operation: str, plugin: str, body: Any, server: Any, token_file: Any, as_json: bool) -> None:
    done = remote.find(server, token_file, quiet=as_json).post(remote.plugin_path(plugin, f":{operation}"), body)
    if as_json:
        output.print_json(done)
        return
    granted = ", ".join(done["granted"]) or "nothing"
    said = f" is {done['state']}{output.DOT}granted {granted}"
    output.err().line((output.OK, output.GOOD_STYLE), " ", (done["id"], output.NAME), said)
    if done["refused"]:
        output.note(f"{done['id']}: {done['refused']}")


# plugbay dashboard.

Open = Annotated[bool, typer.Option("--open", help="Open it in a browser.")]
LinkAsJson = Annotated[bool, typer.Option("--json", help="Print the link as JSON.")]


def dashboard(
    server: Server = None, token_file: TokenFile = None, open_it: Open = False, as_json: LinkAsJson = False
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
            output.note("no browser was found here; open the link yourself")


# plugbay prune.

DryRun = Annotated[bool, typer.Option("--dry-run", help="Remove nothing; show what would be removed.")]
PruneAsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]

GAP = "  "

HOUR, DAY = 3600, 24 * 3600


def prune(
    dry_run: DryRun = False, server: Server = None, token_file: TokenFile = None, as_json: PruneAsJson = False
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
    _print_row(head, widths, output.DIM)
    for row in rows:
        _print_row(row, widths, output.NAME)


def _print_row(row: tuple[str, str, str], widths: list[int], style: str) -> None:
    kind, kept, number = row
    output.out().row([(kind.ljust(widths[0]) + GAP, style), (kept.ljust(widths[1]) + GAP, output.DIM)], number)


def _age(seconds: float | None) -> str:
    """Format an age as plugbay.toml writes it."""
    if not seconds:
        return "forever" if seconds is None else "until they expire"
    whole = round(seconds)
    return output.count(whole // DAY, "day") if whole % DAY == 0 else output.count(whole // HOUR, "hour")


# plugbay logs.

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Follow new lines until Ctrl-C.")]
Tail = Annotated[int, typer.Option(metavar="N", min=0, max=1000, help="Past lines to show; 100 by default.")]
LogsAsJson = Annotated[bool, typer.Option("--json", help="Print a JSON object for each line.")]

STYLES = {"warn": output.WARN_STYLE, "error": output.BAD_STYLE}

INTERRUPT = 2
"""The number of SIGINT."""


def logs(
    plugin: Id,
    follow: Follow = False,
    tail: Tail = 100,
    server: Server = None,
    token_file: TokenFile = None,
    as_json: LogsAsJson = False,
) -> None:
    """Show what a plugin of the running server wrote, and what happened to it."""
    client, path = remote.find(server, token_file, quiet=as_json), remote.plugin_path(plugin, "/logs")
    if not follow:
        lines = client.get(path, tail=tail)["lines"]
        for line in lines:
            _show_log_line(line, as_json)
        if not lines and not as_json:
            output.note(f"{plugin} has written nothing yet, and nothing has happened to it")
        return
    try:
        for _, line in client.events("GET", path, tail=tail, follow="true"):
            _show_log_line(line, as_json)
    except KeyboardInterrupt:
        raise typer.Exit(exit_codes.for_signal(INTERRUPT)) from None


def _show_log_line(line: dict[str, Any], as_json: bool) -> None:
    if as_json:
        output.print_line(line)
        return
    head = (f"{line['at']} {line['source']:6} ", output.DIM)
    output.out().line(head, (line["text"], STYLES.get(line["level"], "")))
