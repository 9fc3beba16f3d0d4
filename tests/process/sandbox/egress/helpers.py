"""What the tests of the proxy share: a proxy with a table of names, servers that remember, and a certificate."""

from __future__ import annotations

import asyncio
import datetime
import random
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from plugbay.process.sandbox.egress.decision import Decision
from plugbay.process.sandbox.egress.listener import Sockets
from plugbay.process.sandbox.egress.proxy import Proxy, Resolve
from plugbay.process.sandbox.policy import Network
from tests.support.patience import until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"


def own_address() -> str:
    """A loopback address that no other test uses, with all its ports."""
    return f"127.{random.randrange(1, 255)}.{random.randrange(256)}.{random.randrange(1, 255)}"


def names(table: Mapping[str, list[str]]) -> Resolve:
    """A resolver that knows these names."""

    async def resolve(host: str, port: int) -> list[str]:
        if host not in table:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return table[host]

    return resolve


async def speak_http(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(OK)
    if writer.can_write_eof():
        writer.write_eof()
        await reader.read()  # to close with something unread would be a reset


async def listen_only(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


Script = Callable[["Server", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Serves by a script on an address of its own, and remembers every connection and every byte that came."""

    def __init__(self, script: Script = speak_http, trust: ssl.SSLContext | None = None) -> None:
        self.address = own_address()
        self.ports: list[int] = []
        self.seen: list[bytearray] = []
        self._script = script
        self._trust = trust
        self._servers: list[asyncio.Server] = []
        self._visits: set[asyncio.Task[None]] = set()

    async def open(self, *ports: int) -> Self:
        loop = asyncio.get_running_loop()
        for port in ports or (0,):
            server = await loop.create_server(lambda: _Recorder(self), self.address, port, ssl=self._trust)
            self._servers.append(server)
            self.ports.append(server.sockets[0].getsockname()[1])
        return self

    @property
    def port(self) -> int:
        return self.ports[0]

    @property
    def pairs(self) -> tuple[str, ...]:
        return tuple(f"{self.address}:{port}" for port in self.ports)

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for visit in self._visits:
            visit.cancel()
        if self._visits:
            await asyncio.wait(self._visits)

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = asyncio.ensure_future(self._serve(reader, writer))
        self._visits.add(visit)
        visit.add_done_callback(self._visits.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._script(self, reader, writer)
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            writer.transport.abort()


class _Recorder(asyncio.StreamReaderProtocol):
    def __init__(self, server: Server) -> None:
        super().__init__(asyncio.StreamReader(), server.serve)
        self._seen = bytearray()
        server.seen.append(self._seen)

    def data_received(self, data: bytes) -> None:
        self._seen += data
        super().data_received(data)


@asynccontextmanager
async def serving(
    *ports: int, script: Script = speak_http, trust: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    server = await Server(script, trust).open(*ports)
    try:
        yield server
    finally:
        await server.close()


class Way:
    """A proxy, and the plugin's side of it."""

    def __init__(
        self, network: Network, resolver: Resolve | None, on_decision: Callable[[Decision], None] | None, backlog: int
    ) -> None:
        listening = socket.create_server(("127.0.0.1", 0), backlog=backlog)
        self.port = int(listening.getsockname()[1])
        self.proxy = Proxy(asyncio.get_running_loop(), Sockets(listening), network, "test", on_decision, resolver)
        self._writers: list[asyncio.StreamWriter] = []

    async def close(self) -> None:
        """Cut everything, from both ends."""
        self.proxy.close()
        for writer in self._writers:
            writer.transport.abort()
        await until(lambda: self.proxy.connections == 0)

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers.append(writer)
        return reader, writer

    async def ask(self, data: bytes) -> bytes:
        """All that comes back."""
        reader, writer = await self.open()
        writer.write(data)
        return await reader.read()

    async def status(self, data: bytes) -> int:
        """Of the answer."""
        reader, writer = await self.open()
        writer.write(data)
        line = await reader.readline()
        writer.close()
        return int(line.split()[1])

    async def tunnel(self, target: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await self.open()
        writer.write(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"
        return reader, writer


@asynccontextmanager
async def way_out(
    network: Network,
    table: Mapping[str, list[str]] | None = None,
    *,
    resolver: Resolve | None = None,
    on_decision: Callable[[Decision], None] | None = None,
    backlog: int = 128,
) -> AsyncIterator[Way]:
    way = Way(network, resolver or names(table or {}), on_decision, backlog)
    try:
        yield way
    finally:
        await way.close()


@cache
def certificate(*hosts: str) -> tuple[str, str]:
    """A key with a certificate for these names by itself, and the certificate alone, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
    now = datetime.datetime(2024, 1, 1)
    built = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now.replace(year=2120))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public = built.public_bytes(serialization.Encoding.PEM).decode()
    return key.private_bytes(*form).decode() + public, public


def server_context(folder: Path, hosts: Iterable[str]) -> ssl.SSLContext:
    path = folder / "server.pem"
    path.write_text(certificate(*hosts)[0])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


def client_context(hosts: Iterable[str]) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=certificate(*hosts)[1])
