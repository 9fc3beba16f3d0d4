"""`World`: real processes that can be harmed: PostgreSQL with a standby, NATS, a registry, gateways, nodes.

with World(folder) as world:
    world.nodes[0].kill()
    world.heal()                     everything is there again, and answers

Each gateway and node has relays of its own in front of NATS and PostgreSQL. Nothing outlives the block.
"""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import signal
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import httpx2

from plugbay.cluster.subjects import permissions
from tests.cli.conftest import descendants_of, is_alive
from tests.faults import runs
from tests.faults.checker import Orphan
from tests.faults.postgres import NAME, Postgres
from tests.faults.singleton import SETTINGS, WITNESS, Singleton
from tests.packages.registry_server import serve
from tests.support.commands import SERVER, Command
from tests.support.databases import OWNER
from tests.support.nats_server import NatsServer
from tests.support.packaged import Publisher
from tests.support.patience import PATIENCE, pauses
from tests.support.ports import free_port
from tests.support.toxic_proxy import ToxicProxy

LEASE, BEAT, LOST = 4.0, 0.4, 4.0
"""Seconds: short, so that a scenario is; long enough that a busy machine keeps them."""

CANCELLATION = '[plugins."acme/p"]\ntimeouts = { grace = 5 }\n'
"""The grace period of the contract, which `PLUGBAY_TIME_FACTOR` would lengthen, and with it each cancellation that
nobody answers."""

ORPHANED = 5.0
"""Seconds that plugin processes may outlive their node."""

CELL, PASSWORD = "main", "secret-of-the-test"

HOUR = 3600.0

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""To load certificates for each client would be most of the work of the clients."""

SKEWED = """
import time
_true = time.time
time.time = lambda: _true() + {skew}
from plugbay.cli.main import main
main()
"""


RELEASED = """
import os, sys
os.environ["PYTHONPATH"] = {source!r}
os.execv(sys.executable, [sys.executable, "-m", "plugbay", *sys.argv[1:]])
"""


class Party:
    """A gateway or a node: a process that is started again after its end."""

    libraries = (*SERVER, "plugbay.cluster")

    def __init__(self, world: World, name: str, skew: float = 0.0) -> None:
        self.world = world
        self.name = name
        self.folder = world.folder / name
        self.folder.mkdir()
        self.nats = [world.relay(("127.0.0.1", server.port)) for server in world.nats]
        self._skew = skew
        self.source: Path | None = None
        """The code of another release, from its next start on."""
        self._process: Command | None = None
        self._starts = 0
        self.facts: dict[str, Any] = {}

    def words(self) -> list[str]:
        raise NotImplementedError

    @property
    def relays(self) -> list[ToxicProxy]:
        return self.nats

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None and is_alive(self.pid)

    def start(self) -> None:
        """Start it, again if it has ended; `joined` waits until it is there."""
        self._starts += 1
        self.facts = {}
        homes = {f"XDG_{name}_HOME": str(self.folder / name.lower()) for name in ("STATE", "DATA", "CONFIG", "CACHE")}
        environ = {**os.environ, **homes, **self.world.environ}
        with open(os.devnull) as nothing, open(self._out, "wb") as out, open(self.log, "ab") as log:
            streams = [nothing.fileno(), out.fileno(), log.fileno()]
            code = SKEWED.format(skew=self._skew) if self._skew else ""
            if self.source is not None:
                code = RELEASED.format(source=str(self.source))
            self._process = Command(self.words(), streams, self.folder, environ, code=code, libraries=self.libraries)

    @property
    def _out(self) -> Path:
        return self.folder / f"stdout-{self._starts}"

    @property
    def log(self) -> Path:
        return self.folder / "stderr"

    def joined(self) -> None:
        """Wait for its first line."""
        for pause in pauses(why=f"{self.name} does not start: {self.log}"):
            line = self._out.read_text()
            if line.endswith("\n"):
                self.facts = json.loads(line.splitlines()[0])
                assert "failure" not in self.facts, self.facts
                return
            assert self.is_running, f"{self.name} has ended: {self.log.read_text()[-2000:]}"
            time.sleep(pause)

    def send(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9."""
        self.send(signal.SIGKILL)
        self._wait()

    def suspend(self) -> None:
        self.send(signal.SIGSTOP)

    def resume(self) -> None:
        self.send(signal.SIGCONT)

    def terminate(self) -> int:
        """SIGTERM, until it has ended."""
        self.send(signal.SIGTERM)
        return self._wait()

    def _wait(self) -> int:
        assert self._process is not None
        status = self._process.wait(PATIENCE)
        self.world.ended.append((self.name, self.pid, time.monotonic()))
        return status

    def notice_end(self) -> bool:
        """Whether it has ended by itself."""
        if self.is_running:
            return False
        self._wait()
        return True


class Gateway(Party):
    """`plugbay serve` with `[cluster]`."""

    def __init__(self, world: World, name: str, skew: float = 0.0) -> None:
        super().__init__(world, name, skew)
        self.database = [world.relay(("127.0.0.1", port)) for port in world.postgres.ports]
        self.port = free_port()
        settings = SETTINGS + CANCELLATION + world.model.settings
        (self.folder / "plugbay.toml").write_text(self.world.config("gateway", self.nats) + settings)
        world.singleton.install(self.folder / "data" / "plugbay")

    @property
    def relays(self) -> list[ToxicProxy]:
        return [*self.nats, *self.database]

    @property
    def database_url(self) -> str:
        hosts = ",".join(relay.address for relay in self.database)
        return f"postgresql+asyncpg://{OWNER}@{hosts}/{NAME}"

    def words(self) -> list[str]:
        listen = f"127.0.0.1:{self.port}"
        words = ["serve", "--listen", listen, "--json", "--no-sandbox", "--database", self.database_url]
        return [*words, "--data", str(self.folder / "data")]

    def client(self, seconds: float = PATIENCE) -> httpx2.Client:
        head = {"authorization": f"Bearer {self.world.token}"}
        return httpx2.Client(base_url=f"http://127.0.0.1:{self.port}", headers=head, timeout=seconds, verify=NO_TLS)

    def is_ready(self) -> bool:
        with suppress(httpx2.HTTPError), self.client(5.0) as client:
            return client.get("/readyz").status_code == 200
        return False


class Node(Party):
    """`plugbay node`."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        more = f'[host]\nlog_dir = "logs"\n[node]\nname = "{name}"\n'
        (self.folder / "plugbay.toml").write_text(self.world.config(name, self.nats) + more)

    def words(self) -> list[str]:
        trust = self.world.environ["PLUGBAY_TRUST_FILE"]
        return ["node", "--no-sandbox", "--json", "--data", str(self.folder / "data"), "--trust", trust]


class World:
    """The cluster, and what an operator has for it."""

    def __init__(
        self,
        folder: Path,
        gateways: int = 2,
        nodes: int = 2,
        nats: int = 1,
        skews: Mapping[int, float] | None = None,
        lost: float = LOST,
    ) -> None:
        """`skews`: seconds by which the clocks of some gateways are wrong. `lost`: seconds until a call is lost."""
        self.folder = folder
        self.ended: list[tuple[str, int, float]] = []
        """Processes of gateways and nodes that have ended: name, id, when."""
        self.token = "pb_sk_" + secrets.token_urlsafe(32)
        self._counts = (gateways, nodes, nats)
        self._skews = skews or {}
        self._lost = lost
        self.gateways: list[Gateway] = []
        self.nodes: list[Node] = []
        self._stack = ExitStack()
        mounted = folder / "mounted"
        mounted.mkdir(parents=True)
        self.publisher = Publisher(mounted, folder)
        self.singleton = Singleton(folder, self.publisher, mounted / "trust.json")
        self.environ = {
            "PLUGBAY_OPERATOR_TOKEN_FILE": _secret(mounted / "operator.token", self.token),
            "PLUGBAY_SECRET_KEY_FILE": _secret(mounted / "key", base64.b64encode(secrets.token_bytes(32)).decode()),
            "PLUGBAY_TRUST_FILE": str(mounted / "trust.json"),
            "CELL_PASSWORD": PASSWORD,
        }

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self._stack.close()
            raise
        return self

    def _open(self) -> None:
        gateways, nodes, nats = self._counts
        self.postgres = self._stack.enter_context(Postgres())
        for statement in WITNESS + runs.WITNESS:
            self.postgres.writable.query(statement)
        self.nats = self._start_nats(nats, nodes)
        self.model = self._stack.enter_context(runs.Model())
        self.registry = self._stack.enter_context(serve(self.folder / "registry"))
        self._stack.callback(self._end_parties)
        for at in range(gateways):
            self.gateways.append(Gateway(self, f"g{at + 1}", self._skews.get(at, 0.0)))
        for at in range(nodes):
            self.nodes.append(Node(self, f"n{at + 1}"))
        for party in self.parties:
            party.start()
        for party in self.parties:
            party.joined()

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def parties(self) -> list[Party]:
        return [*self.gateways, *self.nodes]

    def relay(self, server: tuple[str, int]) -> ToxicProxy:
        return self._stack.enter_context(ToxicProxy(server))

    def config(self, user: str, nats: list[ToxicProxy]) -> str:
        """The section [cluster] of one party."""
        urls = json.dumps([f"nats://{relay.address}" for relay in nats])
        return (
            f'[cluster]\nname = "{CELL}"\nnats = {urls}\nuser = "{user}"\npassword_env = "CELL_PASSWORD"\n'
            f'registry = "oci://{self.registry}/plugbay"\n'
            f"lease_seconds = {LEASE}\nbeat_seconds = {BEAT}\nlost_seconds = {self._lost}\n"
        )

    def _start_nats(self, count: int, nodes: int) -> list[NatsServer]:
        names = [f"n{at + 1}" for at in range(nodes)] + ["stranger"]
        users = [{"user": "gateway", "password": PASSWORD, "permissions": permissions(CELL)}]
        users += [{"user": name, "password": PASSWORD, "permissions": permissions(CELL, name)} for name in names]
        settings: dict[str, Any] = {"authorization": {"users": users}}
        ports = [free_port() for _ in range(count)]
        servers = []
        for at, port in enumerate(ports):
            if count > 1:
                routes = [f"nats://127.0.0.1:{other}" for other in ports if other != port]
                settings["cluster"] = {"name": CELL, "host": "127.0.0.1", "port": port, "routes": routes}
            server = NatsServer(self.folder / f"nats-{at}", **settings)
            self._stack.callback(server.kill)
            servers.append(server)
        return servers

    # Faults and their end.

    def heal(self) -> None:
        """End all faults: everything is there, and each gateway is ready."""
        if not self.postgres.writable.is_running:
            self.postgres.restart()
        for server in self.nats:
            if not server.is_running:
                server.start()
        for party in self.parties:
            party.resume()
            for relay in party.relays:
                relay.heal()
        self.until(self.is_whole, "the cluster is whole again")

    def is_whole(self) -> bool:
        """Whether all gateways are ready; those that have ended are started again."""
        self.restart_ended()
        return all(gateway.is_ready() for gateway in self.gateways)

    def restart_ended(self) -> None:
        """As systemd would."""
        for party in self.parties:
            if party.notice_end():
                party.start()

    def until(self, condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
        for pause in pauses(seconds, f"waited {seconds:g} s until {what}; logs are in {self.folder}"):
            if condition():
                return
            time.sleep(max(pause, 0.05))

    # Witnesses.

    def node_of(self, file: str) -> str:
        """The node that has a file; any other place as it is."""
        return next((node.name for node in self.nodes if file.startswith(f"{node.folder}/")), file)

    def has_acted(self, since: float = 0.0) -> bool:
        """Whether an act of the singleton has begun since then."""
        acts = self.singleton.noted(self.node_of).acts
        return bool(acts) and acts[-1].begun > since

    def holder(self) -> Node:
        """The node that runs the singleton now; waits until one does."""
        since = time.monotonic()
        self.until(lambda: self.has_acted(since), "the singleton acts")
        last = self.singleton.noted(self.node_of).acts[-1].holder
        return next(node for node in self.nodes if last.startswith(f"{node.name}/"))

    def orphans(self) -> list[Orphan]:
        """Plugin processes that outlive their owners; waits until they may not."""
        found = []
        for name, pid, at in self.ended:
            for pause in pauses():
                left = descendants_of(pid)
                gone = time.monotonic() - at
                if not left or gone > ORPHANED:
                    found += [Orphan(name, each, gone) for each in left]
                    break
                time.sleep(pause)
        return found

    def errors(self) -> list[str]:
        """Bugs that gateways and nodes have logged."""
        pattern = re.compile(r"Traceback|\"level\": ?\"(critical)\"|never retrieved|bug in plugbay")
        # A gateway that ends may cancel the closing of a connection: SQLAlchemy writes a traceback, and drops it.
        closing = re.compile(r"Exception (closing|terminating) connection.*CancelledError")
        lines = []
        for party in self.parties:
            text = party.log.read_text(errors="replace").splitlines() if party.log.exists() else []
            lines += [
                f"{party.name}: {line[:2000]}" for line in text if pattern.search(line) and not closing.search(line)
            ]
        return lines

    def _end_parties(self) -> None:
        running = [party for party in self.parties if party.is_running]
        children = [child for party in running for child in descendants_of(party.pid)]
        for party in running:
            party.kill()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


def _secret(path: Path, text: str) -> str:
    path.touch(0o600)
    path.write_text(text + "\n")
    return str(path)
