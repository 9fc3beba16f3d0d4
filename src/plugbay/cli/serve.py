"""`plugbay serve [DIR…]`: host every plugin of some folders, and the control plane, behind HTTP.

Parses options and prints the addresses when the server is up. `plugbay.server.server` starts and stops it; its imports
stay inside functions.
"""

from __future__ import annotations

import contextlib
import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plugbay.cli import local_host, tracing
from plugbay.cli.doctor.plugin_checks import check_readiness
from plugbay.cli.exit_codes import Exit, refusal
from plugbay.cli.options import ConfigFile, Folders, Grant, GrantAll, NoSandbox, database_url
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
DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL|@FILE",
        callback=database_url,
        help="PostgreSQL instead of SQLite; @FILE has its URL.",
    ),
]
Unsigned = Annotated[bool, typer.Option("--allow-unsigned", help="Also accept packages without a trusted signature.")]
Gateways = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, max=64, help="Gateway processes on one port, for PostgreSQL; they host no folders."
    ),
]
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
    gateways: Gateways = None,
    as_json: AsJson = False,
) -> None:
    """Serve the plugins of some folders: REST API, dashboard, MCP.

    The server watches the folders. A new plugin appears and waits for its grants; a removed plugin disappears. Only
    this machine can reach the server, with the token that the first start prints. SIGTERM stops the server after its
    running requests; SIGHUP reloads plugbay.toml.

    With [cluster] in plugbay.toml and a PostgreSQL database, this is one of several gateways: it hosts packages, no
    folders, and plugbay migrate must have been run. --gateways N starts N of them on this machine.
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
    shared = _sharing(settings, gateways, folders, database)
    # A folder that is missing is named in the refusal as it was written.
    named = [] if shared and not _has_nodes(settings) else folders or [_installed()]
    served = [folder.absolute() if folder.exists() else folder for folder in named]
    found = [item for folder in served for item in local_host.discover_in(folder, may_be_empty=True)]
    warnings = [*drift_warnings(found), *(text for folder in served for text in missing_manifests(folder))]
    wanted = {"grants": grant or (), "grant_all": grant_all, "unconfined": no_sandbox}
    options = {
        "require_signature": not allow_unsigned,
        "unconfined": no_sandbox,
        "config_file": kept,
        "folders": tuple(filter(Path.is_dir, served)),
    }
    if settings is not None and settings.cluster is not None:
        options["public_url"] = settings.cluster.public_url
    if settings is not None:
        options |= {"retention": settings.retention, "cluster": settings.cluster}
        if settings.serve.queue_seconds is not None:
            options["queue_seconds"] = settings.serve.queue_seconds
    # Until the server has frozen what it loaded, collections find nothing and take a tenth of the start.
    gc.disable()
    try:
        where = (host, port, tuple(public or ()), database)
        if gateways is not None and not _is_worker():
            _run_workers(gateways, where, place, as_json)
        else:
            _run(found, settings, wanted, place, where, options, warnings, as_json, shared)
    finally:
        gc.enable()


WORKER_VARIABLE = "PLUGBAY_GATEWAY_WORKER"
"""`plugbay.server.workers.VARIABLE`, without loading that module."""

LEASE_SECONDS = 30.0
"""The length of a gateway's lease without `[cluster]`."""


def _is_worker() -> bool:
    """Whether another `plugbay serve --gateways` started this process."""
    return WORKER_VARIABLE in os.environ


def _sharing(
    config: Config | None, gateways: int | None, folders: list[Path] | None, database: str | None
) -> float | None:
    """The length of this gateway's lease if it shares its database; None for a server that owns it."""
    cluster = None if config is None else config.cluster
    if cluster is None and gateways is None:
        return None
    if config is not None and _has_nodes(config):
        _refuse_unplaceable(config, folders)
    wanted = "--gateways" if gateways is not None else "[cluster] in plugbay.toml"
    if database is None or database.partition(":")[0].startswith("sqlite"):
        if gateways is None and cluster is not None and cluster.nats:
            return None  # one gateway, which has its packages run by nodes
        text = f"{wanted} needs PostgreSQL: a SQLite database belongs to one process"
        raise refusal(text, "name the database with --database postgresql+asyncpg://…", Exit.USAGE)
    if folders:
        text = f"with {wanted}, no folder is served: its plugins would run once in each gateway"
        raise refusal(text, "plugbay pack makes a package of a plugin; upload and bind it", Exit.USAGE)
    return LEASE_SECONDS if cluster is None else cluster.lease_seconds


def _has_nodes(config: Config | None) -> bool:
    """Whether plugins run on nodes."""
    return config is not None and config.cluster is not None and bool(config.cluster.nats)


def _refuse_unplaceable(config: Config, folders: list[Path] | None) -> None:
    """Nodes run verified packages only: no folders, and no commands of plugbay.toml."""
    why = "[cluster] nats in plugbay.toml has plugins run on nodes, which run verified packages only"
    if folders:
        hint = "plugbay pack and plugbay install, then plugbay serve without a folder"
        raise refusal(f"{why}; {folders[0]} is a folder", hint, Exit.USAGE)
    if config.mcp:
        hint = "remove its section, or serve it with a plugbay.toml without [cluster]"
        raise refusal(f"{why}; [mcp.{next(iter(config.mcp))}] is a command", hint, Exit.USAGE)


def _run_workers(number: int, where: tuple[str, int, tuple[str, ...], str | None], data: Path, as_json: bool) -> None:
    """Start several gateways on one port, and print their address when all are up."""
    import asyncio
    import sys

    from plugbay.cli.migrate import migrate_database
    from plugbay.server import logs
    from plugbay.server.domain.credentials import operator_token, token_file
    from plugbay.server.domain.secrets import load_keyring
    from plugbay.server.occupancy import RunningServer, announce, lock_data_dir
    from plugbay.server.workers import Workers, reserved_port
    from plugbay.store.failures import StoreRefused, StoreUnavailable

    logs.configure(as_json=True if as_json else None)
    host, port, _, database = where
    assert database is not None
    try:
        with lock_data_dir(data), reserved_port(host, port) as taken:
            asyncio.run(migrate_database(database))
            token, made = operator_token(data)
            load_keyring(data, os.environ)  # made once, not by each gateway
            workers = Workers([sys.executable, "-m", "plugbay", *sys.argv[1:]], number, taken, os.environ)

            def ready(facts: list[dict[str, Any]]) -> None:
                found = RunningServer(facts[0]["url"], os.getpid(), str(token_file(data)), str(data), os.getcwd())
                announced.enter_context(announce(directories()["state"], found))
                _show_gateways(facts, data, token if made else None, as_json)

            with contextlib.ExitStack() as announced:
                number = workers.run(ready)
    except (StoreRefused, StoreUnavailable) as error:
        raise refusal(f"the database cannot be used: {error}", "check --database") from None
    raise typer.Exit(Exit.OK if number else Exit.FAILURE)


def _show_gateways(facts: list[dict[str, Any]], data: Path, token: str | None, as_json: bool) -> None:
    url, pids = facts[0]["url"], [each["pid"] for each in facts]
    if as_json:
        named = {"url": url, "pid": os.getpid(), "gateways": pids, "data": str(data)}
        output.print_line({**named, "token_file": facts[0]["token_file"], "token": token})
        return
    page = output.err()
    page.line((output.OK, output.GOOD_STYLE), f" {len(pids)} gateways at ", (url, output.NAME))
    page.field("dashboard", facts[0]["dashboard"])
    page.field("", ("works once, within ten minutes; plugbay dashboard prints another", output.DIM))
    page.field("API", f"{url}/openapi.json")
    page.field("data", str(data))
    page.field("token", f"in {facts[0]['token_file']}")
    if token is not None:
        page.field("", token, ("  shown only once", output.DIM))


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
    lease_seconds: float | None,
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
    port = int(os.environ.get(WORKER_VARIABLE) or port)
    settings = ServeSettings(
        GatewaySettings(data, log_dir=log_dir, **options),
        host=host,
        port=port,
        names=names,
        database_url=database,
        runtime=None if _is_worker() else directories()["state"],
        lease_seconds=lease_seconds,
        worker=_is_worker(),
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
    from plugbay.server.domain.credentials import token_file
    from plugbay.server.mcp import PATH as MCP_PATH

    token, data, host = started.gateway.made_operator_token, settings.gateway.data, started.gateway.host
    found = check_readiness(host.plugins(), host.config)
    plugins = len(host.plugins())
    file = token_file(data)
    facts: dict[str, Any] = {"url": started.url, "pid": os.getpid(), "data": str(data), "token_file": str(file)}
    if _is_worker():
        output.print_line({**facts, "dashboard": started.dashboard})
        return
    if as_json:
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
        page.field("", ("watched: new plugins appear, removed plugins disappear", output.DIM))
    page.field("dashboard", started.dashboard)
    page.field("", ("works once, within ten minutes; plugbay dashboard prints a new one", output.DIM))
    page.field("API", f"{started.url}/openapi.json")
    page.field("MCP", f"{started.url}{MCP_PATH}, with the token")
    page.field("health", f"{started.url}/readyz, {started.url}/metrics")
    page.field("data", str(data))
    page.field("token", f"in {file}")
    if token is not None:
        page.field("", token, ("  shown only once", output.DIM))
    page.field("try", "plugbay ps")
    page.verbatim(
        f'curl -H "Authorization: Bearer $(cat {file})" {started.url}/v1/orgs',
        indent=2 + output.LABEL_WIDTH,
    )
