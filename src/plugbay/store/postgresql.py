"""PostgreSQL as the driver needs it: URLs with several servers, and connections that notice a machine that vanished.

    postgresql://plugbay@db-a:5432,db-b:5432/plugbay        as libpq writes it
    postgresql://plugbay@/plugbay?host=db-a,db-b            the same

Of several servers, the one that can be written to is used, unless the URL has `target_session_attrs`. Importing this
module does not need the driver.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterator
from typing import Any

from sqlalchemy.engine import URL

PORT = 5432

WRITABLE = "read-write"

SILENT_SECONDS = 10
"""Seconds after which a peer that acknowledges nothing counts as gone. The kernel's own limit is 15 minutes."""

_KEEPALIVE = {"TCP_KEEPIDLE": 4, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": SILENT_SECONDS * 1000}
"""An idle connection is probed after 4 s and closed after 3 unanswered probes."""

_SEVERAL = re.compile(
    r"^(?P<scheme>[^:/]+)://(?P<user>[^@/?]*@)?(?P<hosts>[^/?]*,[^/?]*)(?P<path>/[^?]*)?(\?(?P<query>.*))?$"
)
_HOST = re.compile(r"(?P<name>\[[^\]]*\]|[^:]*)(?::(?P<port>[0-9]*))?")


def move_hosts(url: str) -> str:
    """The URL with several servers in its query, where SQLAlchemy reads them."""
    found = _SEVERAL.match(url)
    if found is None:
        return url
    given = f"&{found['query']}" if found["query"] else ""
    return f"{found['scheme']}://{found['user'] or ''}{found['path'] or '/'}?host={found['hosts']}{given}"


def with_ports(url: URL) -> URL:
    """The URL with a port for each of several servers, which must be writable unless it names another kind."""
    hosts = list(_words(url.query.get("host", ())))
    if len(hosts) < 2:
        return url
    ports = list(_words(url.query.get("port", ()))) or [str(url.port or PORT)]
    ports = ports * len(hosts) if len(ports) == 1 else ports
    placed = []
    for host, port in zip(hosts, ports, strict=False):
        found = _HOST.fullmatch(host)
        placed.append(host if found is None else f"{found['name']}:{found['port'] or port}")
    rest = {name: value for name, value in url.query.items() if name not in ("host", "port")}
    return url.set(query={"target_session_attrs": WRITABLE, **rest, "host": tuple(placed)}, port=None)


def _words(value: str | tuple[str, ...]) -> Iterator[str]:
    for part in (value,) if isinstance(value, str) else value:
        yield from filter(None, part.split(","))


def connection_class() -> type[Any]:
    """The driver's connection, with limits on the silence of its peer."""
    from asyncpg import Connection  # type: ignore[import-untyped]

    class WatchedConnection(Connection):  # type: ignore[misc]
        """A connection whose socket is watched by the kernel."""

        __slots__ = ()

        def __init__(self, protocol: Any, transport: Any, *rest: Any) -> None:
            super().__init__(protocol, transport, *rest)
            watch(transport.get_extra_info("socket"))

    return WatchedConnection


def watch(connected: socket.socket | None) -> None:
    """Let the kernel end this connection when its peer is silent; only TCP needs that."""
    if connected is None or connected.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with contextlib.suppress(OSError):  # the connection has ended meanwhile
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
