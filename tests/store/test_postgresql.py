"""URLs with several servers, and sockets that notice a peer that vanished."""

from __future__ import annotations

import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from plugbay.store import database as module
from plugbay.store import leases
from plugbay.store.database import Database, _parse_url
from plugbay.store.failures import StoreRefused, StoreUnavailable
from plugbay.store.postgresql import SILENT_SECONDS, move_hosts, watch, with_ports
from tests.support.databases import database as database_of_kind
from tests.support.databases import postgresql
from tests.support.loops import Run

START = "postgresql+asyncpg://plugbay:word@"


@pytest.mark.parametrize(
    ("url", "hosts", "attributes"),
    [
        (f"{START}a:1,b:2/db", ("a:1", "b:2"), "read-write"),
        (f"{START}a,b/db", ("a:5432", "b:5432"), "read-write"),
        (f"{START}a:1,b/db?target_session_attrs=any", ("a:1", "b:5432"), "any"),
        (f"{START}/db?host=a,b", ("a:5432", "b:5432"), "read-write"),
        (f"{START}/db?host=a,b&port=1,2", ("a:1", "b:2"), "read-write"),
        (f"{START}/db?host=a,b&port=7&target_session_attrs=primary", ("a:7", "b:7"), "primary"),
        (f"{START}/db?host=a:1&host=b:2", ("a:1", "b:2"), "read-write"),
        (f"{START}[::1]:1,[::2]/db", ("[::1]:1", "[::2]:5432"), "read-write"),
    ],
)
def test_several_servers_each_have_a_port_and_one_must_be_writable(
    url: str, hosts: tuple[str, ...], attributes: str
) -> None:
    found = with_ports(make_url(move_hosts(url)))
    assert (found.query["host"], found.query["target_session_attrs"]) == (hosts, attributes)
    assert (found.username, found.password, found.database) == ("plugbay", "word", "db")


@pytest.mark.parametrize(
    "url", [f"{START}a:1/db", f"{START}/db?host=/run/postgresql", "sqlite+aiosqlite:////data/a,b/plugbay.db"]
)
def test_a_url_with_one_server_stays_as_it_is(url: str) -> None:
    assert move_hosts(url) == url
    assert with_ports(make_url(url)) == make_url(url)


def test_a_url_with_a_wrong_port_is_refused() -> None:
    with pytest.raises(StoreRefused):
        _parse_url("postgresql://a:b/db")


def test_of_two_servers_the_one_that_is_there_is_used(tmp_path: Path, run: Run) -> None:
    async def main(url: str) -> None:
        there, gone = str(postgresql().folder), str(tmp_path / "gone")
        several = make_url(url).update_query_dict({"host": f"{gone},{there}"})
        database = await Database.open(several.render_as_string(False), migrate=False)
        async with database.reading() as tx:
            assert await tx.scalar(text("SELECT current_database()")) == make_url(url).database
        await database.close()

    with database_of_kind("postgresql", tmp_path) as url:
        run(lambda: main(url))


def test_a_server_that_takes_no_writes_is_passed_over(tmp_path: Path, run: Run) -> None:
    async def main(url: str) -> None:
        name = make_url(url).database
        postgresql().execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        there = str(postgresql().folder)
        several = make_url(url).update_query_dict({"host": f"{there},{there}"})
        with pytest.raises(StoreUnavailable, match="none of the servers in its URL takes writes"):
            await Database.open(several.render_as_string(False), migrate=False)

    with database_of_kind("postgresql", tmp_path) as url:
        run(lambda: main(url))


def test_the_kernel_ends_a_connection_whose_peer_is_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        watch(client)
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == SILENT_SECONDS * 1000
        probes = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
        between = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) + probes * between == SILENT_SECONDS
    one, other = socket.socketpair()
    watch(one)
    watch(None)
    one.close()
    other.close()


def test_connections_of_the_store_are_watched(tmp_path: Path, run: Run) -> None:
    """The driver's connection of each pool is ours: `watch` gets its socket."""

    async def main(url: str) -> None:
        database = await Database.open(url, migrate=False)
        async with database.reading() as tx:
            raw: Any = await tx.get_raw_connection()
            assert type(raw.driver_connection).__name__ == "WatchedConnection"
        await database.close()

    with database_of_kind("postgresql", tmp_path) as url:
        run(lambda: main(url))


@pytest.mark.parametrize("in_a_statement", [False, True])
def test_a_process_that_is_suspended_in_a_transaction_keeps_no_lock(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, in_a_statement: bool
) -> None:
    """Its lease could not be taken over otherwise. Here it does nothing in its transaction, as if it were suspended."""
    monkeypatch.setattr(module, "STATEMENT_TIMEOUT", 0.5 if in_a_statement else module.STATEMENT_TIMEOUT)

    with database_of_kind("postgresql", tmp_path) as url:

        async def main() -> None:
            async with AsyncExitStack() as stack:
                suspended, other = [await Database.open(url, migrate=False, lease=0.75) for _ in range(2)]
                for each in (suspended, other):
                    stack.push_async_callback(each.close)
                async with suspended.transaction() as tx:
                    taken = await leases.take(tx, "gateway/gw_1", "gw_1", 0.0)
                assert taken is not None
                with pytest.raises(StoreUnavailable):
                    await check_twice(suspended, taken, other, in_a_statement=in_a_statement)
                async with other.reading() as tx:
                    now = await leases.get(tx, "gateway/gw_1")
                assert now is not None and now.holder == "gw_2"

        run(main)


async def check_twice(database: Database, taken: leases.Lease, other: Database, *, in_a_statement: bool) -> None:
    """Check a lease, do nothing until the other has taken it, and check it again.

    In the middle of a statement, PostgreSQL has its text and waits for the values, without any limit.
    """
    async with database.transaction() as tx:
        await leases.check(tx, taken.fence)
        if in_a_statement:
            driver: Any = (await tx.get_raw_connection()).driver_connection
            await driver.prepare("SELECT $1::text")
            with pytest.raises(StoreUnavailable):
                await take_over(other, taken)
            await other.end_stalled()
        await take_over(other, taken)
        await leases.check(tx, taken.fence)


async def take_over(other: Database, taken: leases.Lease) -> None:
    """It waits for the lock, at most `PATIENCE`."""
    async with other.transaction() as tx:
        await leases.take_over(tx, taken, "gw_2", 60.0)
