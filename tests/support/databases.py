"""Databases for tests: `database_url` is SQLite once and PostgreSQL once, `sqlite_url` is SQLite alone. Both migrated.

Where the two differ is `store`'s to show; elsewhere PostgreSQL belongs to `make test-all`.

PostgreSQL is a server of this test process, from Debian's package, in a folder of its own in memory: each test has a
database to itself, of 300 files, whose making would take twice as long on a disk. The server is started when the first
test asks for it and does not outlive us, even when we are killed.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
import pwd
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from plugbay.store.database import Tx
from plugbay.store.statements import Outcome, Write
from tests.support.memory import memory_folder
from tests.support.patience import PATIENCE
from tests.support.shared import shared
from tests.support.tiers import first_alone

KINDS = ("sqlite", "postgresql")

TEMPLATE = "plugbay_template"

OWNER = "plugbay"
"""The role that owns all databases, as an operator would have it: a superuser would ignore row-level security."""

SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "listen_addresses": "",
    "max_connections": "100",
    "shared_buffers": "16MB",
    "autovacuum": "off",
    "max_wal_senders": "0",
    "wal_level": "minimal",
}
"""For a server whose data nobody needs tomorrow."""


@contextmanager
def database(kind: str, folder: Path) -> Iterator[str]:
    """The URL of a fresh, migrated database of this kind."""
    if kind == "sqlite":
        yield sqlite_database(folder)
        return
    server = postgresql()
    name = server.create()
    yield server.url(name)
    server.drop(name)


@pytest.fixture(params=first_alone(KINDS))
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A fresh, migrated database of each kind."""
    with database(request.param, tmp_path) as url:
        yield url


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A fresh, migrated SQLite."""
    return sqlite_database(tmp_path)


def sqlite_database(folder: Path, name: str = "plugbay.db") -> str:
    """A copy of a database that was migrated once for all tests."""
    path = folder / name
    path.write_bytes(_migrated_sqlite())
    return f"sqlite+aiosqlite:///{path}"


@functools.cache
def _migrated_sqlite() -> bytes:
    return shared("migrated.db", lambda path: _migrate(f"sqlite+aiosqlite:///{path}")).read_bytes()


def _migrate(url: str) -> None:
    from plugbay.store.database import Database

    async def migrate() -> None:
        database = await Database.open(url)
        await database.close()

    asyncio.run(migrate())


class Server:
    """A PostgreSQL of our own."""

    def __init__(self) -> None:
        self._programs = programs()
        self._user = server_user()
        self.folder = memory_folder("plugbay-pg-")
        if os.geteuid() == 0:
            shutil.chown(self.folder, self._user)
        self._names = (f"test_{number}" for number in count())
        self._process = self._start()
        atexit.register(self.stop)
        self.execute(f"CREATE ROLE {OWNER} LOGIN")
        self.execute(f"CREATE DATABASE {TEMPLATE} OWNER {OWNER}")
        _migrate(self.url(TEMPLATE))

    def url(self, name: str) -> str:
        return self._url(OWNER, name)

    def superuser_url(self, name: str) -> str:
        """For a connection that row-level security does not apply to."""
        return self._url(self._user, name)

    def _url(self, user: str, name: str) -> str:
        return f"postgresql+asyncpg://{user}@/{name}?host={self.folder}"

    def create(self, template: str = TEMPLATE) -> str:
        """A new database; its name."""
        name = next(self._names)
        self.execute(f"CREATE DATABASE {name} OWNER {OWNER} TEMPLATE {template} STRATEGY FILE_COPY")
        return name

    def drop(self, name: str) -> None:
        self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def execute(self, statement: str, name: str = "postgres") -> None:
        """One statement, outside of any transaction."""
        import asyncpg  # type: ignore[import-untyped]

        async def execute() -> None:
            connection = await asyncpg.connect(host=str(self.folder), user=self._user, database=name)
            try:
                await connection.execute(statement)
            finally:
                await connection.close()

        with ThreadPoolExecutor(1) as thread:  # a test may be in the middle of a loop of its own
            thread.submit(asyncio.run, execute()).result()

    def halt(self) -> None:
        """End it, and every connection to it; what is in it stays."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(PATIENCE)

    def resume(self) -> None:
        """Start it again. In the main thread: it ends with the thread that started it."""
        self._process = self._run()

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self) -> subprocess.Popen[bytes]:
        data = self.folder / "data"
        made = [*as_user(self._user), self._programs / "initdb", "-D", data, "-U", self._user, "-A", "trust", "-N"]
        subprocess.run([*map(str, made), "-E", "UTF8", "--locale=C"], check=True, capture_output=True, cwd="/")
        return self._run()

    def _run(self) -> subprocess.Popen[bytes]:
        data = self.folder / "data"
        settings = {**SETTINGS, "unix_socket_directories": str(self.folder)}
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        log = open(self.folder / "log", "wb")  # noqa: SIM115 - the server's for as long as it runs
        command = [*as_user(self._user, "--pdeathsig=QUIT"), self._programs / "postgres", "-D", data, *flags]
        process = subprocess.Popen([*map(str, command)], stdout=log, stderr=log, cwd="/")
        log.close()
        self._await_answer(process)
        return process

    def _await_answer(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self.execute("SELECT 1")
            except Exception as error:
                late = time.monotonic() > deadline
                if late or process.poll() is not None:
                    said = (self.folder / "log").read_text(errors="replace")
                    raise RuntimeError(f"PostgreSQL does not start: {error}\n{said}") from error
            time.sleep(0.05)


@contextmanager
def away(url: str) -> Iterator[None]:
    """The database cannot be used meanwhile: PostgreSQL is down, a SQLite file is locked by somebody else."""
    found = make_url(url)
    if found.get_backend_name() == "sqlite":
        other = sqlite3.connect(str(found.database), isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        try:
            yield
        finally:
            other.execute("ROLLBACK")
            other.close()
        return
    postgresql().halt()
    try:
        yield
    finally:
        postgresql().resume()


@functools.cache
def postgresql() -> Server:
    """The server of this test process, started now if it was not."""
    return Server()


def server_user() -> str:
    """PostgreSQL refuses to run as root."""
    return pwd.getpwnam("postgres").pw_name if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name


def as_user(user: str, *flags: str) -> list[str]:
    """The beginning of a command that runs as this user; `--pdeathsig=QUIT`: and goes when we do."""
    who = ["--reuid", user, "--regid", user, "--clear-groups"] if os.geteuid() == 0 else []
    return ["setpriv", *who, *flags, "--"]


def programs() -> Path:
    """Where Debian has the newest server's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if not found:
        raise RuntimeError("there is no PostgreSQL; `make setup` installs Debian's package postgresql")
    return found[-1].parent


async def run_write(tx: Tx, write: Write) -> Outcome:
    """Run a statement that `Database.write` takes, in a transaction of the test."""
    statement, values = write
    return await statement.run(tx, values)
