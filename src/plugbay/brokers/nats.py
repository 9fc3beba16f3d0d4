"""`NatsBroker`: hosts joined through a NATS server, with plain messages, each delivered at most once.

Owns the connection and its return, subjects, and the header by which a host knows its own words. An event is a message
whose subject is the prefix and its topic, and whose data is its JSON. What leaves and what is taken is the relay's.

At the server, each pattern of `topics` is one subscription: patterns mean the same there, so it sends what is shared
and nothing else, and nobody has to be told when a plugin begins or ends to listen.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Mapping

from plugbay.brokers.login import login_options
from plugbay.brokers.nats_client import NatsClient
from plugbay.brokers.relay import HOST, Relay
from plugbay.host.config.sections import BrokerConfig
from plugbay.host.events.bus import Bus
from plugbay.host.events.subjects import matches
from plugbay.host.journal import Journal
from plugbay.host.ports import BrokerStatus
from plugbay.host.stamps import new_uuid
from plugbay.model.text import printable

LOG = logging.getLogger("plugbay.broker")

HEADER = "Plugbay-Host"
"""Which host a message is from: one id for each start of a host."""

FIRST_PAUSE = 0.25
LONGEST_PAUSE = 15.0
"""Seconds before the server is tried again: doubled each time, and half of it by chance, so that hosts that lost it
together do not come back together. Back to the first after a connection that lasted longer than the longest."""

HEARTBEAT = 10.0
"""Seconds after which the server is asked whether it is there, and within which it has to answer."""

UNWRITTEN = 1 << 20
"""Bytes that may be on their way to the server; before more is sent, it says that it has read what there is."""

MAX_WORDS = 200
"""Bytes of what is told of a trouble: some of them are the server's own words."""

STOPPING = 2.0
"""Seconds in which what waits may still be sent when the host stops."""


class NatsBroker:
    """One host's connection with a NATS server."""

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
        """Join as soon as that is possible."""
        if not self._settings.topics:
            self._problem = "topics in [broker] names nothing that is shared"
            return
        self._wake, self._ending, self._joined = (asyncio.Event() for _ in range(3))  # of the loop that runs now
        self._problem = "joining"
        self._relay.wake = self._wake.set
        self._relay.open()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def joined(self, seconds: float) -> bool:
        """Wait for that; whether it came."""
        return await _within(seconds, self._joined)

    async def stop(self) -> None:
        """Send what waits, for a moment, and leave."""
        self._relay.close()
        self._ending.set()
        self._wake.set()
        task, self._task = self._task, None
        if task is not None:
            await asyncio.wait({task}, timeout=STOPPING)
            task.cancel()
            await asyncio.wait({task}, timeout=STOPPING)

    async def _run(self) -> None:
        loop, pause = asyncio.get_running_loop(), FIRST_PAUSE
        while not self._ending.is_set():
            began = loop.time()
            await self._connection()
            if loop.time() - began > LONGEST_PAUSE:
                pause = FIRST_PAUSE
            await _within(random.uniform(pause / 2, pause), self._ending)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _connection(self) -> None:
        """One connection, from its beginning to its end."""
        client = NatsClient(self._arrived, encrypted=self._settings.is_encrypted)
        try:
            await client.join(self._settings.url, self._forbidden, **self._login)
            for pattern in dict.fromkeys(self._settings.topics):
                await client.subscribe(self._settings.prefix + pattern)
            await client.flush(HEARTBEAT)  # type: ignore[arg-type]  # it takes any number
            self._found()
            await self._carry(client)
        except Exception as error:  # whatever it was, the next connection may go well
            client.trouble = client.trouble or error
        finally:
            await client.end()
            self._lost(client.trouble)

    async def _carry(self, client: NatsClient) -> None:
        """Send what leaves, until the connection is over, or the host stops and all is sent."""
        loop = asyncio.get_running_loop()
        over = loop.create_task(client.over.wait())
        over.add_done_callback(lambda _: self._wake.set())
        heard = loop.time()
        try:
            while not client.over.is_set():
                self._wake.clear()
                sending = await self._send(client)
                leaving = self._ending.is_set() and not sending
                if leaving or client.pending_data_size > UNWRITTEN or loop.time() - heard > HEARTBEAT:
                    await client.flush(HEARTBEAT)  # type: ignore[arg-type]
                    heard = loop.time()
                if leaving:
                    return
                if not sending:
                    await _within(HEARTBEAT, self._wake)
        finally:
            over.cancel()

    async def _send(self, client: NatsClient) -> bool:
        """Hand one event over; whether there was one."""
        leaving = self._relay.take()
        if leaving is None:
            return False
        if len(leaving.data) + len(self._own) + 64 > client.max_payload:
            self._relay.lost(f"{leaving.topic!r}: the server takes at most {client.max_payload:,} bytes")
            return True
        await client.publish(self._settings.prefix + leaving.topic, leaving.data, headers=self._header)
        self._relay.sent += 1
        return True

    def _arrived(self, pattern: str, subject: bytes, headers: bytes, data: bytes) -> None:
        """A message has come; from a subscription of this host's, so its subject has the prefix."""
        if self._own in headers:
            return
        try:
            topic = subject.decode().removeprefix(self._settings.prefix)
        except UnicodeDecodeError:
            self._relay.refuse("its subject is no UTF-8")
            return
        if pattern == self._settings.prefix + self._first(topic):  # one that several patterns cover comes as often
            self._relay.arrive(topic, data)

    def _first(self, topic: str) -> str:
        return next((pattern for pattern in self._settings.topics if matches(pattern, topic)), "")

    # What is said of it.

    def _found(self) -> None:
        self._joined.set()
        self._problem = None
        LOG.info("joined with other hosts through %s", self._settings.url)

    def _lost(self, trouble: Exception | None) -> None:
        was = self._joined.is_set()
        self._joined.clear()
        ending = self._ending.is_set()
        problem = "stopped" if ending else _words(trouble)
        if was and not ending:
            LOG.warning("lost %s: %s; this host goes on alone until it is back", self._settings.url, problem)
        elif problem != self._problem and not ending:
            LOG.warning("cannot join through %s yet: %s", self._settings.url, problem)
        self._problem = problem

    def _forbidden(self, text: str) -> None:
        self._journal.note(HOST, "broker_forbidden", text)


async def _within(seconds: float, event: asyncio.Event) -> bool:
    """Whether the event is set in time."""
    try:
        return await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False


def _words(trouble: Exception | None) -> str:
    if trouble is None:
        return "the server closed the connection"
    if isinstance(trouble, ConnectionError) and trouble.errno:  # each loop has its own words for these
        return os.strerror(trouble.errno)
    said = str(trouble).removeprefix("nats: ").encode("utf-8", "backslashreplace")[:MAX_WORDS]
    return printable(said) or type(trouble).__name__
