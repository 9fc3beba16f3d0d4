"""`Door`: the application behind a port of this machine, with a token that nobody has unless they are told.

Owns the address, the token and the server's life. Only loopback, unless the operator says by which names others know
us. Needs the extra `serve`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import secrets
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import uvicorn

from plugbay.mcp_server.bridge import Bridge
from plugbay.mcp_server.exchange import Receive, Send, refuse
from plugbay.mcp_server.http_app import McpApp, Scope
from plugbay.mcp_server.http_protocol import BoundedHttp
from plugbay.mcp_server.http_rules import LOOPBACK, Guard, Refused
from plugbay.model.errors import PlugbayError

PATH = "/mcp"

TOKEN_BYTES = 32
"""Random bytes of a token that is made up."""

FEWEST_CHARACTERS = 16
"""Of a token that somebody chose; shorter ones are guessed."""

STOP_SECONDS = 3
"""For connections to be closed when we stop."""


class NotAllowed(PlugbayError):
    """The address, the token or the names cannot be used."""


class Door:
    """Where clients come in. Made before anything is started, so that mistakes cost nothing."""

    def __init__(
        self,
        address: str,
        token: str | None = None,
        hosts: Sequence[str] = (),
        origins: Sequence[str] = (),
        *,
        say: Callable[[str], object] = lambda text: None,
    ) -> None:
        """`say` is told where clients find us, and the token if it was made up: once, and nowhere else."""
        self._host, self._port = _address(address)
        is_loopback = _is_loopback(self._host)
        if not is_loopback and not hosts:
            why = f"{self._host} is reached from other machines; name what they call this one with --allow-host"
            raise NotAllowed(why)
        if token is not None and (len(token) < FEWEST_CHARACTERS or not token.isascii() or not token.isprintable()):
            raise NotAllowed(f"a token needs {FEWEST_CHARACTERS} printable ASCII characters at least")
        self._made_up = token is None
        self.token = token or secrets.token_urlsafe(TOKEN_BYTES)
        names = {name.lower() for name in hosts} | (LOOPBACK if is_loopback else set())
        self._guard = Guard(self.token, frozenset(names), frozenset(origins))
        self._say = say

    async def serve(self, bridge: Bridge) -> None:
        """Answer until this is cancelled."""
        listening = self._listen()
        app = McpApp(bridge, self._guard)
        server = _Server(
            uvicorn.Config(
                only_at(PATH, app),
                http=BoundedHttp,
                lifespan="off",
                access_log=False,
                log_config=None,
                server_header=False,
                timeout_graceful_shutdown=STOP_SECONDS,
                ws="none",
            )
        )
        self._tell(listening)
        running = asyncio.ensure_future(server.serve(sockets=[listening]))
        try:
            await asyncio.shield(running)
        finally:
            app.close()
            server.should_exit = True
            await asyncio.wait({running})
            listening.close()

    def _listen(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            listening = socket.create_server((self._host, self._port), family=family, backlog=128)
        except OSError as error:
            raise NotAllowed(f"{self._host}:{self._port} cannot be listened at: {error.strerror}") from None
        # Its connections inherit it. asyncio does not set it for them, and an answer in two pieces waits 40 ms.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening

    def _tell(self, listening: socket.socket) -> None:
        host = f"[{self._host}]" if ":" in self._host else self._host
        self._say(f"listening at http://{host}:{listening.getsockname()[1]}{PATH}")
        if self._made_up:
            self._say(f"token    {self.token}")


class _Server(uvicorn.Server):
    """Signals are its owner's business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def only_at(path: str, app: Any) -> Any:
    """The application at this address, and nothing anywhere else."""

    async def routed(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].rstrip("/") == path:
            await app(scope, receive, send)
        elif scope["type"] == "http":
            await refuse(send, Refused(404, f"there is nothing here; MCP is at {path}"))

    return routed


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise NotAllowed(f"{text!r} is no HOST:PORT, like 127.0.0.1:8765")
    return host.strip("[]") or "127.0.0.1", int(port)


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
