"""`Fetcher`: HTTP for plugins, to granted hosts at allowed addresses only.

A name is resolved once, all its addresses are checked, and `http_client` connects to a checked one; a redirect is a new
request with all checks. Proxies of the environment are ignored.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import msgspec
from msgspec.structs import replace

from plugbay.host.services.threads import on_thread
from plugbay.model import addresses
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.fetch import HOP_BY_HOP, Url, parse_url, read_url
from plugbay.model.gate import refuse_capability, refuse_network
from plugbay.model.spec import Access

if TYPE_CHECKING:
    import httpcore2

    from plugbay.host.services.http_client import Reply
    from plugbay.model.operations import FetchUrl

FETCH_SECONDS = 30.0
"""Timeout of one fetch, with all redirects and the whole body."""

CONNECT_SECONDS = 10.0
"""Timeout of one TCP connection, and of one TLS handshake; then the next address is tried."""

MAX_ADDRESSES = 4
"""Addresses of one name that are tried; all of them are checked."""

MAX_REDIRECTS = 5

THREAD = "plugbay-network"

CROSS_ORIGIN_HEADERS = frozenset(
    "accept accept-encoding accept-language content-language content-type user-agent".split()
)
"""Headers that are sent to another origin after a redirect; any other may hold a credential."""

Headers = tuple[tuple[str, str], ...]

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""(host name, port) → every address of the name."""


class Request(msgspec.Struct, frozen=True):
    """One hop of a fetch."""

    url: Url
    method: str
    headers: Headers
    body: bytes | None

    def to_http(self) -> httpcore2.Request:
        """This hop for the HTTP library; the plugin's headers replace the defaults."""
        import httpcore2

        own = {name.lower() for name, _ in self.headers}
        defaults = (("User-Agent", "plugbay"), ("Accept", "*/*"), ("Accept-Encoding", "identity"))
        fields = [("Host", self.url.origin.partition("://")[2]), *self.headers]
        fields += [(name, value) for name, value in defaults if name.lower() not in own]
        if self.body is not None or self.method in ("POST", "PUT", "PATCH"):
            fields.append(("Content-Length", str(len(self.body or b""))))
        return httpcore2.Request(
            self.method,
            httpcore2.URL(scheme=self.url.scheme, host=self.url.host, port=self.url.port, target=self.url.path),
            headers=[*fields, ("Connection", "close")],
            content=self.body,
            extensions={"timeout": {"connect": CONNECT_SECONDS}},
        )

    def redirect(self, status: int, location: str) -> Request:
        """The next hop after a redirect; raises `CallFailed`."""
        try:
            url = parse_url(urljoin(self.url.origin + self.url.path, location))
        except ValueError:  # brackets around an invalid address
            url = "cannot be read"
        if isinstance(url, str):
            raise _invalid(f"the server redirects to a URL that cannot be used: it {url}")
        if (self.url.scheme, url.scheme) == ("https", "http"):
            raise _invalid("the server redirects from https to http")
        hop = replace(self, url=url)
        if (status == 303 and self.method != "HEAD") or (status in (301, 302) and self.method == "POST"):
            kept = tuple(item for item in self.headers if not item[0].lower().startswith("content-"))
            hop = replace(hop, method="GET", body=None, headers=kept)
        if url.origin != self.url.origin:
            hop = replace(hop, headers=tuple(item for item in hop.headers if item[0].lower() in CROSS_ORIGIN_HEADERS))
        return hop


class Fetcher:
    """Fetches for all plugins of one host. Raises `CallFailed`."""

    def __init__(
        self,
        *,
        resolve: Resolve | None = None,
        trust: ssl.SSLContext | None = None,
        seconds: float = FETCH_SECONDS,
    ) -> None:
        self._resolve = resolve or _resolve
        self._tls = trust
        self._seconds = seconds

    async def fetch(self, op: FetchUrl, access: Iterable[Access], opened: Collection[str] = ()) -> dict[str, Any]:
        """`{"status", "headers", "body"}` of the last hop.

        `opened`: `address:port` of servers that the plugin may reach at a non-public address.
        """
        request, granted = _request(op), tuple(access)
        if self._tls is None:
            self._tls = await asyncio.shield(on_thread(_load, THREAD))
        try:
            async with asyncio.timeout(self._seconds):
                reply = await self._follow(request, granted, opened)
        except TimeoutError:
            text = f"{request.url.origin} did not answer in full within {self._seconds:g} s"
            raise CallFailed(Failure(Code.TIMEOUT, text)) from None
        headers = [[name, value] for name, value in reply.headers if name.lower() not in HOP_BY_HOP]
        return {"status": reply.status, "headers": headers, "body": reply.body}

    async def _follow(self, request: Request, granted: tuple[Access, ...], opened: Collection[str]) -> Reply:
        for _ in range(MAX_REDIRECTS + 1):
            reply = await self._hop(request, granted, opened)
            location = reply.header("location") if reply.status in (301, 302, 303, 307, 308) else None
            if location is None:
                return reply
            request = request.redirect(reply.status, location)
        raise _invalid(f"there are more than {MAX_REDIRECTS} redirects")

    async def _hop(self, request: Request, granted: tuple[Access, ...], opened: Collection[str]) -> Reply:
        from plugbay.host.services.http_client import OwnAddress, PinnedBackend, Unreachable, send

        url = request.url
        refusal = refuse_network(granted, url.host, url.port)
        if refusal is not None:
            raise CallFailed(refusal)
        for address in (await self._check_addresses(url, opened))[:MAX_ADDRESSES]:
            may_be_local = addresses.pair(address, url.port) in opened
            try:
                return await send(request.to_http(), PinnedBackend(address, allow_local=may_be_local), self._tls)
            except OwnAddress:
                raise _denied(f"{url.host} is at {address}, which is this machine") from None
            except Unreachable as error:
                problem = error
        raise _invalid(f"{url.origin} cannot be reached: {problem}")

    async def _check_addresses(self, url: Url, opened: Collection[str]) -> list[str]:
        """Every address of the host. One forbidden address refuses the host: it may be a DNS rebinding attack."""
        try:
            found = [url.host] if addresses.is_address(url.host) else await self._resolve(url.host, url.port)
        except OSError as error:
            raise _invalid(f"{url.host} cannot be resolved: {_reason(error)}") from None
        from plugbay.process.sandbox.egress.proxy import is_ours  # heavy; only for fetches

        # Before a connection: one that is refused later would still tell which ports of this machine are open.
        refused = addresses.closed(found, url.port, opened, frozenset(filter(is_ours, found)))
        if refused is not None:
            address, why = refused
            raise _denied(f"{url.host} is at {address}, which plugins may not reach: {why}")
        if not found:
            raise _invalid(f"{url.host} has no address")
        return found


def _request(op: FetchUrl) -> Request:
    """The checked request of a plugin; raises `CallFailed`."""
    url = read_url(op)
    if isinstance(url, str):
        raise _invalid(url)
    headers = tuple((name, value.strip()) for name, value in op.headers)
    return Request(url, (op.method or "GET").upper(), headers, op.body)


def _load() -> ssl.SSLContext:
    """Import the HTTP library and read the certificates of the system."""
    import plugbay.host.services.http_client  # noqa: F401

    return ssl.create_default_context()


async def _resolve(host: str, port: int) -> list[str]:
    """Resolve on a thread of its own: a name server may take half a minute, and the loop's pool is small."""
    ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.shield(on_thread(ask, THREAD))
    return list(dict.fromkeys(str(item[4][0]) for item in found))


def _invalid(text: str) -> CallFailed:
    return CallFailed(Failure(Code.INVALID_INPUT, text))


def _denied(text: str) -> CallFailed:
    return CallFailed(refuse_capability("network", text))


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
