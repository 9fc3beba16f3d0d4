"""`make cluster`: gateways, nodes, PostgreSQL, NATS, a registry and a load balancer on this machine.

    python deploy/cluster.py --data .plugbay/cluster --gateways 2 --nodes 3 --port 8787

Everything is kept below the data folder: ports, passwords, keys and the database are made by the first start and used
again by the next. Ctrl-C or SIGTERM stops all processes in the order of their needs; they also end when this program is
killed. It needs Linux with the programs of `PROGRAMS`.
"""

from __future__ import annotations

import argparse
import base64
import fcntl
import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from plugbay.cluster.subjects import permissions
from plugbay.packages.trust import TrustStore

SOURCES = Path(__file__).parent.absolute()
EXAMPLE = SOURCES / "where"
PACKAGE, EXPORT, ORG = "local/where", "node", "acme"
CELL = "main"
ADDRESS = "127.0.0.1"

PROGRAMS = {"nats-server": "nats-server", "docker-registry": "docker-registry", "haproxy": "haproxy"}
"""Programs by the Debian package that has them; PostgreSQL and setpriv are looked for elsewhere."""

SYSTEM_PATH = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"
"""Debian keeps servers among the programs of root."""

START_SECONDS = 120.0
"""For one process to be ready, on a busy machine."""

STOP_SECONDS = 90.0
"""As in the units of systemd: a node drains for 60 s and then cancels."""

HAPROXY = """\
defaults
    mode http
    timeout connect 5s
    timeout client 75s
    timeout server 75s
    retries 2
    option redispatch
frontend plugbay
    bind {address}:{port}
    default_backend gateways
backend gateways
    balance roundrobin
    option httpchk GET /readyz
    http-check send hdr Host {address}
{servers}
"""


class Failed(Exception):
    """The cluster cannot be started; the text is for the operator."""


class Kept:
    """Ports and secrets of the cluster, the same at each start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._values: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}

    def get(self, name: str) -> Any:
        return self._values.get(name)

    def set(self, name: str, value: Any) -> Any:
        self._values[name] = value
        write(self._path, json.dumps(self._values, indent=1), 0o600)
        return value

    def port(self, name: str) -> int:
        """A port that was free when it was chosen."""
        found = self.get(f"port of {name}")
        if found is None:
            with socket.socket() as probe:
                probe.bind((ADDRESS, 0))
                found = self.set(f"port of {name}", probe.getsockname()[1])
        return int(found)

    def secret(self, name: str) -> str:
        """A password; it begins with a letter, because NATS reads digits as a number."""
        return str(self.get(f"secret of {name}") or self.set(f"secret of {name}", f"s{secrets.token_hex(20)}"))


class Service:
    """One process of the cluster, in a session of its own; its output is in `log`."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None
        self.stop_signal = signal.SIGTERM
        self.death_signal = "KILL"

    def start(self, command: Sequence[object], environ: Mapping[str, str], user: Sequence[str]) -> int:
        """Start it; its process id. It is killed when this program dies, for what it needs dies then, too."""
        words = ["setpriv", *user, f"--pdeathsig={self.death_signal}", "--", *map(str, command)]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                words,
                cwd=self.log.parent,
                env={**environ, "PATH": SYSTEM_PATH},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        return self.process.pid

    def line(self) -> dict[str, Any]:
        """The JSON line that a gateway or a node prints when it is ready."""
        assert self.process is not None and self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise Failed(f"{self.name} did not start; its log:\n{self.tail()}")
        return dict(json.loads(line))

    def wait_until(self, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not ready():
            if self.ended() is not None or time.monotonic() > deadline:
                raise Failed(f"{self.name} did not start; its log:\n{self.tail()}")
            time.sleep(0.05)

    def ended(self) -> int | None:
        return None if self.process is None else self.process.poll()

    def tail(self) -> str:
        return self.log.read_text("utf-8", "replace")[-3000:] if self.log.exists() else ""

    def stop(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def wait(self) -> None:
        """Wait for its end, and kill it when that takes too long."""
        if self.process is None:
            return
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Cluster:
    """All processes of one data folder."""

    def __init__(self, data: Path, gateways: int, nodes: int, port: int, *, confined: bool, out: IO[str]) -> None:
        self.data = data.absolute()
        self._gateways = [f"gw-{number}" for number in range(1, gateways + 1)]
        self._nodes = [f"n{number}" for number in range(1, nodes + 1)]
        self._confined = confined
        self._out = out
        self.services: list[Service] = []
        self.data.mkdir(parents=True, exist_ok=True)
        self._lock = open(self.data / "lock", "w")  # noqa: SIM115 - held until the program ends
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Failed(f"the cluster of {self.data} runs already") from None
        self._kept = Kept(self.data / "kept.json")
        self.port = port or self._kept.port("balancer")
        self.url = f"http://{ADDRESS}:{self.port}"

    # Start.

    def start(self) -> None:
        """Start everything; raises `Failed`."""
        (self.data / "logs").mkdir(exist_ok=True)
        self._write_secrets()
        self._start_postgresql()
        self._start_nats()
        self._start_registry()
        self._say("migrating the database")
        self.plugbay("migrate", "--database", self._database)
        self._write_configuration()
        started = [*map(self._start_gateway, self._gateways), *map(self._start_node, self._nodes)]
        for service in started:
            service.line()
        self._start_balancer()
        self._bring_example()

    def _say(self, text: str) -> None:
        print(f"cluster: {text}", file=self._out, flush=True)

    def _service(self, name: str) -> Service:
        self._say(f"starting {name}")
        service = Service(name, self.data / "logs" / f"{name}.log")
        self.services.append(service)
        return service

    def _run(
        self,
        service: Service,
        command: Sequence[object],
        environ: Mapping[str, str] | None = None,
        user: Sequence[str] = (),
    ) -> None:
        pid = service.start(command, environ or self._environ, user)
        write(self.data / f"{service.name}.pid", f"{pid}\n")

    @property
    def _database(self) -> str:
        return f"@{self.data / 'database'}"

    @property
    def _environ(self) -> dict[str, str]:
        """What all processes of plugbay get. Their state is not in the folders of the user who runs this."""
        own = {
            f"XDG_{name}_HOME": str(self.data / "home" / name.lower()) for name in ("STATE", "DATA", "CONFIG", "CACHE")
        }
        files = {
            "PLUGBAY_OPERATOR_TOKEN_FILE": "operator.token",
            "PLUGBAY_SECRET_KEY_FILE": "secret.key",
            "PLUGBAY_TRUST_FILE": "trust.json",
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PLUGBAY_")}
        return {**kept, **own, **{name: str(self.data / file) for name, file in files.items()}, "NO_COLOR": "1"}

    def _write_secrets(self) -> None:
        if not (self.data / "secret.key").exists():
            write(self.data / "secret.key", base64.b64encode(secrets.token_bytes(32)).decode(), 0o600)
            write(self.data / "operator.token", "pb_sk_" + secrets.token_urlsafe(32), 0o600)
        trust = self.data / "trust.json"
        if not (self.data / "local.key").exists():
            self.plugbay("keygen", "local")
            self.plugbay("trust", "add", "local.pub", "--publisher", "local", "--trust", str(trust))
        assert TrustStore(trust).keys()

    def _start_postgresql(self) -> None:
        programs = postgresql_programs()
        folder, user = self.data / "postgresql", database_user()
        port, password = self._kept.port("postgresql"), self._kept.secret("postgresql")
        service = self._service("postgresql")
        service.stop_signal, service.death_signal = signal.SIGINT, "QUIT"  # not KILL: it has processes of its own
        if not (folder / "PG_VERSION").exists():
            shutil.rmtree(folder, ignore_errors=True)
            make_database(programs, folder, user, self._kept.secret("superuser of postgresql"))
        settings = {"listen_addresses": ADDRESS, "port": port, "unix_socket_directories": "", "max_connections": 100}
        flags = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        self._run(service, [programs / "postgres", "-D", folder, *flags], user=user)
        ready = [str(programs / "pg_isready"), "-q", "-h", ADDRESS, "-p", str(port)]
        service.wait_until(lambda: subprocess.run(ready).returncode == 0)
        if self._kept.get("database") is None:
            sql = f"CREATE ROLE plugbay LOGIN PASSWORD '{password}';\nCREATE DATABASE plugbay OWNER plugbay;\n"
            words = [programs / "psql", "-q", "-v", "ON_ERROR_STOP=1", "-h", ADDRESS, "-p", port, "-U", "postgres"]
            login = {**os.environ, "PGPASSWORD": self._kept.secret("superuser of postgresql")}
            run([*words, "-d", "postgres"], env=login, input=sql)
            self._kept.set("database", "made")
        write(self.data / "database", f"postgresql+asyncpg://plugbay:{password}@{ADDRESS}:{port}/plugbay", 0o600)

    def _start_nats(self) -> None:
        users = [self._nats_user("gateway", permissions(CELL))]
        users += [self._nats_user(name, permissions(CELL, name)) for name in self._nodes]
        settings = {"host": ADDRESS, "port": self._kept.port("nats"), "authorization": {"users": users}}
        write(self.data / "nats.conf", json.dumps(settings, indent=1), 0o600)  # JSON is its language, too
        service = self._service("nats")
        self._run(service, [program("nats-server"), "-c", self.data / "nats.conf"])
        service.wait_until(lambda: accepts(self._kept.port("nats")))

    def _nats_user(self, name: str, allowed: Mapping[str, list[str]]) -> dict[str, Any]:
        return {"user": name, "password": self._kept.secret(name), "permissions": allowed}

    def _start_registry(self) -> None:
        port = self._kept.port("registry")
        settings = {
            "version": 0.1,
            "storage": {"filesystem": {"rootdirectory": str(self.data / "registry")}},
            "http": {"addr": f"{ADDRESS}:{port}", "secret": self._kept.secret("registry")},
        }
        write(self.data / "registry.yml", json.dumps(settings, indent=1), 0o600)  # JSON is YAML
        service = self._service("registry")
        self._run(service, [program("docker-registry"), "serve", self.data / "registry.yml"])
        service.wait_until(lambda: accepts(port))

    def _write_configuration(self) -> None:
        nats = f'nats = ["nats://{ADDRESS}:{self._kept.port("nats")}"]\npassword_env = "NATS_PASSWORD"\n'
        registry = f"oci://{ADDRESS}:{self._kept.port('registry')}/plugbay"
        lines = f'[cluster]\nname = "{CELL}"\n{nats}user = "gateway"\nregistry = "{registry}"\n'
        write(self.data / "plugbay.toml", f'{lines}public_url = "{self.url}"\nlease_seconds = 10\n')
        for name in self._nodes:
            folder = self.data / name
            folder.mkdir(exist_ok=True)
            text = f'[cluster]\nname = "{CELL}"\n{nats}user = "{name}"\n[node]\nname = "{name}"\n'
            write(folder / "plugbay.toml", f'{text}labels = {{ zone = "{name}" }}\n[host]\nlog_dir = "logs"\n')
        path = f"{Path(sys.executable).parent}:$PATH"
        token = (self.data / "operator.token").read_text().strip()
        exports = {"PATH": path, "PLUGBAY_SERVER": self.url, "PLUGBAY_TOKEN": token}
        exports["NATS_PASSWORD"] = self._kept.secret("gateway")
        write(self.data / "env", "".join(f'export {name}="{value}"\n' for name, value in exports.items()), 0o600)

    def _start_gateway(self, name: str) -> Service:
        words = ["serve", "--listen", f"{ADDRESS}:{self._kept.port(name)}", "--database", self._database]
        return self._start_plugbay(name, words, self.data / "plugbay.toml", "gateway")

    def _start_node(self, name: str) -> Service:
        words = ["node", "--trust", self.data / "trust.json"]
        return self._start_plugbay(name, words, self.data / name / "plugbay.toml", name)

    def _start_plugbay(self, name: str, words: Sequence[object], config: Path, user: str) -> Service:
        service = self._service(name)
        options = ["--json", "--config", config, "--data", self.data / name]
        if not self._confined:
            options.append("--no-sandbox")
        environ = {**self._environ, "NATS_PASSWORD": self._kept.secret(user)}
        self._run(service, [sys.executable, "-m", "plugbay", *words, *options], environ)
        return service

    def _start_balancer(self) -> None:
        servers = "\n".join(
            f"    server {name} {ADDRESS}:{self._kept.port(name)} check inter 1s fall 2 rise 1"
            for name in self._gateways
        )
        text = HAPROXY.format(address=ADDRESS, port=self.port, servers=servers)
        write(self.data / "haproxy.cfg", text)
        service = self._service("haproxy")
        self._run(service, [program("haproxy"), "-f", self.data / "haproxy.cfg"])
        service.wait_until(lambda: accepts(self.port))

    def _bring_example(self) -> None:
        """Sign, upload and bind the example, at the first start."""
        if self._kept.get("example"):
            return
        self._say(f"installing the example {PACKAGE}")
        self.plugbay("pack", str(EXAMPLE), "--out", "where.tar.gz")
        self.plugbay("sign", "where.tar.gz", "--key", "local.key")
        for words in (
            ("package", "add", "where.tar.gz"),
            ("org", "create", "Acme", "--id", ORG),
            ("binding", "create", "--package", PACKAGE, "--package-version", "1.0.0", "--export", EXPORT, "--org", ORG),
        ):
            self.plugbay(*words, "--server", self.url, "--token-file", str(self.data / "operator.token"))
        self._kept.set("example", PACKAGE)

    def plugbay(self, *words: str) -> str:
        """The output of a command of plugbay; raises `Failed`."""
        return run([sys.executable, "-m", "plugbay", *words], env=self._environ, cwd=self.data)

    # Until the end.

    def dashboard(self) -> str:
        """A link that opens the dashboard once."""
        words = ("dashboard", "--server", self.url, "--token-file", str(self.data / "operator.token"))
        return self.plugbay(*words).strip().splitlines()[-1]

    def watch(self, stopped: Callable[[], bool]) -> None:
        """Report processes that end, until `stopped`."""
        reported: set[str] = set()
        while not stopped():
            for service in self.services:
                status = service.ended()
                if status is not None and service.name not in reported:
                    reported.add(service.name)
                    self._say(f"{service.name} has ended with status {status}; its log is {service.log}")
            time.sleep(0.2)

    def stop(self) -> None:
        """Stop nodes first, then gateways, then what they need."""
        signal.signal(signal.SIGINT, lambda *_: self.kill())
        nodes = [service for service in self.services if service.name in self._nodes]
        gateways = [service for service in self.services if service.name in self._gateways]
        rest = [service for service in reversed(self.services) if service not in (*nodes, *gateways)]
        for group in (nodes, gateways, *([service] for service in rest)):
            for service in group:
                service.stop(service.stop_signal)
            for service in group:
                service.wait()
                (self.data / f"{service.name}.pid").unlink(missing_ok=True)

    def kill(self) -> None:
        for service in self.services:
            service.stop(signal.SIGKILL)


def write(path: Path, text: str, mode: int = 0o644) -> None:
    path.touch(mode)
    path.chmod(mode)
    path.write_text(text, "utf-8")


def run(command: Sequence[object], **options: Any) -> str:
    """The output of a program; raises `Failed` with what it printed."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))} failed:\n{done.stderr}{done.stdout}")
    return str(done.stdout)


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((ADDRESS, port)) == 0


def program(name: str) -> str:
    found = shutil.which(name, path=SYSTEM_PATH)
    if found is None:
        raise Failed(f"{name} is missing; Debian: apt-get install {PROGRAMS[name]}")
    return found


def postgresql_programs() -> Path:
    """The folder of the newest PostgreSQL of Debian, or of the one in the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    named = shutil.which("postgres", path=SYSTEM_PATH)
    if not found and named is None:
        raise Failed("PostgreSQL is missing; Debian: apt-get install postgresql")
    return found[-1].parent if found else Path(str(named)).parent


def database_user() -> list[str]:
    """The options of setpriv for the user of PostgreSQL, which refuses to run as root."""
    if os.geteuid() != 0:
        return []
    try:
        user = pwd.getpwnam("postgres")
    except KeyError:
        raise Failed("PostgreSQL does not run as root, and there is no user postgres") from None
    return ["--reuid", str(user.pw_uid), "--regid", str(user.pw_gid), "--clear-groups"]


def make_database(programs: Path, folder: Path, user: Sequence[str], password: str) -> None:
    """Make the folder of the database. Raises `Failed` where its user cannot reach it."""
    folder.mkdir(mode=0o700)
    if user:
        shutil.chown(folder, "postgres", "postgres")
        reach = ["setpriv", *user, "--", "test", "-w", str(folder)]
        if subprocess.run(reach, cwd="/").returncode:
            raise Failed(f"the user postgres cannot reach {folder}; name another folder: --data /var/tmp/cluster")
    secret = folder.with_name("superuser")
    write(secret, f"{password}\n", 0o600)
    if user:
        shutil.chown(secret, "postgres", "postgres")
    words = ["setpriv", *user, "--", programs / "initdb", "-D", folder, "-U", "postgres", "-A", "scram-sha-256"]
    run([*words, f"--pwfile={secret}", "-E", "UTF8", "--locale=C", "-N"], cwd="/")
    secret.unlink()


def can_confine() -> bool:
    """Whether plugins can have a sandbox here."""
    from plugbay.cli.doctor.checks import confinement_problem
    from plugbay.host.config.config import Config

    return confinement_problem(Config.default()) is None


def show(cluster: Cluster, confined: bool) -> None:
    folder = os.path.relpath(cluster.data)
    print(f"\n  dashboard  {cluster.dashboard()}")
    print("             works once, within ten minutes")
    print(f"  API        {cluster.url}/openapi.json")
    if not confined:
        print("  sandbox    none: bubblewrap cannot start a confined program here (plugbay doctor shows why)")
    print(f"\nIn another terminal:\n\n  cd {folder} && . ./env\n  plugbay nodes")
    print(f"  plugbay invocation create --org {ORG} --export {EXPORT} --input seconds=1")
    print("  kill -9 $(cat n2.pid); plugbay nodes\n  plugbay nodes drain n1\n\nCtrl-C stops everything.", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make cluster", description="Run a cluster of plugbay on this machine.")
    parser.add_argument("--data", type=Path, default=Path(".plugbay/cluster"), help="the folder of everything")
    parser.add_argument("--gateways", type=int, default=2)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--port", type=int, default=8787, help="of the load balancer; 0 takes a free one")
    given = parser.parse_args(arguments)
    confined = can_confine()
    stopping: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: stopping.append(number))
    try:
        cluster = Cluster(given.data, given.gateways, given.nodes, given.port, confined=confined, out=sys.stderr)
    except Failed as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1
    try:
        cluster.start()
        show(cluster, confined)
        cluster.watch(lambda: bool(stopping))
    except Failed as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1
    finally:
        print("cluster: stopping", file=sys.stderr, flush=True)
        cluster.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
