"""`Proxy`: the only way out of a confined plugin's network. Accepts, checks, connects, relays.

Three ways lead here: requests to the proxy, by programs that know of it; direct connections to any address, which the
kernel hands over; questions for names, which are answered with addresses that stand for them (`dns`). All are checked
alike. A direct connection that is refused is reset.

Limits the connections of one plugin: their number, their time, their buffers. A name is resolved once, each of its
addresses is checked, and the connection goes to a checked one. One request per connection, so that no second one can go
where the first may. A policy is never changed: another policy is another proxy. `request` parses, `decision` decides.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any

from plugbay.model import addresses
from plugbay.process.sandbox.egress import decision, dns
from plugbay.process.sandbox.egress.decision import HANDSHAKE, TLS_PORT, Decision, Hello, Refusal, read_hello
from plugbay.process.sandbox.egress.listener import IP_PKTINFO, Sockets
from plugbay.process.sandbox.egress.request import Body, Chunks, Counted, HeadParser, Request
from plugbay.process.sandbox.policy import Network, Reach

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""(host name, port) → every address of the name; raises OSError."""
MAX_LOOKUPS = 16
"""Names asked for at a time, per proxy. A name server may take half a minute, and each question holds a thread."""
THREAD = "plugbay-egress"


class Resolver:
    """Calls the system's resolver on daemon threads."""

    __slots__ = ("_slots",)

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(MAX_LOOKUPS)

    async def __call__(self, host: str, port: int) -> list[str]:
        await self._slots.acquire()
        # The caller may be cancelled; the slot is free when the thread has ended.
        asked = _on_thread(partial(_addresses, host, port))
        asked.add_done_callback(self._answered)
        return await asyncio.shield(asked)

    def _answered(self, asked: asyncio.Future[list[str]]) -> None:
        asked.exception()  # retrieved, so that asyncio does not report it
        self._slots.release()


def is_ours(address: str) -> bool:
    """Whether this machine has the address. Sends nothing."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            return bool(probe.getsockname()[0] == address)
    except OSError:  # no way there at all
        return False


def _addresses(host: str, port: int) -> list[str]:
    """Blocks."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(decided[4][0]) for decided in found))


def _on_thread(ask: Callable[[], list[str]]) -> asyncio.Future[list[str]]:
    """A future that is done when the thread is."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[list[str]] = loop.create_future()

    def run() -> None:
        try:
            settle = partial(done.set_result, ask())
        except Exception as error:
            settle = partial(done.set_exception, error)
        try:
            loop.call_soon_threadsafe(settle)
        except RuntimeError:  # the loop is closed
            return

    threading.Thread(target=run, name=THREAD, daemon=True).start()
    return done


MAX_CONNECTIONS = 64
"""At a time. More wait in the kernel's queue, which is short, and cost the host nothing."""
ACCEPT_SECONDS = 0.002
"""Between two connections: at most 500 a second, so that no plugin keeps the loop busy with them."""
RETRY_SECONDS = 1.0
"""After a connection could not be accepted, because the host has no descriptors left."""
HEAD_SECONDS = 10.0
"""From the connection to the end of the head, and from a tunnel to the end of its hello."""
RESOLVE_SECONDS = 10.0
CONNECT_SECONDS = 10.0
"""One address; then the next one of the name is tried."""
IDLE_SECONDS = 120.0
"""Without a byte in either direction."""
LINGER_SECONDS = 1.0
"""For a plugin to read a refusal while it still sends."""
MAX_ADDRESSES = 4
"""Addresses of one name that are tried; all of them are checked."""
QUERIES_AT_ONCE, QUERY_SECONDS = 4, 0.004
"""Datagrams with questions that are read in a row, and the time until the next ones: at most 1,000 a second."""
MAX_QUERIES = 32
"""Questions for names that are open at a time. More are dropped; resolvers ask again."""
MAX_DECISIONS = 256
"""Decisions that are kept."""
REPORTS_PER_SECOND = 20
"""Decisions that are reported; others are kept and counted, because a plugin can connect 500 times a second."""
PIECE = 64 << 10
"""Bytes that are taken from one side before they are given to the other: all that is held of a connection."""
LOCALHOST = "localhost"
PKTINFO = struct.Struct("=i4s4s")
"""Interface, source and destination of a datagram."""
PKTINFO_SPACE = socket.CMSG_SPACE(PKTINFO.size)
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
ALERT = bytes((21, 3, 3, 0, 2, 2, 49))
"""A TLS alert: fatal, access denied."""


class Proxy:
    """Serves one plugin until it is closed, on the given loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sockets: Sockets,
        network: Network,
        label: str,
        on_decision: Callable[[Decision], None] | None = None,
        resolver: Resolve | None = None,
    ) -> None:
        """Starts to accept on `sockets`, which are the proxy's from now on."""
        self.decisions: deque[Decision] = deque(maxlen=MAX_DECISIONS)
        self.unreported = 0
        """Decisions beyond `REPORTS_PER_SECOND`."""
        self.sent = 0
        self.received = 0
        """Bytes from the plugin to servers, and back."""
        self._loop = loop
        self._network = network
        self._label = label
        self._on_decision = on_decision
        self._second = (0, 0)
        self._resolve = resolver or Resolver()
        self._slots = asyncio.Semaphore(MAX_CONNECTIONS)
        self._connections: set[asyncio.Task[None]] = set()
        self._accepting: dict[socket.socket, asyncio.Task[None]] = {}
        self._accept_on(sockets.proxy, self._serve_request)
        if sockets.direct is not None:
            self._accept_on(sockets.direct, self._serve_direct)
        self._names = dns.Names()
        self._queries: set[asyncio.Task[None]] = set()
        self._dns = sockets.dns
        self._rest: asyncio.TimerHandle | None = None
        if self._dns is not None:
            self._dns.setblocking(False)
            self._read_queries()

    @property
    def connections(self) -> int:
        """How many are open now."""
        return len(self._connections)

    def close(self) -> None:
        """Stop accepting, and cancel open connections."""
        for listening in self._accepting:
            with suppress(OSError):  # it was closed before
                listening.shutdown(socket.SHUT_RDWR)
        if self._dns is not None:
            if self._rest is not None:
                self._rest.cancel()
            self._loop.remove_reader(self._dns)
            self._dns.close()
            self._dns = None
        for task in (*self._accepting.values(), *self._connections, *self._queries):
            task.cancel()

    def _accept_on(self, listening: socket.socket, serve: Callable[[socket.socket], Coroutine[Any, Any, None]]) -> None:
        listening.setblocking(False)
        accepting = self._accepting[listening] = self._loop.create_task(self._accept(listening, serve))
        # A task that is cancelled before its first step never gets to its own `finally`.
        accepting.add_done_callback(lambda _: listening.close())

    async def _accept(
        self, listening: socket.socket, serve: Callable[[socket.socket], Coroutine[Any, Any, None]]
    ) -> None:
        while True:
            await self._slots.acquire()
            client = await self._next(listening)
            task = self._loop.create_task(serve(client))
            self._connections.add(task)
            task.add_done_callback(partial(self._finished, client))
            await asyncio.sleep(ACCEPT_SECONDS)

    async def _next(self, listening: socket.socket) -> socket.socket:
        while True:
            try:
                client, _ = await self._loop.sock_accept(listening)
            except OSError:
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return client

    def _finished(self, client: socket.socket, task: asyncio.Task[None]) -> None:
        client.close()
        self._connections.discard(task)
        self._slots.release()

    async def _serve_request(self, client: socket.socket) -> None:
        """One connection to the proxy from its first byte to its last."""
        head = HeadParser()
        try:
            asked = await self._read_head(client, head)
            if isinstance(asked, Request):
                await self._handle(client, asked, head.rest)
            elif asked is not None:
                await self._refuse(client, asked)
        except OSError:
            _reset(client)

    async def _serve_direct(self, client: socket.socket) -> None:
        """One connection to another address, which goes where the plugin wanted it to go, or is reset."""
        try:
            host, port, pinned = self._destination(client)
            server = await self._open(host, port, pinned)
            if isinstance(server, Refusal):
                self._report(Decision(self._label, host, port, False, server.why, server.address))
                _reset(client)
                return
            with server, _resetting(server):
                await self._tunnel(client, server, host, port)
        except OSError:
            _reset(client)

    def _destination(self, client: socket.socket) -> tuple[str, int, list[str] | None]:
        """Host and port that a direct connection is for, and the addresses of a name."""
        address, port = client.getsockname()[:2]
        address = addresses.clean_host(address.removeprefix("::ffff:")) or ""
        named = self._names.find(address)
        if named is not None:
            return named[0], port, named[1]
        is_localhost = addresses.is_loopback(address) and decision.check_grant(self._network, LOCALHOST, port) is None
        return (LOCALHOST, port, [address]) if is_localhost else (address, port, None)

    def _read_queries(self) -> None:
        """Read what waits, up to a few questions, and rest: no plugin keeps the loop busy with them."""
        assert self._dns is not None
        self._loop.remove_reader(self._dns)
        taken = 0
        while taken < QUERIES_AT_ONCE and self._read_query(self._dns):
            taken += 1
        if taken:
            self._rest = self._loop.call_later(QUERY_SECONDS, self._read_queries)
        else:
            self._loop.add_reader(self._dns, self._read_queries)

    def _read_query(self, asked: socket.socket) -> bool:
        """Read one datagram, and answer it on a task, from the address that was asked; False: there is none."""
        try:
            data, ancillary, _, client = asked.recvmsg(dns.MAX_QUERY, PKTINFO_SPACE)
        except OSError:
            return False
        query = dns.read_query(data)
        if query is None or not ancillary or len(self._queries) >= MAX_QUERIES:
            return True
        _, _, at = PKTINFO.unpack(ancillary[0][2])

        async def respond() -> None:
            reply = await self._resolve_query(query)
            source = (socket.IPPROTO_IP, IP_PKTINFO, PKTINFO.pack(0, at, bytes(4)))
            with suppress(OSError):
                asked.sendmsg([reply], [source], 0, client)

        task = self._loop.create_task(respond())
        self._queries.add(task)
        task.add_done_callback(self._queries.discard)
        return True

    async def _resolve_query(self, query: dns.Query) -> bytes:
        """The answer to a question for a name. A question for anything but addresses of IPv4 is refused silently."""
        host = addresses.clean_host(query.name)
        if host is None or addresses.is_address(host):
            return query.answer(dns.NO_SUCH_NAME)
        refusal = decision.check_name(self._network, host)
        if query.kind != dns.IPV4:
            return query.answer(dns.NO_ERROR if refusal is None else dns.NO_SUCH_NAME)
        found = refusal or await self._find(host, 0)
        if isinstance(found, Refusal):
            self._report(Decision(self._label, host, 0, False, found.why))
            return query.answer(dns.SERVER_FAILURE if found.status == 504 else dns.NO_SUCH_NAME)
        return query.answer(dns.NO_ERROR, self._names.pin(host, found))

    async def _read_head(self, client: socket.socket, head: HeadParser) -> Request | Refusal | None:
        """None: the plugin closed the connection, or sent nothing."""
        asked = None
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                while asked is None and (data := await self._loop.sock_recv(client, PIECE)):
                    asked = head.feed(data)
        except TimeoutError:
            return Refusal(408, f"the request was not complete within {HEAD_SECONDS:g} s") if head.begun else None
        return asked

    async def _handle(self, client: socket.socket, asked: Request, rest: bytes) -> None:
        server = await self._open(asked.host, asked.port)
        if isinstance(server, Refusal):
            await self._refuse(client, server, asked)
            return
        with server, _resetting(server):
            if asked.path is None:
                await self._loop.sock_sendall(client, ESTABLISHED)
                await self._tunnel(client, server, asked.host, asked.port, rest)
            else:
                await self._forward(client, server, asked, rest)

    async def _open(self, host: str, port: int, pinned: list[str] | None = None) -> socket.socket | Refusal:
        """A connection to a host, if the plugin may connect to each of its addresses, which may be known already."""
        refusal = decision.check_grant(self._network, host, port)
        found = refusal or pinned or await self._find(host, port)
        if isinstance(found, Refusal):
            return found
        ours = frozenset(filter(is_ours, found))
        refusal = decision.check_address(self._network, host, port, found, ours)
        return refusal or await self._connect(host, port, found)

    async def _find(self, host: str, port: int) -> list[str] | Refusal:
        """Every address of a host."""
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                return [host] if addresses.is_address(host) else await self._resolve(host, port)
        except TimeoutError:
            return Refusal(504, f"{host} could not be resolved within {RESOLVE_SECONDS:g} s")
        except (OSError, UnicodeError) as error:
            may_pass = isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN
            return Refusal(504 if may_pass else 502, f"{host} cannot be resolved: {_reason(error)}")

    async def _connect(self, host: str, port: int, found: list[str]) -> socket.socket | Refusal:
        for address in found[:MAX_ADDRESSES]:
            pinned = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
            try:
                pinned.setblocking(False)
                pinned.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                async with asyncio.timeout(CONNECT_SECONDS):
                    await self._loop.sock_connect(pinned, (address, port))
                self._report(Decision(self._label, host, port, True, address=address))
                return pinned
            except TimeoutError:
                refusal = Refusal(504, f"{host} did not answer within {CONNECT_SECONDS:g} s", address)
            except OSError as error:
                refusal = Refusal(502, f"{host} cannot be reached: {_reason(error)}", address)
            except BaseException:
                pinned.close()
                raise
            pinned.close()
        return refusal

    async def _tunnel(
        self, client: socket.socket, server: socket.socket, host: str, port: int, rest: bytes = b""
    ) -> None:
        """Both ways until both sides have ended. `rest` has come from the plugin already."""
        async with _relay() as (both, idle):
            both.create_task(self._relay_up(client, server, host, port, rest, idle))
            both.create_task(self._relay_down(server, client, idle))

    async def _relay_up(
        self, client: socket.socket, server: socket.socket, host: str, port: int, data: bytes, idle: asyncio.Timeout
    ) -> None:
        """Relay from the plugin to the server, after a check of the first bytes."""
        if self._network.reach is Reach.LISTED:
            data = await self._read_first_bytes(client, host, port, data)
        data = data or await self._loop.sock_recv(client, PIECE)
        while data:
            await self._loop.sock_sendall(server, data)
            self.sent += len(data)
            _restart_idle(idle)
            data = await self._loop.sock_recv(client, PIECE)
        server.shutdown(socket.SHUT_WR)

    async def _read_first_bytes(self, client: socket.socket, host: str, port: int, data: bytes) -> bytes:
        """The first bytes of a tunnel; raises ConnectionAbortedError if they name another server."""
        must = port == TLS_PORT
        async with asyncio.timeout(HEAD_SECONDS if must else None):
            while must or not data or data[0] == HANDSHAKE:
                hello = read_hello(data)
                if isinstance(hello, Hello):
                    refusal = decision.check_server_name(hello, host)
                    return data if refusal is None else self._cut(client, host, port, refusal)
                if hello is not None:
                    return self._cut(client, host, port, Refusal(403, f"the tunnel to {host}: {hello}"))
                piece = await self._loop.sock_recv(client, PIECE)
                if not piece:
                    break
                data += piece
        if must or data[:1] == bytes((HANDSHAKE,)):  # it ended in the middle
            raise ConnectionAbortedError
        return data

    def _cut(self, client: socket.socket, host: str, port: int, refusal: Refusal) -> bytes:
        """End a tunnel in words that a TLS library understands."""
        self._report(Decision(self._label, host, port, False, refusal.why))
        client.send(ALERT)
        client.shutdown(socket.SHUT_WR)
        raise ConnectionAbortedError

    async def _forward(self, client: socket.socket, server: socket.socket, asked: Request, rest: bytes) -> None:
        """One request and its answer. The server ends the answer by closing, as it was told to."""
        body: Body = Chunks() if asked.chunked else Counted(asked.length or 0)
        await self._loop.sock_sendall(server, asked.encoded())
        async with _relay() as (both, idle):
            sending = both.create_task(self._send(client, server, body, rest, idle))
            await self._relay_down(server, client, idle)
            sending.cancel()

    async def _send(
        self, client: socket.socket, server: socket.socket, body: Body, data: bytes, idle: asyncio.Timeout
    ) -> None:
        """The body up to its end; whatever the plugin sends after it is never read."""
        while True:
            part = body.feed(data)
            if part:
                await self._loop.sock_sendall(server, part)
                self.sent += len(part)
                _restart_idle(idle)
            if body.done:
                return
            data = b"" if body.problem else await self._loop.sock_recv(client, PIECE)
            if not data:
                raise ConnectionAbortedError

    async def _relay_down(self, server: socket.socket, client: socket.socket, idle: asyncio.Timeout) -> None:
        """Relay from the server to the plugin."""
        while data := await self._loop.sock_recv(server, PIECE):
            await self._loop.sock_sendall(client, data)
            self.received += len(data)
            _restart_idle(idle)
        client.shutdown(socket.SHUT_WR)

    async def _refuse(self, client: socket.socket, refusal: Refusal, asked: Request | None = None) -> None:
        """Say why. The words are the reason phrase as well: of a refused tunnel most libraries show nothing else."""
        host, port = ("", 0) if asked is None else (asked.host, asked.port)
        self._report(Decision(self._label, host, port, False, refusal.why, refusal.address))
        text = f"plugbay: {refusal.why}\n".encode()
        head = f"HTTP/1.1 {refusal.status} {refusal.why}\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n"
        head += "Proxy-Status: plugbay; error=http_request_denied\r\n"  # RFC 9209: no server sent this response
        try:
            async with asyncio.timeout(LINGER_SECONDS):
                await self._loop.sock_sendall(client, head.encode() + b"Connection: close\r\n\r\n" + text)
                client.shutdown(socket.SHUT_WR)
                while await self._loop.sock_recv(client, PIECE):
                    continue
        except TimeoutError:
            return

    def _report(self, decided: Decision) -> None:
        self.decisions.append(decided)
        second, count = self._second
        now = int(self._loop.time())
        self._second = (now, count + 1 if now == second else 1)
        if self._on_decision is None:
            return
        if self._second[1] > REPORTS_PER_SECOND:
            self.unreported += 1
            return
        self._loop.call_soon(self._on_decision, decided)  # a failing callback does not end the connection


@asynccontextmanager
async def _relay() -> AsyncIterator[tuple[asyncio.TaskGroup, asyncio.Timeout]]:
    """Tasks that end together, at the latest when nothing has moved for too long; raises OSError when one fails."""
    failed = False
    try:
        async with asyncio.timeout(IDLE_SECONDS) as idle, asyncio.TaskGroup() as both:
            yield both, idle
    except* OSError:
        failed = True
    if failed:
        raise ConnectionAbortedError


@contextmanager
def _resetting(server: socket.socket) -> Iterator[None]:
    """Close the server's side by reset when the connection fails."""
    try:
        yield
    except OSError:
        _reset(server)
        raise


def _restart_idle(idle: asyncio.Timeout) -> None:
    """Restart the idle timeout, unless it has expired."""
    if not idle.expired():
        idle.reschedule(asyncio.get_running_loop().time() + IDLE_SECONDS)


def _reset(connection: socket.socket) -> None:
    """Close by reset, so that the plugin does not take it for the end of a response."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _reason(error: OSError | UnicodeError) -> str:
    """The text of the system: the text of the loop would contain the address."""
    if isinstance(error, socket.gaierror):
        return str(error.strerror).lower()
    code = getattr(error, "errno", None)
    return os.strerror(code).lower() if code else "it has no such name"
