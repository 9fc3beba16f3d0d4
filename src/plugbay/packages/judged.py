"""Connections to registries on behalf of others: to public addresses, and to those that the operator has opened.

Owns that a name is resolved once, that every address of it is judged by `model.addresses`, and that the connection goes
to an address that was judged. httpcore asks here for each connection, so redirects and token services are judged alike.
Needs httpx2, and is imported only where that is there.
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterable
from typing import Any

import httpcore2
import httpx2

from plugbay.model import addresses

MAX_ADDRESSES = 4
"""Addresses of one name that are tried; all of them are judged."""


class JudgedBackend(httpcore2.SyncBackend):
    """Where httpcore gets its sockets."""

    def __init__(self, opened: Collection[str]) -> None:
        """`opened`: `address:port` of servers that may be reached although their address is not public."""
        self._opened = opened

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        problem: Exception = httpcore2.ConnectError(f"{host} has no address")
        for address in self._judged(host, port)[:MAX_ADDRESSES]:
            try:
                stream = super().connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                problem = error
                continue
            self._refuse_ourselves(stream, host, address, port)
            return stream
        raise problem

    def connect_unix_socket(self, *args: Any, **options: Any) -> httpcore2.NetworkStream:
        raise httpcore2.ConnectError("no registry is asked over a socket of this machine")

    def _judged(self, host: str, port: int) -> list[str]:
        """Every address of the host; raises when one of them may not be reached."""
        clean = addresses.clean_host(host)
        if clean is None:
            raise httpcore2.ConnectError(f"{host!r} is no host name and no address in its usual form")
        try:
            found = [clean] if addresses.is_address(clean) else _resolve(clean, port)
        except OSError as error:
            raise httpcore2.ConnectError(f"{host} cannot be resolved: {error.strerror}") from None
        closed = addresses.closed(found, port, self._opened)
        if closed is not None:
            raise _closed(host, port, *closed)
        return found

    def _refuse_ourselves(self, stream: httpcore2.NetworkStream, host: str, address: str, port: int) -> None:
        """A public address of this very machine: services that listen here trust what comes from here."""
        pinned = stream.get_extra_info("socket")
        if addresses.pair(address, port) not in self._opened and pinned.getpeername()[0] == pinned.getsockname()[0]:
            stream.close()
            raise _closed(host, port, address, "this machine")


class JudgedTransport(httpx2.HTTPTransport):
    """httpx2's own way to servers, over judged connections alone; proxies of the environment are not used."""

    def __init__(self, opened: Collection[str]) -> None:
        trust = httpx2.create_ssl_context()
        super().__init__(trust)
        self._pool = httpcore2.ConnectionPool(ssl_context=trust, network_backend=JudgedBackend(opened))


def _resolve(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(item[4][0]) for item in found))


def _closed(host: str, port: int, address: str, why: str) -> httpcore2.ConnectError:
    opener = f'allow_private = ["{addresses.pair(address, port)}"] in [network] of plugbay.toml opens it'
    return httpcore2.ConnectError(f"{host} is at {address}, which is not a public address ({why}); {opener}")
