"""HTTP connections to public addresses only, plus the addresses and names that the operator has allowed.

A host name is resolved once, every address is checked by `model.addresses`, and the connection goes to a checked
address (no DNS rebinding). httpcore calls this for every connection, so redirects and token services are checked too.
Imports httpx2, so import it only inside functions.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import httpcore2
import httpx2

from plugbay.model import addresses
from plugbay.packages.reference import is_named

MAX_ADDRESSES = 4
"""Addresses that are tried; all are checked."""


def trusted_certificates() -> ssl.SSLContext:
    """The certificates that the system trusts, or those of `SSL_CERT_FILE` and `SSL_CERT_DIR`.

    To read them takes 20 ms, so it is done again only when the file or the folder has changed.
    """
    paths = ssl.get_default_verify_paths()
    return _read_certificates(*((path, os.stat(path).st_mtime_ns) for path in (paths.cafile, paths.capath) if path))


@lru_cache(maxsize=1)
def _read_certificates(*versions: tuple[str, int]) -> ssl.SSLContext:
    return httpx2.create_ssl_context()


class CheckedBackend(httpcore2.SyncBackend):
    """Opens the sockets of httpcore."""

    def __init__(self, opened: Collection[str], private: Collection[str] = ()) -> None:
        """`opened`: non-public `address:port` pairs that may be reached. `private`: `host:port` names of servers that
        may be on this machine or a private network.
        """
        self._opened = opened
        self._private = private

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        problem: Exception = httpcore2.ConnectError(f"{host} has no address")
        private = is_named(self._private, host, port)
        for address in self._checked_addresses(host, port, private)[:MAX_ADDRESSES]:
            try:
                stream = super().connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                problem = error
                continue
            if not private:
                self._refuse_own_address(stream, host, address, port)
            return stream
        raise problem

    def connect_unix_socket(self, *args: Any, **options: Any) -> httpcore2.NetworkStream:
        raise httpcore2.ConnectError("registries are not reached through a Unix socket")

    def _checked_addresses(self, host: str, port: int, private: bool) -> list[str]:
        """All addresses of the host; raises when one of them is not allowed."""
        clean = addresses.clean_host(host)
        if clean is None:
            raise httpcore2.ConnectError(f"{host!r} is neither a host name nor an address in its usual form")
        try:
            found = [clean] if addresses.is_address(clean) else _resolve(clean, port)
        except OSError as error:
            raise httpcore2.ConnectError(f"{host} cannot be resolved: {error.strerror}") from None
        closed = addresses.closed(found, port, self._opened, private=private)
        if closed is not None:
            raise _closed(host, port, *closed)
        return found

    def _refuse_own_address(self, stream: httpcore2.NetworkStream, host: str, address: str, port: int) -> None:
        """Refuse public addresses of this machine: local services trust connections from here."""
        pinned = stream.get_extra_info("socket")
        if addresses.pair(address, port) not in self._opened and pinned.getpeername()[0] == pinned.getsockname()[0]:
            stream.close()
            raise _closed(host, port, address, "this machine")


class CheckedTransport(httpx2.BaseTransport):
    """A transport for httpx2 over checked connections; ignores proxies of the environment."""

    def __init__(self, opened: Collection[str], private: Collection[str] = ()) -> None:
        self._pool = httpcore2.ConnectionPool(
            ssl_context=trusted_certificates(), network_backend=CheckedBackend(opened, private)
        )

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        assert isinstance(request.stream, httpx2.SyncByteStream)
        with _as_httpx2():
            response = self._pool.handle_request(
                httpcore2.Request(
                    request.method,
                    httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                    headers=request.headers.raw,
                    content=request.stream,
                    extensions=request.extensions,
                )
            )
        return httpx2.Response(response.status, headers=response.headers, stream=_Body(response))

    def close(self) -> None:
        self._pool.close()


class _Body(httpx2.SyncByteStream):
    def __init__(self, response: httpcore2.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        with _as_httpx2():
            yield from self._response.iter_stream()

    def close(self) -> None:
        self._response.close()


@contextmanager
def _as_httpx2() -> Iterator[None]:
    """Raise the errors of httpcore2 as those of httpx2."""
    try:
        yield
    except (
        httpcore2.NetworkError,
        httpcore2.ProtocolError,
        httpcore2.TimeoutException,
        httpcore2.UnsupportedProtocol,
    ) as error:
        raise httpx2.TransportError(str(error)) from error


def _resolve(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(item[4][0]) for item in found))


def _closed(host: str, port: int, address: str, why: str) -> httpcore2.ConnectError:
    opener = f'allow_private = ["{addresses.pair(address, port)}"] in [network] of plugbay.toml allows it'
    if why in addresses.PRIVATE:
        opener += f', and so does [registries."{addresses.pair(host, port)}"] with private = true'
    return httpcore2.ConnectError(f"{host} is at {address}, which is not a public address ({why}); {opener}")
