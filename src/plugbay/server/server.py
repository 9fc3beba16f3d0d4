"""`serve`: run a gateway behind HTTP until a signal arrives.

Start order: lock the data directory, bind the port, migrate tables, start plugins, start the gateway, accept requests.
Stop in reverse: refuse connections, drain requests and streams, stop background work, plugins, database. A second
signal exits at once. A gateway of a cluster takes a lease on the database instead of the whole of it, and migrates
nothing: gateways of the version before may still run.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import uvicorn
from fastapi import FastAPI
from msgspec.structs import replace
from starlette.types import ASGIApp

from plugbay.host.garbage import collect_rarely
from plugbay.host.host import Host
from plugbay.host.ports import CallLog
from plugbay.mcp_server.http_server import BoundedHttp
from plugbay.model.errors import PlugbayError
from plugbay.server.api.middleware import LOOPBACK, HttpSettings
from plugbay.server.app import create_app
from plugbay.server.domain.agreement import check_key, check_token
from plugbay.server.domain.clock import SharedClock
from plugbay.server.domain.credentials import operator_token, token_file
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.membership import Membership
from plugbay.server.domain.meters import Meters
from plugbay.server.domain.operator_plugins import CallHistory
from plugbay.server.domain.secrets import load_keyring
from plugbay.server.domain.settings import GatewaySettings
from plugbay.server.mcp import mount_mcp
from plugbay.server.occupancy import RunningServer, announce, lock_data_dir
from plugbay.server.service_manager import READY, STOPPING, notify
from plugbay.store.database import Database
from plugbay.store.failures import StoreRefused
from plugbay.store.ownership import owned

LOG = logging.getLogger("plugbay.server")

KEEP_ALIVE_SECONDS = 75
"""Seconds until an idle connection is closed. Longer than the 60 of usual proxies: the end that closes first must be
the client, or a request on a connection that is being closed is lost."""

DRAIN_SECONDS = 20
"""Seconds to finish requests at stop."""

BACKLOG = 1024


class ServeSettings(msgspec.Struct, frozen=True):
    """Settings of a server."""

    gateway: GatewaySettings
    host: str = "127.0.0.1"
    port: int = 8787
    names: tuple[str, ...] = ()
    """Additional host names that requests may use."""
    database_url: str | None = None
    runtime: Path | None = None
    """The folder for the file that commands find the server by."""
    lease_seconds: float | None = None
    """The length of a gateway's lease, if several gateways share the database; None: this server owns it."""
    worker: bool = False
    """One of several processes that share data folder and port; the process that started it holds the lock."""


class Started(msgspec.Struct, frozen=True):
    """A server that accepts requests."""

    url: str
    gateway: Gateway
    dashboard: str
    """A one-time login link for the operator."""


MakeHost = Callable[[CallLog], Host]
"""Creates the host of the operator's folders with this call log."""


class _Uvicorn(uvicorn.Server):
    """Without its own signal handlers; sets `ready` when it accepts requests."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(settings: ServeSettings, make_host: MakeHost, started: Callable[[Started], object]) -> int:
    """Serve until a signal arrives; returns its number. Calls `started` once requests are accepted."""
    stop = _Signals()
    async with AsyncExitStack() as stack:
        if not settings.worker:
            stack.enter_context(lock_data_dir(settings.gateway.data))
        listener = bind_socket(settings.host, settings.port, shared=settings.worker)
        stack.enter_context(contextlib.closing(listener))
        url = _url(settings.host, listener.getsockname()[1])
        database_url = settings.database_url or settings.gateway.database_url
        database = await Database.open(database_url, migrate=False, lease=settings.lease_seconds)
        stack.push_async_callback(database.close)
        membership = await _enter_database(stack, settings, database, stop)
        public = settings.gateway.public_url or url
        gateway = await _open_gateway(
            stack, replace(settings.gateway, base_url=public), database, make_host, membership
        )
        balancer = urlsplit(public).hostname
        names = (*LOOPBACK, settings.host, *settings.names, *filter(None, [balancer]))
        app = create_app(gateway, settings=HttpSettings(hosts=names))
        token = operator_token(settings.gateway.data)[0]
        server = _Uvicorn(_uvicorn_config(await stack.enter_async_context(mount_mcp(app, gateway.host, token, names))))
        stop.listen(app, server, gateway, worker=settings.worker)
        stack.callback(stop.forget)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            await _until_started(server, serving)
            collect_rarely()
            data = settings.gateway.data.absolute()
            found = RunningServer(url, os.getpid(), str(token_file(data)), str(data), os.getcwd())
            if settings.runtime is not None:
                stack.enter_context(announce(settings.runtime, found))
            started(Started(url, gateway, await app.state.dashboard.link(public, token)))
            if not settings.worker:
                notify(READY)
            await serving
        finally:
            app.state.closing.set()
            server.should_exit = True
            await asyncio.wait({serving})
        LOG.info("stopping", extra={"signal": stop.number})
    return stop.number


async def _enter_database(
    stack: AsyncExitStack, settings: ServeSettings, database: Database, stop: _Signals
) -> Membership | None:
    """Own the database and migrate it; or join the gateways that share it."""
    if settings.lease_seconds is None:
        await stack.enter_async_context(owned(database, stop.on_database_lost))
        await database.migrate()
        return None
    if database.dialect != "postgresql":
        raise StoreRefused("several gateways share a PostgreSQL database; SQLite is for one server")
    await database.require_current()
    membership = Membership(database, SharedClock(), settings.lease_seconds)
    await stack.enter_async_context(membership.joined(stop.on_lease_lost))
    others = [lease for lease in await membership.list() if lease.holder != membership.id]
    await check_token(database, operator_token(settings.gateway.data)[0], alone=not others)
    await check_key(database, load_keyring(settings.gateway.data, os.environ))
    return membership


async def _open_gateway(
    stack: AsyncExitStack,
    settings: GatewaySettings,
    database: Database,
    make_host: MakeHost,
    membership: Membership | None,
) -> Gateway:
    calls = CallHistory(database, Meters(), settings.calls_kept)
    host = make_host(calls)
    clock = None if membership is None else membership.clock
    gateway = Gateway(database, host, settings, clock, calls, membership)
    await stack.enter_async_context(host)
    stack.push_async_callback(gateway.stop)
    await gateway.start()
    return gateway


class _Signals:
    """Signal handling: the first signal stops the server, the second kills it, SIGHUP reloads plugbay.toml."""

    def __init__(self) -> None:
        self.number = 0
        self._database_lost = False
        self._end: Callable[[], None] = lambda: None
        self._reloading: set[asyncio.Task[None]] = set()

    def listen(self, app: FastAPI, server: uvicorn.Server, gateway: Gateway, *, worker: bool) -> None:
        loop = asyncio.get_running_loop()
        if worker:
            loop.add_reader(0, self._on_parent_gone)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup, gateway)

        def end() -> None:
            if not worker:
                notify(STOPPING)
            app.state.closing.set()
            server.should_exit = True

        self._end = end
        if self._database_lost:
            end()

    def forget(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)

    def on_database_lost(self, holder: str) -> None:
        """Another gateway owns the database: two would close each other's work."""
        LOG.error("the database is in use by another plugbay server", extra={"holder": holder})
        self._database_lost = True
        self._end()

    def on_lease_lost(self, id: str) -> None:
        """Another gateway has taken over our work: a new start begins with nothing."""
        LOG.error("this gateway was silent for too long; others have taken over its work", extra={"gateway": id})
        self._database_lost = True
        self._end()

    def _on_parent_gone(self) -> None:
        """The stdin of one of several gateways has ended."""
        asyncio.get_running_loop().remove_reader(0)
        self.number = self.number or signal.SIGTERM
        self._end()

    def _on_stop(self, number: int) -> None:
        if self.number:
            LOG.warning("killed by a second signal", extra={"signal": number})
            os._exit(128 + number)  # the warden cleans up
        self.number = number
        self._end()

    def _on_hangup(self, gateway: Gateway) -> None:
        task = asyncio.get_running_loop().create_task(_reload(gateway))
        self._reloading.add(task)
        task.add_done_callback(self._reloading.discard)


async def _reload(gateway: Gateway) -> None:
    try:
        applied = await gateway.operator_config.reload()
    except PlugbayError as error:
        LOG.error("plugbay.toml was not applied", extra={"reason": str(error)})
        return
    facts = {"reloaded": applied.plugins, "added": applied.added, "removed": applied.removed}
    LOG.info("plugbay.toml was read again", extra={name: list(ids) for name, ids in facts.items()})
    if applied.restart:
        LOG.warning("changed sections need a restart", extra={"sections": list(applied.restart)})


async def _until_started(server: _Uvicorn, serving: asyncio.Task[None]) -> None:
    """Raises the error that kept the server from starting."""
    ready = asyncio.ensure_future(server.ready.wait())
    await asyncio.wait({ready, serving}, return_when=asyncio.FIRST_COMPLETED)
    ready.cancel()
    if serving.done():
        serving.result()


def _uvicorn_config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=BoundedHttp,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=DRAIN_SECONDS,
        backlog=BACKLOG,
    )


def bind_socket(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A socket at this address; `shared` with other processes of the same user."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # Inherited by connections. asyncio does not set it, and a response in two packets would wait 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        hint = "; --listen HOST:0 takes a free port" if error.errno == errno.EADDRINUSE else ""
        raise PlugbayError(f"cannot listen on {host}:{port}: {error.strerror}{hint}") from None
    return listener


def _url(host: str, port: int) -> str:
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}"
