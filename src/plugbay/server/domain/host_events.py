"""`HostEvents`: what the host's bus carried, numbered, so that whoever was away for a moment can go on from there.

Owns the numbers and how far back they reach. An id is the gateway's start and a number; one of another start, or one
that is too old, is answered from the oldest event there is, with the gap told.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from plugbay.host.events.bus import BusEvent
from plugbay.host.events.subjects import matches
from plugbay.host.host import Host
from plugbay.host.supervision.resident import SOURCE
from plugbay.server.domain.ids import new_id

KEPT = 2_000
"""Events that can be had again; each is one message of a plugin at most."""

EVERYTHING = ">"

LIFECYCLE = "plugin.lifecycle."
"""How topics begin that tell what happened to a plugin; its id and a word follow."""

DEPTH = 4_096
"""Events that wait to be numbered: a burst, within one turn of the loop."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """One event, and the id by which to go on after it."""

    id: str
    topic: str
    data: dict[str, Any]


class HostEvents:
    """The last events of one host."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._start = new_id("")
        self._count = 0
        self._kept: deque[tuple[int, Numbered]] = deque(maxlen=KEPT)
        self._arrived = asyncio.Condition()
        self.lifecycle: dict[str, Numbered] = {}
        """What last happened to each plugin, of those that stay; as many as there are plugins."""

    async def run(self) -> None:
        """Number what comes, until it is cancelled."""
        async with self._host.subscribe(EVERYTHING, depth=DEPTH) as stream:
            async for event in stream:
                await self._keep(event)

    async def _keep(self, event: BusEvent) -> None:
        self._count += 1
        numbered = Numbered(f"{self._start}-{self._count}", event.topic, event.to_json())
        self._kept.append((self._count, numbered))
        if event.source == SOURCE and event.topic.startswith(LIFECYCLE):
            self.lifecycle[event.topic.removeprefix(LIFECYCLE).rpartition(".")[0]] = numbered
        async with self._arrived:
            self._arrived.notify_all()

    def recent(self, topic: str = EVERYTHING, after: str | None = None) -> list[Numbered]:
        """What is kept of the events whose topic the pattern covers, oldest first; of those after an id, if given."""
        seen = 0 if after is None else self._number(after)
        return [event for number, event in self._kept if number > seen and matches(topic, event.topic)]

    async def follow(self, topic: str = EVERYTHING, after: str | None = None) -> AsyncIterator[Numbered]:
        """Events whose topic the pattern covers: those after this id, then each that comes."""
        seen = self._count if after is None else self._number(after)
        while True:
            fresh = [(number, event) for number, event in self._kept if number > seen]
            for number, event in fresh:
                seen = number
                if matches(topic, event.topic):
                    yield event
            if not fresh:
                async with self._arrived:
                    await self._arrived.wait_for(lambda: self._count > seen)  # noqa: B023 - awaited here

    def _number(self, id: str) -> int:
        start, _, number = id.rpartition("-")
        return int(number) if start == self._start and number.isdecimal() else 0
