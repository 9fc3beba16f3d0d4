"""`plugbay serve [DIR…]`: host every plugin of some folders, and the control plane, behind HTTP.

Parses options and prints the addresses when the server is up. `plugbay.server.server` starts and stops it; its imports
stay inside functions.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plugbay.cli import local_host, tracing
from plugbay.cli.doctor.plugin_checks import check_readiness
from plugbay.cli.exit_codes import Exit, refusal
from plugbay.cli.options import ConfigFile, Folders, Grant, GrantAll, NoSandbox
from plugbay.cli.packages.common import open_store
from plugbay.cli.paths import CONFIG_NAME, config_in_use, directories
from plugbay.cli.render import output
from plugbay.cli.render.call_view import drift_warnings, missing_manifests

if TYPE_CHECKING:
    from plugbay.host.config.config import Config
    from plugbay.host.discovery.folders import Found
    from plugbay.host.host import Host
    from plugbay.host.ports import CallLog
    from plugbay.server.server import ServeSettings, Started

DEFAULT_LISTEN = "127.0.0.1:8787"
LOOPBACK = ("127.0.0.1", "localhost", "::1")

DATA_FOLDER = "gateway"
"""Default data folder, below the user's data directory."""

Listen = Annotated[
    str, typer.Option(metavar="HOST:PORT", help=f"The address; {DEFAULT_LISTEN} by default. Port 0 takes a free one.")
]
Public = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="A host name for clients on other machines; repeatable.")
]
Data = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="The folder of records, packages and keys; plugbay paths shows the default."),
]
DatabaseUrl = Annotated[str | None, typer.Option("--database", metavar="URL", help="PostgreSQL instead of SQLite.")]
Unsigned = Annotated[bool, typer.Option("--allow-unsigned", help="Also accept packages without a trusted signature.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON line when the server is ready; log as JSON.")]


def serve(
    folders: Folders = None,
    config: ConfigFile = None,
    listen: Listen = DEFAULT_LISTEN,
    public: Public = None,
    data: Data = None,
    database: DatabaseUrl = None,
    grant: Grant = None,
    grant_all: GrantAll = False,
    no_sandbox: NoSandbox = False,
    allow_unsigned: Unsigned = False,
    as_json: AsJson = False,
) -> None:
    """Serve the plugins of some folders: REST API, dashboard, MCP.

    The folders are watched: a plugin that is put into one appears, and waits for its grants; one that is removed goes.
    Only this machine can reach the server, with the token that the first start prints. SIGTERM stops it in order,
    SIGHUP reloads plugbay.toml.
    """
    from plugbay.host.disk.durable import finish_rewrite
    from plugbay.server.domain.settings import CONFIG_JOURNAL

    host, port = _address(listen)
    if host not in LOOPBACK and not public:
        raise typer.BadParameter(
            f"other machines can reach {host}; add --public NAME with its host name", param_hint="--listen"
        )
    if data is not None and data.exists() and not data.is_dir():
        raise typer.BadParameter(f"{data} is a file; name a folder", param_hint="--data")
    kept = Path(config_in_use(config) or CONFIG_NAME).absolute()
    place = (data or directories()["data"] / DATA_FOLDER).absolute()
    finish_rewrite(place / CONFIG_JOURNAL)
    settings = local_host.load_config(kept if config or kept.exists() else None)
    # A folder that is missing is named in the refusal as it was written.
    served = [folder.absolute() if folder.exists() else folder for folder in folders or [_installed()]]
    found = [item for folder in served for item in local_host.discover_in(folder, may_be_empty=True)]
    warnings = [*drift_warnings(found), *(text for folder in served for text in missing_manifests(folder))]
    wanted = {"grants": grant or (), "grant_all": grant_all, "unconfined": no_sandbox}
    options = {
        "require_signature": not allow_unsigned,
        "unconfined": no_sandbox,
        "config_file": kept,
        "folders": tuple(filter(Path.is_dir, served)),
    }
    if settings is not None:
        options["retention"] = settings.retention
        if settings.serve.queue_seconds is not None:
            options["queue_seconds"] = settings.serve.queue_seconds
    # Until the server has frozen what it loaded, collections find nothing and take a tenth of the start.
    gc.disable()
    try:
        where = (host, port, tuple(public or ()), database)
        _run(found, settings, wanted, place, where, options, warnings, as_json)
    finally:
        gc.enable()


def _installed() -> Path:
    """The folder of installed plugins; its store is made if nothing was installed yet."""
    store = open_store(None)
    store.create()
    return store.plugins


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise typer.BadParameter(f"{text!r} is not an address like {DEFAULT_LISTEN}", param_hint="--listen")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _run(
    found: list[Found],
    config: Config | None,
    wanted: dict[str, Any],
    data: Path,
    where: tuple[str, int, tuple[str, ...], str | None],
    options: dict[str, Any],
    warnings: list[str],
    as_json: bool,
) -> None:
    try:
        import asyncio
        import logging

        from plugbay.process.limits import raise_open_files
        from plugbay.server import logs
        from plugbay.server.domain.settings import GatewaySettings, protected
        from plugbay.server.server import ServeSettings, serve
        from plugbay.store.database import sqlite_file
        from plugbay.store.failures import StoreRefused, StoreUnavailable
    except ImportError as error:
        text = f"plugbay serve needs {error.name}, which is not installed"
        raise refusal(text, "pip install 'plugbay[serve]'") from None
    logs.configure(as_json=True if as_json else None)
    for text in warnings:
        logging.getLogger("plugbay.server").warning(text)
    raise_open_files()
    log_dir = Path(config.host.log_dir) if config and config.host.log_dir else directories()["log"]
    host, port, names, database = where
    settings = ServeSettings(
        GatewaySettings(data, log_dir=log_dir, **options),
        host=host,
        port=port,
        names=names,
        database_url=database,
        runtime=directories()["state"],
    )

    def make_host(calls: CallLog) -> Host:
        kept = protected(settings.gateway, sqlite_file(database or settings.gateway.database_url))
        more: dict[str, Any] = {
            "call_log": calls,
            "tracer": tracer,
            "protected": (*local_host.protected_config(), *kept),
        }
        return local_host.make_host(found, config, eager=True, joins=True, **more, **wanted)

    try:
        with (
            tracing.export_traces(os.environ, logging.getLogger("plugbay.server").warning) as tracer,
            asyncio.Runner(loop_factory=_loop_factory()) as runner,
        ):
            number = runner.run(serve(settings, make_host, lambda started: _show_started(started, settings, as_json)))
    except StoreRefused as error:
        place = "" if database else f" in {data}"  # never print the URL: it may contain a password
        raise refusal(f"the database{place} cannot be used: {error}") from None
    except StoreUnavailable as error:
        hint = "check that the server runs and that --database is its URL" if database else f"check the disk of {data}"
        raise refusal(str(error), hint) from None
    # An orderly stop after a signal is a success: process managers expect status 0.
    raise typer.Exit(Exit.OK if number else Exit.FAILURE)


def _loop_factory() -> Any:
    """uvloop's loop factory if it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _show_started(started: Started, settings: ServeSettings, as_json: bool) -> None:
    from plugbay.server.domain.credentials import TOKEN_FILE
    from plugbay.server.mcp import PATH as MCP_PATH

    token, data, host = started.gateway.made_operator_token, settings.gateway.data, started.gateway.host
    found = check_readiness(host.plugins(), host.config)
    plugins = len(host.plugins())
    if as_json:
        facts = {"url": started.url, "pid": os.getpid(), "data": str(data), "token_file": str(data / TOKEN_FILE)}
        invalid = started.gateway.operator_plugins.invalid()
        output.print_line({**facts, "plugins": plugins, **found.to_json(), "invalid": invalid, "token": token})
        return
    page = output.err()
    page.line(
        (output.OK, output.GOOD_STYLE), f" serving {output.count(plugins, 'plugin')} at ", (started.url, output.NAME)
    )
    found.show(page)
    for item in host.problems:
        if item.errors:
            page.field("invalid", (str(item.root), output.WARN_STYLE), f": {item.errors[0]}")
    if settings.gateway.folders:
        page.field("folders", ", ".join(map(str, settings.gateway.folders)))
        page.field("", ("watched: a plugin that is put there appears, one that is removed goes", output.DIM))
    page.field("dashboard", started.dashboard)
    page.field("", ("works once, within ten minutes; plugbay dashboard prints another", output.DIM))
    page.field("API", f"{started.url}/openapi.json")
    page.field("MCP", f"{started.url}{MCP_PATH}, with the token")
    page.field("health", f"{started.url}/readyz, {started.url}/metrics")
    page.field("data", str(data))
    page.field("token", f"in {data / TOKEN_FILE}")
    if token is not None:
        page.field("", token, ("  shown only once", output.DIM))
    page.field("try", "plugbay ps")
    page.verbatim(
        f'curl -H "Authorization: Bearer $(cat {data / TOKEN_FILE})" {started.url}/v1/orgs',
        indent=2 + output.LABEL_WIDTH,
    )
