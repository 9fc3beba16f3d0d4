"""`plugbay doctor [PATH]`: runs the checks of `checks` and `plugin_checks`, and prints them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from plugbay.cli.doctor import checks
from plugbay.cli.doctor.checks import Check, check_broker, check_sandbox
from plugbay.cli.doctor.plugin_checks import check_plugin
from plugbay.cli.exit_codes import Exit
from plugbay.cli.options import AsJson, database_url
from plugbay.cli.render import output

TITLES = 31
"""Columns for the mark, the longest title and a gap."""

MARKS = {
    checks.OK: (output.OK, output.GOOD_STYLE),
    checks.WARNING: (output.WARN, output.WARN_STYLE),
    checks.ERROR: (output.BAD, output.BAD_STYLE),
}


def doctor(
    path: Annotated[
        Path | None, typer.Argument(metavar="PATH", help="Also check this plugin, or each plugin of a folder.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="FOLDER", help="Also check the database and the disk of a server."),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            "--database",
            metavar="URL|@FILE",
            callback=database_url,
            help="The database, if it is not in the data folder; @FILE has its URL.",
        ),
    ] = None,
    fix: Annotated[bool, typer.Option("--fix", help="Kill processes that dead hosts left behind.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check this machine, plugbay.toml and a plugin. Prints a fix for each problem.

    Exits with 9 when a check failed.
    """
    done: list[Check] = []
    for check in _run_checks(path, data, database, fix):
        done.append(check)
        if not as_json:
            show(output.out(), check)
    findings = any(check.is_finding for check in done)
    if as_json:
        output.print_json({"checks": [check.to_json() for check in done], "ok": not findings})
    else:
        _conclude(output.out(), done)
    raise typer.Exit(Exit.FINDINGS if findings else Exit.OK)


def _run_checks(path: Path | None, data: Path | None, database: str | None, fix: bool) -> Iterator[Check]:
    yield from checks.check_machine(fix)
    yield from check_sandbox(checks.load_config_or_default())
    yield from check_broker(checks.load_config_or_default())
    yield from _check_cluster(database)
    if data is not None or database is not None:
        yield from _check_server(data, database)
    if path is not None:
        yield from check_plugin(path)


def _check_cluster(database: str | None) -> Iterator[Check]:
    config = checks.load_config_or_default()
    if config.cluster is None:
        return
    try:
        from plugbay.cli.doctor.cluster_checks import check_cluster
    except ImportError as error:
        text = f"[cluster] cannot be checked: {error.name} is not installed"
        yield Check("cluster_nats", checks.ERROR, "Cluster: NATS", text, "pip install 'plugbay[serve,nats]'")
    else:
        yield from check_cluster(config, database)


def _check_server(data: Path | None, database: str | None) -> Iterator[Check]:
    try:
        from plugbay.cli.doctor.server_checks import check_server
    except ImportError as error:
        text = f"the database cannot be checked: {error.name} is not installed"
        yield Check("server_database", checks.ERROR, "Database of the server", text, "pip install 'plugbay[serve]'")
    else:
        yield from check_server(data, database)


def show(page: output.Printer, check: Check) -> None:
    """Print one check, with its fix when it is not ok."""
    mark, style = MARKS[check.status]
    page.field(f"{mark} {check.title}", check.detail, indent=0, width=TITLES, label_style=style)
    if check.fix and check.status != checks.OK:
        page.field("", ("fix: ", output.CODE), check.fix, indent=0, width=TITLES)


def _conclude(page: output.Printer, done: Iterable[Check]) -> None:
    statuses = [check.status for check in done]
    errors, warnings = statuses.count(checks.ERROR), statuses.count(checks.WARNING)
    parts = [f"{statuses.count(checks.OK)} ok"]
    parts += [output.count(warnings, "warning")] if warnings else []
    parts += [output.count(errors, "error")] if errors else []
    page.blank()
    page.line((", ".join(parts), output.NAME))
