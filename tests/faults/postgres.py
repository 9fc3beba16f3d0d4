"""`Postgres`: a server with a synchronous standby, both on loopback. A commit is on both, so a promotion loses nothing.

with Postgres() as postgres:
    postgres.crash(); postgres.restart()        every connection is lost, no commit is
    postgres.crash(); postgres.promote()        the standby takes writes from now on
"""

from __future__ import annotations

import asyncio
import getpass
import shutil
import signal
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

from plugbay.store.database import Database
from tests.support.databases import OWNER, as_user, programs, server_user
from tests.support.patience import PATIENCE, pauses
from tests.support.ports import free_port
from tests.support.shared import shared

NAME = "plugbay"

SETTINGS = {
    "fsync": "off",  # processes are killed here, never the machine
    "full_page_writes": "off",
    "synchronous_commit": "on",
    "listen_addresses": "127.0.0.1",
    "max_connections": "120",
    "shared_buffers": "16MB",
    "autovacuum": "off",
    "wal_level": "replica",
    "max_wal_senders": "4",
    "wal_retrieve_retry_interval": "200ms",
}


class Server:
    """One of the two."""

    def __init__(self, folder: Path, port: int, **settings: str) -> None:
        self.folder = folder
        self.port = port
        self._settings = {**SETTINGS, "port": str(port), "unix_socket_directories": str(folder), **settings}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        flags = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        command = [*as_user(server_user(), "--pdeathsig=QUIT"), programs() / "postgres", "-D", self.folder, *flags]
        with open(self.folder.with_suffix(".log"), "ab") as log:
            self._process = subprocess.Popen([*map(str, command)], stdout=log, stderr=log, cwd="/")
        for pause in pauses(why=f"PostgreSQL does not start: {self.folder}.log"):
            try:
                self.query("SELECT 1", NAME if (self.folder / "standby.signal").exists() else "postgres")
                return
            except Exception:  # not yet
                time.sleep(pause)

    def crash(self) -> None:
        """End it at once, without a checkpoint."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(PATIENCE)
            self._process = None

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def query(self, statement: str, name: str = NAME) -> list[dict[str, Any]]:
        """The rows of a statement of the superuser."""
        import asyncpg  # type: ignore[import-untyped]

        async def run() -> list[dict[str, Any]]:
            connection = await asyncpg.connect(
                host="127.0.0.1", port=self.port, user=server_user(), database=name, timeout=5, command_timeout=10
            )
            try:
                return [dict(row) for row in await connection.fetch(statement)]
            finally:
                await connection.close(timeout=2)

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, run()).result()


class Postgres:
    """A primary and its standby."""

    def __init__(self) -> None:
        self._top = Path(tempfile.mkdtemp(prefix="plugbay-faults-pg-"))
        self._top.chmod(0o755)
        if server_user() != getpass.getuser():
            shutil.chown(self._top, server_user())
        ports = free_port(), free_port()
        template = shared("faults-postgresql", _make_template)
        for name in ("primary", "standby"):
            subprocess.run(["cp", "-a", str(template / "data"), str(self._top / name)], check=True)
        (self._top / "standby" / "standby.signal").touch()
        self.primary = Server(self._top / "primary", ports[0])
        source = f"host=127.0.0.1 port={ports[0]} user={server_user()} application_name=standby"
        self.standby = Server(self._top / "standby", ports[1], primary_conninfo=source)
        self.promoted = False

    def __enter__(self) -> Self:
        self.primary.start()
        self.standby.start()
        self._await_standby()
        self.primary.query("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
        self.primary.query("SELECT pg_reload_conf()")
        self._await_standby("sync_state = 'sync'")
        return self

    def __exit__(self, *_: object) -> None:
        for server in (self.standby, self.primary):
            server.crash()
        shutil.rmtree(self._top, ignore_errors=True)

    @property
    def ports(self) -> tuple[int, int]:
        return self.primary.port, self.standby.port

    @property
    def writable(self) -> Server:
        return self.standby if self.promoted else self.primary

    def crash(self) -> None:
        """End the server that takes writes."""
        self.writable.crash()

    def restart(self) -> None:
        """Start it again."""
        if not self.writable.is_running:
            self.writable.start()

    def promote(self) -> None:
        """The standby takes writes from now on. The primary must have ended."""
        assert not self.primary.is_running and not self.promoted
        self.standby.query("SELECT pg_promote()")
        self.promoted = True

    def _await_standby(self, condition: str = "state = 'streaming'") -> None:
        for pause in pauses(why=f"the standby does not follow: {self._top}"):
            if self.primary.query(f"SELECT 1 FROM pg_stat_replication WHERE {condition}"):
                return
            time.sleep(pause)


def _make_template(folder: Path) -> None:
    """A folder of a server that has ended in order, with our migrated tables."""
    top = Path(tempfile.mkdtemp(prefix="plugbay-faults-pg-"))
    top.chmod(0o755)
    if server_user() != getpass.getuser():
        shutil.chown(top, server_user())
    initdb = [
        *as_user(server_user()),
        programs() / "initdb",
        "-D",
        top / "data",
        "-U",
        server_user(),
        "-A",
        "trust",
        "-N",
    ]
    subprocess.run([*map(str, initdb), "-E", "UTF8", "--locale=C"], check=True, capture_output=True, cwd="/")
    server = Server(top / "data", free_port())
    server.start()
    server.query(f"CREATE ROLE {OWNER} LOGIN", "postgres")
    server.query(f"CREATE DATABASE {NAME} OWNER {OWNER}", "postgres")

    async def migrate() -> None:
        database = await Database.open(f"postgresql+asyncpg://{OWNER}@127.0.0.1:{server.port}/{NAME}")
        await database.close()

    asyncio.run(migrate())
    server.query("CHECKPOINT")
    assert server._process is not None
    server._process.send_signal(signal.SIGINT)
    server._process.wait(PATIENCE)
    folder.mkdir()
    subprocess.run(["cp", "-a", str(top / "data"), str(folder / "data")], check=True)
    shutil.rmtree(top, ignore_errors=True)
