"""`plugbay node`: run plugins for the gateways of a cluster. `plugbay nodes`: show the nodes, and drain one.

`plugbay nodes` asks a running gateway. Without one it joins the cell that `[cluster]` of plugbay.toml names, and
listens for beats. Heavy imports stay inside functions.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plugbay.cli import local_host, remote
from plugbay.cli.exit_codes import Exit, refusal
from plugbay.cli.options import AsJson, ConfigFile, NoSandbox, Server, TokenFile
from plugbay.cli.packages.common import TrustFile, now, open_trust_store
from plugbay.cli.paths import directories
from plugbay.cli.render import output

if TYPE_CHECKING:
    from plugbay.cluster.calling import Cluster
    from plugbay.cluster.node import NodeServer
    from plugbay.host.config.config import Config
    from plugbay.host.config.sections import ClusterConfig

NAME_VARIABLE = "PLUGBAY_NODE_NAME"

DATA_FOLDER = "node"
"""Default data folder, below the user's data directory."""

JOIN_SECONDS = 10.0
"""Time to connect to NATS."""

LISTEN_SECONDS = 1.5
"""Time for the beats of all nodes."""

DRAIN = "drain"
COLUMNS = (
    "NODE",
    "STATE",
    "CALLS",
    "TAKEN",
    "FAILED",
    "PER MIN",
    "P50",
    "CHILDREN",
    "MEMORY",
    "SANDBOX",
    "RELEASE",
    "BEAT",
    "LABELS AND PLUGINS",
)
GATEWAY_COLUMNS = ("GATEWAY", "HOST", "PID", "LEASE ENDS", "EPOCH")

Name = Annotated[str | None, typer.Option(metavar="NAME", help="The name of the node, as its NATS user has it.")]
Data = Annotated[Path | None, typer.Option(metavar="DIR", help="The folder of packages and scratch files; a cache.")]
Unsigned = Annotated[bool, typer.Option("--allow-unsigned", help="Also run packages without a trusted signature.")]
Ready = Annotated[bool, typer.Option("--json", help="Print one JSON line when the node has joined; log as JSON.")]
Action = Annotated[
    str | None, typer.Argument(metavar="[drain", help="Drain a node: it takes no new calls, and its running calls end.")
]
Drained = Annotated[str | None, typer.Argument(metavar="NAME]", help="The node.")]
Undo = Annotated[bool, typer.Option("--undo", help="With drain: let the node take calls again.")]


def node(
    name: Name = None,
    config: ConfigFile = None,
    data: Data = None,
    trust: TrustFile = None,
    no_sandbox: NoSandbox = False,
    allow_unsigned: Unsigned = False,
    as_json: Ready = False,
) -> None:
    """Run plugins for the gateways of a cluster.

    The node joins by [cluster] of plugbay.toml, pulls packages when they are called, and checks their signatures
    itself. SIGTERM drains it: running calls come to their end, within 60 s.
    """
    settings, joined = _load(config)
    wanted = name or os.environ.get(NAME_VARIABLE) or settings.node.name or socket.gethostname().partition(".")[0]
    place = (data or directories()["data"] / DATA_FOLDER).absolute()
    try:
        import asyncio

        from plugbay.server import logs
    except ImportError as error:
        raise refusal(f"plugbay node needs {error.name}", "pip install 'plugbay[serve,nats]'") from None
    logs.configure(as_json=True if as_json else None)
    server = _make_server(settings, joined, _checked(wanted), place, trust, no_sandbox, allow_unsigned)
    number = asyncio.run(_serve(server, as_json))
    raise typer.Exit(Exit.OK if number else Exit.FAILURE)


def _load(config: Path | None) -> tuple[Config, ClusterConfig]:
    settings = local_host.load_config(config)
    if settings is None or settings.cluster is None or not settings.cluster.nats:
        hint = '[cluster]\nnats = ["nats://127.0.0.1:4222"]'
        raise refusal("plugbay.toml has no section [cluster] with the servers of NATS", hint, Exit.INVALID)
    return settings, settings.cluster


def _checked(name: str) -> str:
    import re

    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name):
        text = f"{name!r} cannot be the name of a node: it is part of NATS subjects"
        raise refusal(text, "small letters, digits and dashes, as in --name n1", Exit.USAGE)
    return name


def _make_server(
    config: Config,
    cluster: ClusterConfig,
    name: str,
    data: Path,
    trust: Path | None,
    no_sandbox: bool,
    allow_unsigned: bool,
) -> Any:
    """Makes the server; called inside the loop."""
    from plugbay.cluster.hosts import NodeHosts
    from plugbay.cluster.node import NodeServer
    from plugbay.cluster.releases import NodeReleases
    from plugbay.cluster.times import Times
    from plugbay.packages.reference import Registries

    registries = Registries.of(config.registries)
    releases = NodeReleases(
        data / "packages",
        open_trust_store(trust),
        now,
        require_signature=not allow_unsigned,
        registries=registries,
    )
    log_dir = Path(config.host.log_dir) if config.host.log_dir else directories()["log"]
    hosts = NodeHosts(releases, config, data / "state", log_dir, unconfined=no_sandbox)
    sandbox = not no_sandbox and _has_sandbox(config)

    def make() -> NodeServer:
        labels, places = config.node.labels, config.node.calls
        times = Times.of(cluster.beat_seconds, cluster.lost_seconds)
        return NodeServer(cluster, os.environ, name, hosts, labels=labels, places=places, sandbox=sandbox, times=times)

    return make


def _has_sandbox(config: Config) -> bool:
    """Start a confined program: only that proves that one can be started."""
    from plugbay.cli.doctor.checks import confinement_problem

    return confinement_problem(config) is None


async def _serve(make: Any, as_json: bool) -> int:
    """Serve until a signal arrives; returns its number."""
    import asyncio
    import signal

    from plugbay.host.garbage import collect_rarely
    from plugbay.server.service_manager import READY, STOPPING, notify

    loop, server = asyncio.get_running_loop(), make()
    stopped: asyncio.Future[int] = loop.create_future()

    def stop(number: int) -> None:
        if not stopped.done():
            stopped.set_result(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    await server.start()
    try:
        joined = loop.create_task(server.wire.joined())
        await asyncio.wait({joined, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not stopped.done():
            collect_rarely()
            _show_joined(server, as_json)
            notify(READY)
        joined.cancel()
        return await stopped
    finally:
        notify(STOPPING)
        await server.stop()


def _show_joined(server: NodeServer, as_json: bool) -> None:
    if as_json:
        output.print_line({"node": server.name, "boot": server.boot, "pid": os.getpid()})
        return
    page = output.err()
    page.line((output.OK, output.GOOD_STYLE), " the node ", (server.name, output.NAME), " takes calls")
    page.field("try", "plugbay nodes")


def nodes(
    action: Action = None,
    name: Drained = None,
    undo: Undo = False,
    config: ConfigFile = None,
    server: Server = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the nodes of the cluster: state, calls, memory, labels, plugins; and the gateways with their leases.

    Asks the running gateway, which counts its calls to each node. Without one, listens for beats itself. plugbay nodes
    drain NAME gives a node no new calls; those that run come to their end.
    """
    if (action is None) != (name is None) or action not in (None, DRAIN) or (undo and action is None):
        raise typer.BadParameter("write plugbay nodes, or plugbay nodes drain NAME")
    order = "undrain" if undo else DRAIN
    found = _ask_server(server, token_file, name, order, quiet=as_json)
    if found is None:
        found = _ask_nodes(config, name, order)
    if name is not None and not any(row["node"] == name for row in found["nodes"]):
        raise refusal(f"there is no node {name}", "plugbay nodes lists them", Exit.NOT_FOUND)
    if as_json:
        output.print_json(found)
    else:
        show(output.out(), found)


def _ask_server(
    server: str | None, token_file: Path | None, name: str | None, order: str, *, quiet: bool
) -> dict[str, Any] | None:
    """The answer of the running gateway; None when no server runs here, or one without a cluster."""
    try:
        client = remote.find(server, token_file, quiet=True)
    except remote.NoServer:
        if server is not None:
            raise
        return None
    found: dict[str, Any] = client.get("/api/v1/nodes")
    if found["cluster"] is None and not found["gateways"] and server is None:
        return None
    if not quiet:
        output.using(f"the server {client.url}")
    if name is not None and any(row["node"] == name for row in found["nodes"]):
        client.post(f"/api/v1/nodes/{name}:{order}")
        found = client.get("/api/v1/nodes")
    return found


def _ask_nodes(config: Path | None, name: str | None, order: str) -> dict[str, Any]:
    """What beats tell: nothing of gateways and of the calls that they have made."""
    import asyncio

    _, cluster = _load(config)
    nodes = asyncio.run(_listen(cluster, name, order))
    return {"cluster": cluster.name, "problem": None, "nodes": nodes, "gateways": []}


def show(page: output.Printer, found: dict[str, Any]) -> None:
    """Print the tables of nodes and gateways."""
    if found["problem"]:
        output.note(found["problem"])
    if found["nodes"]:
        page.table(COLUMNS, [(_cells(row), [_labels_and_plugins(row)]) for row in found["nodes"]])
    elif found["cluster"] is None:
        page.line("the gateways run packages themselves: [cluster] of plugbay.toml has no nats")
    else:
        page.line("no node is connected; start one with ", ("plugbay node", output.NAME))
    if found["gateways"]:
        page.blank()
        page.table(GATEWAY_COLUMNS, [(_gateway_cells(row), [str(row["epoch"])]) for row in found["gateways"]])


async def _listen(settings: ClusterConfig, name: str | None, kind: str) -> list[dict[str, Any]]:
    """Join, send the order if there is one, and listen for beats."""
    import asyncio

    from plugbay.cluster.calling import Cluster

    cluster = Cluster(settings, os.environ)
    await cluster.start()
    try:
        if not await cluster.wire.joined(JOIN_SECONDS):
            hint = "start the server, or correct [cluster] in plugbay.toml"
            raise refusal(f"NATS cannot be reached: {cluster.wire.problem}", hint)
        if name is not None:
            await cluster.order(name, kind)
        await asyncio.sleep(LISTEN_SECONDS)
        return _rows(cluster)
    finally:
        await cluster.stop()


def _rows(cluster: Cluster) -> list[dict[str, Any]]:
    """As the API has them; this process has called no node."""
    import msgspec

    from plugbay.cluster.report import node_rows

    return [{**msgspec.to_builtins(row), "called": None} for row in node_rows(cluster)]


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    called = row["called"] or {}
    median = called.get("p50_ms")
    return (
        row["node"],
        row["state"],
        f"{row['calls']}/{row['places']}",
        *(str(called.get(name, "")) for name in ("total", "failed", "per_minute")),
        "" if median is None else output.duration(median),
        str(row["children"]),
        f"{row['memory_bytes'] / (1 << 20):,.0f} MiB",
        "yes" if row["sandbox"] else "no",
        row["release"],
        f"{output.duration(row['silent_ms'])} ago",
    )


def _labels_and_plugins(row: dict[str, Any]) -> str:
    labels = ", ".join(f"{name}={value}" for name, value in sorted(row["labels"].items()))
    held = f"holds {', '.join(row['held'])}" if row["held"] else ""
    return output.DOT.join(filter(None, [labels, ", ".join(row["plugins"]), held]))


def _gateway_cells(row: dict[str, Any]) -> tuple[str, ...]:
    mark = " *" if row["is_this"] else ""
    return f"{row['id']}{mark}", row["host"], "" if row["pid"] is None else str(row["pid"]), row["lease_ends_at"]
