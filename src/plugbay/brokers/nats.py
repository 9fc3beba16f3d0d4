"""`NatsBroker`: joins hosts through a NATS server, with plain messages, delivered at most once.

An event is a message with the subject prefix + topic and JSON data; a header with the host's id lets a host skip its
own messages. Each pattern of `topics` is one subscription: NATS and plugbay patterns mean the same. `Relay` decides
which events are sent and accepted. No error message contains a secret.

`NatsClient` is the only place that depends on private names of nats-py.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import os
import random
import re
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nats import errors
from nats.aio.client import Client
from nats.aio.transport import TcpTransport

from plugbay.brokers.relay import HOST, Relay
from plugbay.host.config.sections import BrokerConfig, NatsLogin
from plugbay.host.disk.secret_files import others_can_read
from plugbay.host.events.bus import Bus
from plugbay.host.journal import Journal
from plugbay.host.ports import BrokerStatus
from plugbay.host.stamps import new_uuid
from plugbay.model.errors import ConfigInvalid, Problem
from plugbay.model.text import printable
from plugbay.model.topics import matches

MAX_FILE = 64 << 10
"""Size limit of a credentials file; a JWT with many permissions has a few thousand bytes."""

SEED_BYTES = 36
"""Bytes of a seed: 2 for its type, 32 for the key, 2 for the checksum."""

_JWT = re.compile(r"-----BEGIN NATS USER JWT-----\s+(\S+)\s+-+END NATS USER JWT-+")
_SEED = re.compile(r"-----BEGIN USER NKEY SEED-----\s+(SU[A-Z2-7]+)\s+-+END USER NKEY SEED-+")

CONNECT_SECONDS = 5
"""Seconds for each step of connecting: TCP, TLS, handshake."""

CLOSE_SECONDS = 2.0
"""Seconds for cleaning up after an abort."""

PENDING_BYTES = 4 << 20
"""Buffer of nats-py. Our own queue comes first, so it never fills up."""

WRITE_BYTES = 16 << 10
"""Posted messages of so many bytes are written before the turn of the loop ends: their receivers begin meanwhile."""

TURN = 32
"""Messages that are handled before other tasks run."""

_NO_SUBJECT = re.compile(r"\s|\A\Z")

PING_NEVER = 10**9
"""Disables the pings of nats-py: ours also limit the time for an answer."""

LOG = logging.getLogger("plugbay.broker")

HEADER = "Plugbay-Host"
"""Header with the id of the sending host, new at each start."""

MIN_BACKOFF = 0.1
MAX_BACKOFF = 5.0
"""Seconds until the next attempt: doubled after each failed one, half of it random, so that hosts do not reconnect all
at once. A connection that was joined starts again with the minimum, however short it was."""

HEARTBEAT = 10.0
"""Interval of pings, and time limit for the answer."""

MAX_UNCONFIRMED = 1 << 20
"""Bytes that may be unconfirmed; before more is sent, the server must answer a ping."""

MAX_ERROR_TEXT = 200
"""Bytes of an error text, which may come from the server."""

STOP_SECONDS = 2.0
"""Seconds for sending queued events when the host stops."""


def login_options(
    settings: NatsLogin, environ: Mapping[str, str], source: str = "plugbay.toml", section: str = "broker"
) -> dict[str, Any]:
    """Credentials as options for `connect` of nats-py; raises `ConfigInvalid` when they are missing or unusable."""
    try:
        return {**_identity(settings, environ), **_trust(settings)}
    except _UnusableCredentials as error:
        raise ConfigInvalid(source, [Problem("unusable_credentials", f"{section}.{error.field}", str(error))]) from None


class _UnusableCredentials(Exception):
    def __init__(self, field: str, text: str) -> None:
        self.field = field
        super().__init__(text)


def _identity(settings: NatsLogin, environ: Mapping[str, str]) -> dict[str, Any]:
    if settings.token_env is not None:
        return {"token": _variable("token_env", settings.token_env, environ)}
    if settings.password_env is not None:
        return {"user": settings.user, "password": _variable("password_env", settings.password_env, environ)}
    if settings.credentials is not None:
        jwt, key = _credentials(Path(settings.credentials))
        return {"user_jwt_cb": lambda: bytearray(jwt), "signature_cb": _signer(key)}
    return {}


def _trust(settings: NatsLogin) -> dict[str, Any]:
    if not settings.is_encrypted:
        return {}
    try:
        return {"tls": ssl.create_default_context(cafile=settings.ca_file)}
    except (OSError, ValueError) as error:
        raise _UnusableCredentials("ca_file", f"{settings.ca_file} contains no usable certificates: {error}") from None


def _variable(field: str, name: str, environ: Mapping[str, str]) -> str:
    """The value of a variable; or, without it, the content of the file that `NAME_FILE` names."""
    value, file = environ.get(name, "").strip(), environ.get(f"{name}_FILE", "")
    if not value and file:
        try:
            value = Path(file).read_text("utf-8", "replace").strip()
        except OSError as error:
            text = f"{file}, which {name}_FILE names, cannot be read: {error.strerror}"
            raise _UnusableCredentials(field, text) from None
    if value and value.isprintable():
        return value
    wrong = "contains characters that cannot be printed" if value else "is not set, or empty"
    raise _UnusableCredentials(field, f"the environment variable {name} {wrong}")


def _credentials(path: Path) -> tuple[bytes, Ed25519PrivateKey]:
    """JWT and key of a credentials file; refused when others can read it."""
    try:
        with open(path, "rb") as file:
            exposed = others_can_read(os.fstat(file.fileno()))
            text = file.read(MAX_FILE + 1).decode("ascii", "replace")
    except OSError as error:
        raise _UnusableCredentials("credentials", f"{path} cannot be read: {error.strerror}") from None
    if exposed:
        raise _UnusableCredentials("credentials", f"other users can read {path}; run: chmod 600 {path}")
    jwt, seed = _JWT.search(text), _SEED.search(text)
    if len(text) > MAX_FILE or jwt is None or seed is None:
        raise _UnusableCredentials("credentials", f"{path} has no NATS credentials with a user's JWT and seed")
    key = _key(seed[1])
    if key is None:
        raise _UnusableCredentials("credentials", f"the seed in {path} is damaged; create the file again")
    return jwt[1].encode(), key


def _key(seed: str) -> Ed25519PrivateKey | None:
    """The key of a NATS seed; None when the checksum is wrong."""
    try:
        raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
    except binascii.Error:
        return None
    if len(raw) != SEED_BYTES or binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        return None
    return Ed25519PrivateKey.from_private_bytes(raw[2:-2])


def _signer(key: Ed25519PrivateKey) -> Callable[[str], bytes]:
    """Signs the nonce of the server."""
    return lambda nonce: base64.b64encode(key.sign(nonce.encode()))


MessageHandler = Callable[[str, bytes, bytes, bytes], object]
"""Called with the subscribed subject, the message's subject, headers and data. Must not raise."""


class NatsTransport(TcpTransport):
    """The TCP transport of nats-py; reports the end of the connection, can be aborted, and enforces TLS."""

    def __init__(self, ended: Callable[[Exception | None], object], *, encrypted: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._ended = ended
        self._lacks_tls = encrypted

    def __bool__(self) -> bool:
        return True  # otherwise the client makes a transport of its own

    async def connect_tls(self, *args: Any, **options: Any) -> None:
        await super().connect_tls(*args, **options)
        self._lacks_tls = False

    def write(self, payload: bytes) -> None:
        if self._lacks_tls:
            raise errors.Error("the server offers no TLS, but the URL tls:// requires it")
        self.writelines([payload])

    def writelines(self, payload: list[bytes]) -> None:
        with suppress(RuntimeError):  # uvloop has closed the connection, and `read` reports it
            super().writelines(payload)  # type: ignore[no-untyped-call]

    async def drain(self) -> None:
        with suppress(OSError):  # `read` reports it
            await super().drain()  # type: ignore[no-untyped-call]

    async def read(self, buffer_size: int) -> bytes:
        try:
            data: bytes = await super().read(buffer_size)
        except BaseException as error:
            self._ended(error if isinstance(error, Exception) else None)
            raise
        if not data:
            self._ended(errors.UnexpectedEOF())
        return data

    @property
    def unsent(self) -> int:
        """Bytes that the socket has not taken yet."""
        return 0 if self._io_writer is None else self._io_writer.transport.get_write_buffer_size()

    def abort(self) -> None:
        """Close at once, dropping unsent data."""
        if self._io_writer is not None:
            self._io_writer.transport.abort()


class NatsClient(Client):
    """One connection; it does not reconnect.

    Written for nats-py 2.16.0, whose version is pinned exactly, because these needs have no documented option:
    - `_transport` is set before `connect`. nats-py waits for a server that reads nothing before it reports the end of
      a connection, and `tls://` does not require TLS; a transport of our own solves both.
    - `_send_unsubscribe` is called without forgetting the subscription, so that messages on their way are handled.
    - `_process_pong`, with `_pongs`, is replaced. nats-py stops reading at the answer to a ping that was given up.
    - `_process_msg`, with `_subs`, is replaced. nats-py stops reading at a subject that is not UTF-8, and any client of
      the server can send one. It also lets other tasks run after each message, so that 64 answers that come together
      would lead to 64 single writes.

    `publish` of nats-py wakes a task and writes for each message; `post` writes once for all of a turn of the loop.
    """

    def __init__(self, arrived: MessageHandler, *, encrypted: bool) -> None:
        super().__init__()
        self._handle_message = arrived
        self._transport = self._connection = NatsTransport(self._note_end, encrypted=encrypted)
        self.over = asyncio.Event()
        """Set when the connection is over."""
        self.connection_error: Exception | None = None
        """The last error."""
        self._posts: list[bytes] = []
        self._posted_bytes = 0
        self._handled = 0

    async def join(self, url: str, refused: Callable[[str], object], **options: Any) -> None:
        """Connect once; raises the exceptions of nats-py. `refused` is called with permission errors."""

        async def note_error(error: Exception) -> None:
            if "permissions violation" in str(error):
                refused(str(error))
            else:
                self.connection_error = error

        async def note_closed() -> None:
            self.over.set()

        await self.connect(
            url,
            error_cb=note_error,
            closed_cb=note_closed,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=CONNECT_SECONDS,
            ping_interval=PING_NEVER,
            no_echo=True,
            pending_size=PENDING_BYTES,
            **options,
        )

    def post(self, subject: str, data: bytes, reply: str = "") -> None:
        """Publish, in one write with the other messages of this turn of the loop; raises the exceptions of nats-py."""
        if _NO_SUBJECT.search(subject) or (reply and _NO_SUBJECT.search(reply)):
            raise errors.BadSubjectError
        if not self.is_connected or self.over.is_set():
            raise errors.ConnectionClosedError
        if len(data) > self.max_payload:
            raise errors.MaxPayloadError
        if not self._posts:
            asyncio.get_running_loop().call_soon(self._write_posts)
        self._posts.append(b"PUB %b %d\r\n%b\r\n" % (f"{subject} {reply}".encode(), len(data), data))
        self._posted_bytes += len(data)
        if self._posted_bytes >= WRITE_BYTES:
            self._write_posts()

    @property
    def unsent(self) -> int:
        """Bytes of posted messages that the socket has not taken yet."""
        return self._posted_bytes + self._connection.unsent

    async def wait_sent(self) -> None:
        """Wait until the socket has taken nearly all of the posted messages, or the connection is over."""
        self._write_posts()
        await self._connection.drain()

    def _write_posts(self) -> None:
        posts, self._posts, self._posted_bytes = self._posts, [], 0
        if posts and self.is_connected:
            self._connection.write(b"".join(posts))

    async def stop_listening(self, seconds: float) -> None:
        """End all subscriptions; all messages that the server has sent for them have been handled afterwards."""
        for sid in list(self._subs):
            await self._send_unsubscribe(sid)
        await self.round_trip(seconds)

    async def round_trip(self, seconds: float) -> None:
        """Wait until the server has handled all that was sent; raises the exceptions of nats-py.

        The ping of `flush` overtakes messages that wait to be written. They are written before a second one.
        """
        self._write_posts()
        for _ in range(2):
            await self.flush(seconds)  # type: ignore[arg-type]  # it takes any number

    async def end(self) -> None:
        """Abort the connection, dropping unsent data."""
        self._posts = []
        self._connection.abort()
        with suppress(Exception):  # errors of an aborted connection do not matter
            await asyncio.wait_for(self.close(), CLOSE_SECONDS)

    def _note_end(self, error: Exception | None) -> None:
        self.connection_error = error or self.connection_error
        self.over.set()

    async def _process_pong(self) -> None:
        if self._pongs and self._pongs[0].done():
            self._pongs.pop(0)
        else:
            await super()._process_pong()

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        subscription = self._subs.get(sid)
        if subscription is not None:
            self._handle_message(subscription.subject, subject, headers or b"", data)
        self._handled += 1
        if self._handled % TURN == 0:
            await asyncio.sleep(0)  # let other tasks run during a flood of messages


class NatsBroker:
    """The connection of one host to a NATS server."""

    def __init__(self, settings: BrokerConfig, bus: Bus, journal: Journal, environ: Mapping[str, str]) -> None:
        """Raises `ConfigInvalid` when the credentials cannot be used."""
        self._settings = settings
        self._login = login_options(settings, environ)
        self._relay = Relay(settings, bus, journal)
        self._journal = journal
        self._header = {HEADER: new_uuid()}
        self._own = f"{HEADER}: {self._header[HEADER]}\r\n".encode()
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._ending = asyncio.Event()
        self._joined = asyncio.Event()
        self._problem: str | None = "not begun"

    @property
    def status(self) -> BrokerStatus:
        counts = (self._relay.sent, self._relay.received, self._relay.dropped, self._relay.refused)
        return BrokerStatus(self._settings.url, self._joined.is_set(), self._problem, *counts)

    def begin(self) -> None:
        """Start connecting in the background."""
        if not self._settings.topics:
            self._problem = "topics in [broker] is empty, so nothing is shared"
            return
        self._wake, self._ending, self._joined = (asyncio.Event() for _ in range(3))  # needs the running loop
        self._problem = "joining"
        self._relay.wake = self._wake.set
        self._relay.open()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def joined(self, seconds: float) -> bool:
        """Wait until connected; False on timeout."""
        return await _wait_for(seconds, self._joined)

    async def stop(self) -> None:
        """Send queued events for a moment, then disconnect."""
        self._relay.close()
        self._ending.set()
        self._wake.set()
        task, self._task = self._task, None
        if task is not None:
            await asyncio.wait({task}, timeout=STOP_SECONDS)
            task.cancel()
            await asyncio.wait({task}, timeout=STOP_SECONDS)

    async def _run(self) -> None:
        pause = MIN_BACKOFF
        while not self._ending.is_set():
            if await self._connection():
                pause = MIN_BACKOFF
            await _wait_for(random.uniform(pause / 2, pause), self._ending)
            pause = min(2 * pause, MAX_BACKOFF)

    async def _connection(self) -> bool:
        """Run one connection from start to end; whether it was joined."""
        client = NatsClient(self._handle_message, encrypted=self._settings.is_encrypted)
        try:
            await client.join(self._settings.url, self._note_forbidden, **self._login)
            for pattern in dict.fromkeys(self._settings.topics):
                await client.subscribe(self._settings.prefix + pattern)
            await client.round_trip(HEARTBEAT)
            self._connected()
            await self._send_events(client)
        except Exception as error:  # whatever failed, the next connection may succeed
            client.connection_error = client.connection_error or error
        finally:
            await client.end()
            was_joined = self._joined.is_set()
            self._disconnected(client.connection_error)
        return was_joined

    async def _send_events(self, client: NatsClient) -> None:
        """Send events until the connection ends, or until the host stops and the queue is empty."""
        loop = asyncio.get_running_loop()
        over = loop.create_task(client.over.wait())
        over.add_done_callback(lambda _: self._wake.set())
        heard = loop.time()
        try:
            while not client.over.is_set():
                self._wake.clear()
                sending = await self._send(client)
                leaving = self._ending.is_set() and not sending
                if leaving or client.pending_data_size > MAX_UNCONFIRMED or loop.time() - heard > HEARTBEAT:
                    await client.round_trip(HEARTBEAT)
                    heard = loop.time()
                if leaving:
                    return
                if not sending:
                    await _wait_for(HEARTBEAT, self._wake)
        finally:
            over.cancel()

    async def _send(self, client: NatsClient) -> bool:
        """Send one event; False when the queue is empty."""
        leaving = self._relay.take()
        if leaving is None:
            return False
        if len(leaving.data) + len(self._own) + 64 > client.max_payload:
            self._relay.drop(f"{leaving.topic!r}: the server takes at most {client.max_payload:,} bytes")
            return True
        await client.publish(self._settings.prefix + leaving.topic, leaving.data, headers=self._header)
        self._relay.sent += 1
        return True

    def _handle_message(self, pattern: str, subject: bytes, headers: bytes, data: bytes) -> None:
        """Handle a message of one of our subscriptions; its subject has the prefix."""
        if self._own in headers:
            return
        try:
            topic = subject.decode().removeprefix(self._settings.prefix)
        except UnicodeDecodeError:
            self._relay.refuse("its subject is not UTF-8")
            return
        # A message that matches several patterns arrives several times.
        if pattern == self._settings.prefix + self._first_pattern(topic):
            self._relay.receive(topic, data)

    def _first_pattern(self, topic: str) -> str:
        return next((pattern for pattern in self._settings.topics if matches(pattern, topic)), "")

    # Status and logs.

    def _connected(self) -> None:
        self._joined.set()
        self._problem = None
        LOG.info("joined with other hosts through %s", self._settings.url)

    def _disconnected(self, error: Exception | None) -> None:
        was = self._joined.is_set()
        self._joined.clear()
        ending = self._ending.is_set()
        problem = "stopped" if ending else describe_error(error)
        if was and not ending:
            LOG.warning("lost %s: %s; this host works alone until the server is back", self._settings.url, problem)
        elif problem != self._problem and not ending:
            LOG.warning("cannot join through %s yet: %s", self._settings.url, problem)
        self._problem = problem

    def _note_forbidden(self, text: str) -> None:
        self._journal.note(HOST, "broker_forbidden", text)


async def _wait_for(seconds: float, event: asyncio.Event) -> bool:
    """Wait for the event; False on timeout."""
    try:
        return await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False


def describe_error(error: Exception | None) -> str:
    """Why a connection ended or was not made."""
    if error is None:
        return "the server closed the connection"
    if isinstance(error, ConnectionError) and error.errno:  # each event loop words these differently
        return os.strerror(error.errno)
    said = str(error).removeprefix("nats: ").encode("utf-8", "backslashreplace")[:MAX_ERROR_TEXT]
    return printable(said) or type(error).__name__
