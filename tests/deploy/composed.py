"""Starts the services of a compose file without containers: Debian's programs instead of images.

Each service has network interfaces on the networks of the file, a hosts file with the services that it shares one with,
a root of its own for /etc, /run and /var/lib with its configs and secrets, a process tree, its environment and its
capabilities. Security options, users, health checks of images, published ports and restarts are left out.
"""

from __future__ import annotations

import os
import secrets
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from tests.support.nats_server import PROGRAM as NATS
from tests.support.patience import PATIENCE

PLUGBAY = Path(sys.executable).with_name("plugbay")
POSTGRESQL = """\
here=$(ls -d /usr/lib/postgresql/*/bin | tail -1); data=/var/lib/postgresql/data
export PATH=$here:$PATH PGHOST=/run/postgresql PGUSER=postgres
install -d -o postgres $data /run/postgresql
as="setpriv --reuid postgres --regid postgres --clear-groups --"
$as initdb -D $data -A scram-sha-256 --auth-local trust --pwfile "$POSTGRES_PASSWORD_FILE" -N -E UTF8 --locale C
echo 'host all all all scram-sha-256' >> $data/pg_hba.conf
sockets="-c unix_socket_directories=/run/postgresql"
$as pg_ctl -D $data -w -o "$sockets -c listen_addresses=" start
for script in /docker-entrypoint-initdb.d/*.sh; do $as sh "$script"; done
$as pg_ctl -D $data -w stop
exec $as postgres -D $data $sockets -c listen_addresses='*'
"""
"""What the image of PostgreSQL does at its first start."""

ENTRYPOINTS = {
    "plugbay": f"cd /etc/plugbay; exec {PLUGBAY} ",
    "postgres": POSTGRESQL,
    "nats": f"exec {NATS} ",
    "registry": "exec docker-registry ",
    "haproxy": "PATH=$PATH:/usr/sbin; exec ",
}
CAPABILITIES = set(
    "chown dac_override fowner fsetid kill setgid setuid setpcap net_bind_service net_raw sys_chroot mknod audit_write "
    "setfcap".split()
)
"""Those of a container, unless its service says otherwise."""

ROOT = """\
set -eu
mount -t tmpfs tmpfs "$1"
for folder in etc var/lib; do
    mkdir -p "$1/$folder" "$1/work-$folder"
    mount -t overlay overlay -o "lowerdir=/$folder,upperdir=$1/$folder,workdir=$1/work-$folder" "/$folder"
done
mount -t tmpfs tmpfs /run
mkdir -p /var/lib/plugbay /etc/plugbay
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Composed:
    """The services of one file, by name."""

    def __init__(self, folder: Path, work: Path) -> None:
        self.folder = folder
        self.file: dict[str, Any] = yaml.safe_load((folder / "compose.yaml").read_text("utf-8"))
        self.services: dict[str, Any] = self.file["services"]
        self._work = work
        self._mark = f"pbc{secrets.token_hex(2)}"
        self._spaces: list[str] = []
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._hosts: dict[str, dict[str, str]] = {name: {} for name in self.file["networks"]}

    def space(self, name: str) -> str:
        return f"{self._mark}-{name}"

    def _make_space(self, name: str) -> str:
        space = self.space(name)
        ip("netns", "add", space)
        self._spaces.append(space)
        ip("-n", space, "link", "set", "lo", "up")
        return space

    def make_networks(self) -> None:
        """A bridge for each network, and an interface on it for each of its services."""
        switch = self._make_space("switch")
        for at in range(len(self.file["networks"])):
            ip("-n", switch, "link", "add", f"b{at}", "type", "bridge")
            ip("-n", switch, "link", "set", f"b{at}", "up")
        for number, (name, service) in enumerate(self.services.items(), start=2):
            space = self._make_space(name)
            for at, network in enumerate(self.file["networks"]):
                if network not in service["networks"]:
                    continue
                address, other = f"10.78.{at}.{number}", f"v{number}-{at}"
                ip("-n", switch, "link", "add", other, "type", "veth", "peer", "name", f"eth{at}", "netns", space)
                ip("-n", switch, "link", "set", other, "master", f"b{at}", "up")
                ip("-n", space, "addr", "add", f"{address}/24", "dev", f"eth{at}")
                ip("-n", space, "link", "set", f"eth{at}", "up")
                self._hosts[network][name] = address

    def _script(self, name: str) -> str:
        """Everything between an empty namespace and the program of a service."""
        service = self.services[name]
        hosts = {other: address for network in service["networks"] for other, address in self._hosts[network].items()}
        lines = [ROOT, "echo '127.0.0.1 localhost' > /etc/hosts"]
        lines += [f"echo '{address} {other}' >> /etc/hosts" for other, address in hosts.items()]
        files = [(self.file["secrets"][each]["file"], f"/run/secrets/{each}") for each in service.get("secrets", ())]
        files += [(self.file["configs"][each["source"]]["file"], each["target"]) for each in service.get("configs", ())]
        for source, target in files:
            mode = (self.folder / source).stat().st_mode & 0o777
            lines.append(f"install -D -m {mode:o} {self.folder / source} {target}")
        kept = CAPABILITIES | {each.lower() for each in service.get("cap_add", ())}
        bounds = ",".join(["-all", *(f"+{each}" for each in sorted(kept))])
        start = ENTRYPOINTS[service["image"].partition(":")[0]] + shlex.join(service.get("command", ()))
        # The shell stays, as the first process of its namespace: a program that changes its user outlives `unshare`.
        return "\n".join([*lines, f"setpriv --bounding-set {bounds} -- sh -euc {shlex.quote(start)} & wait $!"])

    def start(self, name: str) -> None:
        root = self._work / f"root-{name}"
        root.mkdir()
        environ = {"HOME": "/var/lib/plugbay", "PATH": os.environ["PATH"], **self.services[name].get("environment", {})}
        spaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
        command = ["ip", "netns", "exec", self.space(name), *spaces, "sh", "-c", self._script(name), "sh", str(root)]
        with open(self._work / f"{name}.log", "wb") as log:
            self._processes[name] = subprocess.Popen(
                command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def log(self, name: str) -> str:
        return (self._work / f"{name}.log").read_text("utf-8", "replace")

    def up(self) -> None:
        """Start all services in the order of `depends_on`."""
        left = dict(self.services)
        while left:
            ready = [name for name in left if not set(left[name].get("depends_on", {})) & set(left)]
            for name in ready:
                for other, wanted in left.pop(name).get("depends_on", {}).items():
                    self._await(other, wanted["condition"])
                self.start(name)

    def _await(self, name: str, condition: str) -> None:
        if condition == "service_completed_successfully":
            assert self._processes[name].wait(PATIENCE) == 0, self.log(name)
            return
        assert condition == "service_healthy"
        check = self.services[name]["healthcheck"]["test"][1:]
        deadline = time.monotonic() + PATIENCE
        while self.run(name, *check).returncode:
            assert self._processes[name].poll() is None and time.monotonic() < deadline, self.log(name)
            time.sleep(0.2)

    def run(self, name: str, *command: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a program in the network of a service."""
        words = ["ip", "netns", "exec", self.space(name), *command]
        found = {**os.environ, **environ}
        return subprocess.run(words, env=found, capture_output=True, text=True, timeout=PATIENCE)

    def down(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait(PATIENCE)
        for space in self._spaces:
            with suppress(subprocess.CalledProcessError):
                ip("netns", "del", space)


@contextmanager
def composed(folder: Path, work: Path) -> Iterator[Composed]:
    """All services of the compose file of a folder."""
    services = Composed(folder, work)
    try:
        services.make_networks()
        services.up()
        yield services
    finally:
        services.down()
