"""`Wire`: the connection of one gateway or node to NATS, made again when it ends.

No buffer outlives a connection: a message that was not sent when it ended is lost, and its sender waits for no answer.
Otherwise a call could be carried out after its caller has given up.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from time import monotonic

from nats import errors
from nats.aio.subscription import Subscription

from plugbay.brokers.nats import PENDING_BYTES, NatsClient, describe_error, login_options
from plugbay.host.config.sections import ClusterConfig
from plugbay.link.cancellation import end_tasks

LOG = logging.getLogger("plugbay.cluster")

MIN_BACKOFF = 0.05
MAX_BACKOFF = 1.0
"""Seconds until the next attempt to connect: doubled after each failed one, half of it random."""

CHECK_SECONDS = 2.0
"""Interval of the check that the server answers."""

ANSWER_SECONDS = 5.0
"""Time for the answer of the server. A connection without one is over."""

EARLY_SECONDS = 0.25
"""So long, messages wait for the connection to be made. Then they are lost: their senders may have asked elsewhere."""

MAX_EARLY = 256
"""Messages that wait for a connection."""

NO_RESPONDERS = b"NATS/1.0 503"
"""The header with which the server reports that no one listens."""

Handler = Callable[[bytes, bytes, bytes], object]
"""Called with subject, headers and data of a message."""


class Wire:
    """A connection to one of the NATS servers of a cell."""

    def __init__(self, settings: ClusterConfig, environ: Mapping[str, str], handlers: Mapping[str, Handler]) -> None:
        """`handlers` by subscribed subject. Raises `ConfigInvalid` when the credentials cannot be used."""
        self._settings = settings
        self._login = login_options(settings, environ, section="cluster")
        self._handlers = dict(handlers)
        self._subscriptions: dict[str, Subscription] = {}
        """Of the present connection, by subject."""
        self._subscribing = asyncio.Lock()
        self._queues: dict[str, str] = {}
        self._client: NatsClient | None = None
        self._early: list[tuple[float, tuple[str, bytes, bytes, bytes]]] = []
        """Messages that arrived, and when, before the connection was made: no answer could be sent yet."""
        self._task: asyncio.Task[None] | None = None
        self._joined = asyncio.Event()
        self.on_up: Callable[[], object] = lambda: None
        """Called after each connection is made."""
        self.on_down: Callable[[], object] = lambda: None
        """Called after each connection that was made has ended."""
        self.problem = "not connected yet"
        """Why there is no connection."""
        self.forbidden = ""
        """The last refusal of the server to publish or to listen, if any."""

    @property
    def is_up(self) -> bool:
        return self._joined.is_set()

    @property
    def max_payload(self) -> int:
        """The size limit of a message."""
        return 0 if self._client is None else self._client.max_payload

    def add(self, subject: str, handler: Handler, queue: str = "") -> None:
        """Subscribe to one more subject; of all listeners in a queue, one gets each message. Call it before `begin`."""
        self._handlers[subject] = handler
        self._queues[subject] = queue

    def begin(self) -> None:
        """Start connecting in the background."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def joined(self, seconds: float | None = None) -> bool:
        """Wait for a connection; False on timeout, if there is one."""
        try:
            return await asyncio.wait_for(self._joined.wait(), seconds)
        except TimeoutError:
            return False

    async def publish(self, subject: str, data: bytes, reply: str = "") -> bool:
        """Send a message, and wait while too much waits for the server to read; False when it was not sent."""
        sent, client = self.post(subject, data, reply), self._client
        if client is not None and client.unsent > PENDING_BYTES:
            await client.wait_sent()
        return sent

    def post(self, subject: str, data: bytes, reply: str = "") -> bool:
        """Send a message with the others of this turn of the loop; False when it was not sent."""
        if self._client is None or not self.is_up:
            return False
        try:
            self._client.post(subject, data, reply)
        except errors.Error:
            return False
        return True

    @property
    def unsent(self) -> int:
        """Bytes that wait for the server to read."""
        return 0 if self._client is None else self._client.unsent

    async def listen(self, subject: str, handler: Handler) -> bool:
        """Subscribe, over all connections; False when there is none, or it ends meanwhile."""
        self._handlers[subject] = handler
        return await self._follow_handlers(self._client) and await self.round_trip()

    async def ignore(self, subject: str) -> None:
        """End a subscription."""
        self._handlers.pop(subject, None)
        await self._follow_handlers(self._client)

    async def _follow_handlers(self, client: NatsClient | None) -> bool:
        """Subscribe to what has a handler, and to nothing else; False when there is no connection."""
        if client is None:
            return False
        try:
            async with self._subscribing:
                for subject in self._handlers.keys() - self._subscriptions.keys():
                    self._subscriptions[subject] = await client.subscribe(subject, queue=self._queues.get(subject, ""))
                for subject in self._subscriptions.keys() - self._handlers.keys():
                    await self._subscriptions.pop(subject).unsubscribe()
        except (errors.Error, OSError):
            return False
        return True

    async def round_trip(self) -> bool:
        """Wait until all earlier messages, in both directions, have arrived; False when the connection ends first."""
        client = self._client
        if client is None:
            return False
        try:
            await client.round_trip(ANSWER_SECONDS)
        except (errors.Error, OSError):
            return False
        return client is self._client

    async def stop_listening(self) -> None:
        """Handle the messages that are on their way, and get no further ones."""
        if self._client is not None:
            try:
                await self._client.stop_listening(ANSWER_SECONDS)
            except (errors.Error, OSError) as error:
                LOG.debug("stopped listening: %s", error)

    async def stop(self) -> None:
        """Disconnect."""
        await self.round_trip()
        task, self._task = self._task, None
        if task is not None:
            await end_tasks([task])

    async def _run(self) -> None:
        pause, urls = MIN_BACKOFF, cycle(_shuffled(self._settings.urls))
        while True:
            pause = MIN_BACKOFF if await self._connection(next(urls)) else min(2 * pause, MAX_BACKOFF)
            await asyncio.sleep(random.uniform(pause / 2, pause))

    async def _connection(self, url: str) -> bool:
        """One connection, from start to end; whether it was made."""
        client = NatsClient(self._handle, encrypted=self._settings.is_encrypted)
        try:
            self._subscriptions, self._early, self.forbidden = {}, [], ""
            await client.join(url, self._note_forbidden, **self._login)
            await self._follow_handlers(client)
            await client.round_trip(ANSWER_SECONDS)
            self._client = client
            self._joined.set()
            for arrived, message in self._early:
                if monotonic() - arrived < EARLY_SECONDS:
                    self._handle(*message)
            await self._follow_handlers(client)
            LOG.info("connected to %s", url)
            self.on_up()
            await self._watch(client)
        except Exception as error:  # whatever failed, the next connection may succeed
            client.connection_error = client.connection_error or error
        finally:
            was_up, self._client = self._joined.is_set(), None
            self._joined.clear()
            problem = "stopped" if self._task is None else describe_error(client.connection_error)
            if self._task is not None and (problem != self.problem or was_up):
                LOG.warning("not connected to %s: %s", url, problem)
            self.problem = problem
            if was_up:
                self.on_down()
            await client.end()
        return was_up

    async def _watch(self, client: NatsClient) -> None:
        """Return when the connection is over; raises when the server does not answer."""
        while not client.over.is_set():
            try:
                await asyncio.wait_for(client.over.wait(), CHECK_SECONDS)
            except TimeoutError:
                await client.round_trip(ANSWER_SECONDS)

    def _handle(self, pattern: str, subject: bytes, headers: bytes, data: bytes) -> None:
        if self._client is None:
            if len(self._early) < MAX_EARLY:
                self._early.append((monotonic(), (pattern, subject, headers, data)))
            return
        try:
            handler = self._handlers.get(pattern)
            if handler is not None:
                handler(subject, headers, data)
        except Exception:  # one message must not cost all calls their connection
            LOG.exception("a message was not handled")

    def _note_forbidden(self, text: str) -> None:
        self.forbidden = text
        LOG.error("NATS refuses: %s", text)


def _shuffled(urls: Sequence[str]) -> list[str]:
    """So that gateways and nodes spread over the servers."""
    return random.sample(urls, len(urls))
