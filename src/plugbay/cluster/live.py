"""`Live`: events of invocations and runs between gateways, while they happen; stores nothing.

    async with live.watching("org_1"):      on_event gets the events of this org that other gateways publish
        ...
    live.publish("org_1", "run", "run_1", body)

A gateway publishes always, and listens for an org only while it has a watcher. An event that cannot be sent at once is
dropped. Events are numbered for each org, so a listener notices a gap, and reports it to `on_lost`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal

import msgspec

from plugbay.cluster import envelope
from plugbay.cluster.envelope import LiveEvent
from plugbay.cluster.subjects import Subjects
from plugbay.cluster.wire import Wire
from plugbay.wire.json_gate import Malformed

LOG = logging.getLogger("plugbay.cluster")

MAX_EVENT = 256 << 10
"""Bytes of an event; a larger one is dropped."""

MAX_UNSENT = 1 << 20
"""Bytes that wait for the NATS server to read; events beyond that are dropped. Calls have more room."""

Kind = Literal["invocation", "run"]


class Sent(msgspec.Struct):
    """The events of this gateway about one org."""

    count: int = 0
    lost: int = 0
    """The last of them, as far as they were dropped."""


class Live:
    """The live events of one gateway."""

    def __init__(self, wire: Wire, subjects: Subjects, gateway: str) -> None:
        self._wire = wire
        self._subjects = subjects
        self._gateway = gateway
        self._sent: dict[str, Sent] = {}
        self._next: dict[tuple[str, str], int] = {}
        """By gateway and org: the number of its next event, once the first one was heard."""
        self._watchers: Counter[str | None] = Counter()
        """By org; None: watchers of all orgs."""
        self.on_event: Callable[[Kind, str, bytes], object] = lambda kind, id, body: None
        """Called with each event of another gateway: its kind, the id of the invocation or run, the body."""
        self.on_lost: Callable[[str | None, int | None], object] = lambda org, number: None
        """Called with the org, or None for all, and the number of lost events, if it is known."""

    @asynccontextmanager
    async def watching(self, org: str | None) -> AsyncIterator[bool]:
        """Listen for an org, or for all; False when events may be missed from the beginning on."""
        self._watchers[org] += 1
        try:
            yield await self._wire.listen(self._subjects.lives(org), self._on_message)
        finally:
            self._watchers[org] -= 1
            if not self._watchers[org]:
                del self._watchers[org]
                await self._wire.ignore(self._subjects.lives(org))
            if not self._watchers:
                self._next.clear()

    def publish(self, org: str, kind: Kind, id: str, body: bytes) -> None:
        """Send an event to the gateways that listen, or drop it."""
        sent = self._sent.setdefault(org, Sent())
        is_sent = self._can_send(len(body)) and self._post(org, kind, id, sent, body)
        sent.lost = 0 if is_sent else sent.lost + 1
        sent.count += 1

    def lose(self, org: str, number: int) -> None:
        """A node sent events that did not get here: report the gap to the watchers here, and in the next event."""
        sent = self._sent.setdefault(org, Sent())
        sent.count += number
        sent.lost += number
        self.on_lost(org, number)

    def _can_send(self, size: int) -> bool:
        refused = (
            f"{self._subjects.cell}.live." in self._wire.forbidden
        )  # until the permissions are those of docs/nodes.md
        return size <= MAX_EVENT and self._wire.unsent <= MAX_UNSENT and not refused

    def _post(self, org: str, kind: Literal["invocation", "run", "gap"], id: str, sent: Sent, body: bytes) -> bool:
        head = LiveEvent(gateway=self._gateway, org=org, kind=kind, id=id, seq=sent.count, lost=sent.lost)
        return self._wire.post(self._subjects.live(org, kind, id), envelope.pack(head, body))

    # The connection.

    def on_up(self) -> None:
        """There is a connection again: report the gap to the watchers here, and our own to those elsewhere."""
        for org in self._watchers:
            self.on_lost(org, None)
        for org, sent in self._sent.items():
            if sent.lost and self._post(org, "gap", "gap", sent, b""):
                sent.lost, sent.count = 0, sent.count + 1

    def on_down(self) -> None:
        """The connection has ended."""
        self._next.clear()
        for org in self._watchers:
            self.on_lost(org, None)

    # Events of other gateways.

    def _on_message(self, subject: bytes, headers: bytes, data: bytes) -> None:
        if not data:
            return  # `plugbay doctor` tries its permissions
        try:
            event, body = envelope.unpack(LiveEvent, data)
        except Malformed as error:
            LOG.warning("a live event cannot be read: %s", error)
            return
        if subject.decode("utf-8", "replace") != self._subjects.live(event.org, event.kind, event.id):
            LOG.warning("a live event of %s came with another subject", event.gateway)
            return
        key = (event.gateway, event.org)
        expected = self._next.get(key, event.seq - event.lost)
        if event.seq < expected:
            return  # heard before: a watcher of all orgs, and one of this org
        self._next[key] = event.seq + 1
        if event.seq > expected:
            self.on_lost(event.org, event.seq - expected)
        if event.kind != "gap":
            self.on_event(event.kind, event.id, body)
