"""A cell for tests: a real NATS server with the permissions of docs/nodes.md, a real registry, signed packages, nodes.

with cell(tmp_path) as made:
    package = made.push(made.publisher.pack(BODY))
    async with made.node("n1"), made.cluster() as cluster:
        async with made.host(cluster, package) as host:
            ...
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from plugbay.cluster.calling import Cluster
from plugbay.cluster.envelope import Access, Package
from plugbay.cluster.hosts import NodeHosts
from plugbay.cluster.node import NodeServer
from plugbay.cluster.releases import NodeReleases
from plugbay.cluster.remote import Placed, supervise_on_nodes
from plugbay.cluster.subjects import permissions
from plugbay.cluster.times import Times
from plugbay.host.config.config import Config
from plugbay.host.config.sections import ClusterConfig
from plugbay.host.discovery.folders import inspect
from plugbay.host.host import Host
from plugbay.packages.archive import Packed, signature_path
from plugbay.packages.connection import PUSH, Connection
from plugbay.packages.reference import parse
from plugbay.packages.registry import push
from plugbay.packages.trust import TrustStore
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.settings import GatewaySettings
from tests.packages.registry_server import serve
from tests.support.gateways import gateway_at, make_org
from tests.support.nats_server import NatsServer, nats_server
from tests.support.packaged import SIGNED_AT, Publisher
from tests.support.patience import PATIENCE, until

NODES = ("n1", "n2", "n3")
PASSWORD = "secret-of-the-test"

PATIENT = Times(
    beat=0.2, silent=PATIENCE, lost=PATIENCE, stalled=PATIENCE, unaccepted=PATIENCE, margin=PATIENCE, rejoin=0.2
)
"""A busy machine makes no node look lost."""


class Cell:
    """One cell; its files are below `folder`."""

    def __init__(self, folder: Path, nats: NatsServer, registry: str) -> None:
        self.folder = folder
        self.nats = nats
        self.registry = registry
        self.trust = folder / "trust" / "trust.json"
        self.trust.parent.mkdir()
        self.publisher = Publisher(self.trust.parent, folder)
        self._pushed = 0

    def settings(self, user: str = "gateway", **fields: Any) -> ClusterConfig:
        return ClusterConfig(nats=[self.nats.url], user=user, password_env="CELL_PASSWORD", **fields)

    def push(self, packed: Packed, signature: bytes | None = None) -> tuple[Package, Path]:
        """Put a package into the registry; returns its description and its unpacked folder."""
        signature_path(packed.path).write_bytes(self.publisher.sign(packed) if signature is None else signature)
        self._pushed += 1
        reference = parse(f"oci://{self.registry}/plugbay/p{self._pushed}:1.0.0")
        with Connection(reference, plain_http=True, actions=PUSH) as connection:
            pushed = push(connection, reference, packed.path, {})
        spec = packed.package.spec
        return Package(spec.id, spec.version, packed.package.tree_sha256, str(pushed.reference)), packed.package.root

    @asynccontextmanager
    async def cluster(self, times: Times = PATIENT, *nodes: str) -> AsyncIterator[Cluster]:
        """The side of a gateway, which has heard these nodes."""
        cluster = Cluster(self.settings(), {"CELL_PASSWORD": PASSWORD}, times)
        await cluster.start()
        try:
            assert await cluster.wire.joined(PATIENCE)
            await until(lambda: {node.name for node, state in cluster.nodes() if state == "up"} >= set(nodes))
            yield cluster
        finally:
            await cluster.stop()

    @asynccontextmanager
    async def node(self, name: str, times: Times = PATIENT, **options: Any) -> AsyncIterator[NodeServer]:
        """A node in this process; its plugins are processes of their own, without a sandbox."""
        trust = TrustStore(options.pop("trust", self.trust))
        releases = NodeReleases(self.folder / name / "packages", trust, lambda: SIGNED_AT)
        logs = options.pop("log_dir", None)
        hosts = NodeHosts(releases, Config.default(), self.folder / name / "state", logs, unconfined=True)
        node = NodeServer(self.settings(name), {"CELL_PASSWORD": PASSWORD}, name, hosts, times=times, **options)
        await node.start()
        try:
            assert await node.wire.joined(PATIENCE)
            yield node
        finally:
            await node.stop()

    @contextmanager
    def process(self, name: str, *arguments: str, sandbox: bool = False, **variables: str) -> Iterator[NodeProcess]:
        """A node as a process of its own: `plugbay node`. It has joined."""
        without = () if sandbox else ("--no-sandbox",)
        with NodeProcess(self, name, (*without, *arguments), variables) as process:
            process.wait_joined()
            yield process

    def gateway_settings(self, data: Path, *, registry: bool = True) -> GatewaySettings:
        """A gateway of this cell; `CELL_PASSWORD` must be set."""
        pushed_to = f"oci://{self.registry}/plugbay" if registry else None
        cluster = self.settings(registry=pushed_to, public_url="http://127.0.0.1:1")
        return GatewaySettings(data, unconfined=True, cluster=cluster)

    @asynccontextmanager
    async def gateway(
        self, url: str, data: Path, *nodes: str, host: Host | None = None, **options: Any
    ) -> AsyncIterator[Gateway]:
        """A gateway with an org, and nodes in this process that it has heard; they trust what the gateway trusts."""
        (data / "trust.json").touch()
        (data / "trust.json").write_text(self.trust.read_text())
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CELL_PASSWORD", PASSWORD)
            async with AsyncExitStack() as stack:
                for name in nodes:
                    logs = self.folder / name / "logs"
                    await stack.enter_async_context(
                        self.node(name, labels={"zone": name}, log_dir=logs, trust=data / "trust.json", **options)
                    )
                settings = self.gateway_settings(data)
                gateway = await stack.enter_async_context(gateway_at(url, data, host=host, settings=settings))
                await make_org(gateway)
                found = gateway.nodes
                assert found is not None
                await until(lambda: {node.name for node, state in found.cluster.nodes() if state == "up"} >= set(nodes))
                yield gateway


@asynccontextmanager
async def remote_host(
    cluster: Cluster, package: tuple[Package, Path], labels: Mapping[str, str] | None = None, **options: Any
) -> AsyncIterator[Host]:
    """A host whose plugin runs on nodes."""
    placed = Placed(package[0], Access(), labels or {}, confined=False)
    supervise = supervise_on_nodes(cluster, placed)
    async with Host([inspect(package[1])], grant_all=True, eager=False, supervise=supervise, **options) as host:
        yield host


class NodeProcess:
    """`plugbay node`, with its own folder and plugbay.toml."""

    def __init__(self, cell: Cell, name: str, arguments: tuple[str, ...], variables: Mapping[str, str]) -> None:
        self.name = name
        self.folder = cell.folder / f"process-{name}-{os.urandom(4).hex()}"
        self.folder.mkdir()
        (self.folder / "plugbay.toml").write_text(
            f'[cluster]\nnats = ["{cell.nats.url}"]\nuser = "{name}"\npassword_env = "CELL_PASSWORD"\n'
            f'[host]\nlog_dir = "logs"\n[node]\nname = "{name}"\nlabels = {{ zone = "{name}" }}\n'
        )
        self.log = self.folder / "stderr"
        command = [sys.executable, "-m", "plugbay", "node", "--data", str(self.folder / "data")]
        with open(self.log, "wb") as log:
            self._process = subprocess.Popen(
                [*command, "--trust", str(cell.trust), "--json", *arguments],
                cwd=self.folder,
                env={**os.environ, "CELL_PASSWORD": PASSWORD, **variables},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def __enter__(self) -> NodeProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_running:
            self.send(signal.SIGCONT)
            self.send(signal.SIGKILL)
        self._process.wait(PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def wait_joined(self) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self.log.read_text()
        assert json.loads(line)["node"] == self.name

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        return self._process.wait(PATIENCE)


@contextmanager
def cell(folder: Path) -> Iterator[Cell]:
    """A cell with users for gateways and for the nodes n1, n2 and n3."""
    users = [{"user": "gateway", "password": PASSWORD, "permissions": permissions("main")}]
    users += [{"user": name, "password": PASSWORD, "permissions": permissions("main", name)} for name in NODES]
    with nats_server(folder / "nats", authorization={"users": users}) as nats, serve(folder / "registry") as registry:
        yield Cell(folder, nats, registry)
