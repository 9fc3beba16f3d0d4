"""`Keeper`: the leases of a node: takes one with the first call, renews it, and stops the plugin before it is over.

A node has no clock in common with the database, so it counts from before it asked, on a clock that runs on while the
machine is suspended. When the node itself stands still, the warden of the plugin's host kills its processes in time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import msgspec

from plugbay.cluster import outcomes
from plugbay.cluster.asking import Asker
from plugbay.cluster.envelope import Call
from plugbay.cluster.hosts import Key, NodeHosts
from plugbay.cluster.times import USUAL, Times
from plugbay.host.host import Host
from plugbay.host.inbound.handler import AskElsewhere
from plugbay.model.errors import Failure, PlugbayError
from plugbay.model.tenure import RENEWALS, Standing, Tenure

LOG = logging.getLogger("plugbay.node")

TICK_SECONDS = 0.1

ASK_SECONDS = 5.0
"""For the answer of a gateway about a lease."""


MAX_HELD = 256
"""Leases of one node; a beat names them all."""


class LeaseRefused(PlugbayError):
    """The node does not hold the lease of a call, so no plugin has received it."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Taken(msgspec.Struct, frozen=True):
    """The answer to a request for a lease."""

    taken: bool
    node: str
    epoch: int
    seconds: float


class Renewed(msgspec.Struct, frozen=True):
    """The answer to a renewal."""

    kept: list[str]
    seconds: float


class Held:
    """A lease of this node, and the host of its plugin."""

    def __init__(self, name: str, epoch: int, tenure: Tenure, key: Key) -> None:
        self.name = name
        self.epoch = epoch
        self.tenure = tenure
        self.key = key
        self.host: Host | None = None
        self.calls = 0
        self.idle = asyncio.Event()
        self.idle.set()
        self.used_at = time.monotonic()
        self.ending = False
        """Its plugin is being stopped."""
        self.open = AsyncExitStack()

    def begin_call(self) -> None:
        self.calls += 1
        self.idle.clear()

    def end_call(self) -> None:
        self.calls -= 1
        self.used_at = time.monotonic()
        if not self.calls:
            self.idle.set()

    def renewed(self, tenure: Tenure) -> None:
        self.tenure = tenure
        if self.host is not None:
            self.host.live_until(tenure.over_at)


class Keeper:
    """The leases of one node."""

    def __init__(
        self,
        node: str,
        asker: Asker,
        hosts: NodeHosts,
        changed: Callable[[], object],
        times: Times = USUAL,
        clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        """`changed` is called when a lease was taken or given back."""
        self._node = node
        self._asker = asker
        self._hosts = hosts
        self._changed = changed
        self._times = times
        self._clock = clock
        self._held: dict[str, Held] = {}
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._tried_at = 0.0
        self._tasks: set[asyncio.Task[Any]] = set()
        self.draining = False
        self.asking: AskElsewhere = partial(asker.request, "", 0)
        """Passes on the requests of plugins without a lease."""

    def epochs(self) -> dict[str, int]:
        """The leases whose plugins take calls here."""
        return {name: held.epoch for name, held in self._held.items() if self._is_usable(held)}

    def _is_usable(self, held: Held) -> bool:
        return not held.ending and held.tenure.standing(self._clock()) is Standing.HELD

    # Calls.

    @asynccontextmanager
    async def host(self, call: Call, settings: bytes) -> AsyncIterator[Host]:
        """The host of a plugin whose lease this node holds, or takes for the call; raises `LeaseRefused`."""
        async with self._locks[call.lease]:
            held = await self._hold(call, (call.package, call.access, settings))
            held.begin_call()
        try:
            assert held.host is not None
            yield held.host
        finally:
            held.end_call()

    async def _hold(self, call: Call, key: Key) -> Held:
        held = self._held.get(call.lease)
        if held is None:
            if call.epoch:
                raise self._refused(outcomes.OLD_EPOCH, f"does not hold {call.lease} any more")
            held = await self._take(call, key)
        elif not self._is_usable(held):
            raise self._refused(outcomes.NOT_HELD, f"has not renewed {call.lease} in time")
        elif call.epoch not in (0, held.epoch):
            raise self._refused(outcomes.OLD_EPOCH, f"holds {call.lease} with another epoch")
        if held.key != key and held.host is not None:
            await self._close(held)
        if held.host is None and self._is_usable(held):
            held.key = key
            await self._open(held)
        if not self._is_usable(held):  # this process may have stood still at any time; `run` ends the lease
            raise self._refused(outcomes.NOT_HELD, f"has not renewed {call.lease} in time")
        return held

    async def _take(self, call: Call, key: Key) -> Held:
        if self.draining or len(self._held) >= MAX_HELD:
            raise self._refused("draining" if self.draining else "overloaded", "takes no leases")
        await self._hosts.prepare(call.package)  # may take longer than a lease
        asked_at = self._clock()
        answer = await self._asker.ask("take", ASK_SECONDS, {call.lease: 0})
        if isinstance(answer, Failure):
            raise self._refused(outcomes.NOT_HELD, f"cannot take {call.lease}: {answer.message}")
        found = msgspec.json.decode(answer, type=Taken)
        if not found.taken:
            raise self._refused(
                outcomes.HELD_ELSEWHERE, f"cannot take {call.lease}", holder=found.node, epoch=found.epoch
            )
        held = Held(call.lease, found.epoch, Tenure(asked_at, found.seconds), key)
        self._held[call.lease] = held
        LOG.info("took %s, epoch %d", call.lease, found.epoch)
        return held

    async def _open(self, held: Held) -> None:
        """Start the host. Without one, the lease is given back."""
        package, access, settings = held.key
        ask = partial(self._asker.request, held.name, held.epoch)
        opening = self._hosts.host(package, access, settings, live_until=held.tenure.over_at, elsewhere=ask)
        try:
            held.host = await held.open.enter_async_context(opening)
            held.host.live_until(held.tenure.over_at)  # it was renewed meanwhile
        except BaseException:
            await self._give_back(held)
            raise
        self._changed()

    async def _close(self, held: Held) -> None:
        """Stop the host after its calls, for another release or other settings."""
        await held.idle.wait()
        await self._stop_host(held)

    async def _stop_host(self, held: Held) -> None:
        held.host = None
        await held.open.aclose()
        await self._hosts.drop(held.key)

    def _refused(self, reason: str, text: str, **detail: Any) -> LeaseRefused:
        refusal = outcomes.refused(reason, f"the node {self._node} {text}", self._node)
        return LeaseRefused(refusal.replace_detail(**detail))

    # The passing of time.

    async def run(self) -> None:
        """Renew the leases, and end those that cannot be kept or are not needed, until cancelled."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            for held in list(self._held.values()):
                if not held.ending and not self._is_usable(held):
                    LOG.warning("%s was not renewed in time; its plugin is stopped", held.name)
                    self._begin(self.end(held))
                elif not held.ending and not held.calls and self._is_unneeded(held):
                    self._begin(self.end(held))
            shortest = min((held.tenure.seconds for held in self._held.values()), default=None)
            if shortest is not None and self._clock() - self._tried_at >= shortest / RENEWALS:
                self._tried_at = self._clock()
                self._begin(self._renew(min(ASK_SECONDS, shortest / 2)))

    def _is_unneeded(self, held: Held) -> bool:
        idle = time.monotonic() - held.used_at > self._times.unwanted
        return self.draining or (idle and not self._locks[held.name].locked())

    async def _renew(self, seconds: float) -> None:
        asked_at = self._clock()
        asked = {name: held for name, held in self._held.items() if held.tenure.over_at > asked_at}
        if not asked:
            return
        answer = await self._asker.ask("renew", seconds, {name: held.epoch for name, held in asked.items()})
        if isinstance(answer, Failure):
            LOG.warning("leases cannot be renewed: %s", answer.message)
            return
        found = msgspec.json.decode(answer, type=Renewed)
        for name, held in asked.items():
            if name in found.kept:
                held.renewed(Tenure(asked_at, found.seconds))
            elif not held.ending and self._held.get(name) is held:
                LOG.error("%s has another holder; its plugin is stopped", name)
                self._begin(self.end(held))

    async def end(self, held: Held) -> None:
        """Stop the plugin and give the lease back."""
        if held.ending:
            return
        held.ending = True
        self._changed()
        async with self._locks[held.name]:
            if self._held.get(held.name) is held:
                await self._stop_host(held)
                await self._give_back(held)

    async def _give_back(self, held: Held) -> None:
        """After this no other question about this epoch is on its way."""
        held.ending = True
        answer = await self._asker.ask("release", ASK_SECONDS, {held.name: held.epoch})
        if isinstance(answer, Failure):
            LOG.warning("%s ends later by itself: %s", held.name, answer.message)
        self._held.pop(held.name, None)
        LOG.info("gave %s back", held.name)
        self._changed()

    async def stop(self) -> None:
        """Stop all plugins and give all leases back."""
        self.draining = True
        await asyncio.gather(*(self.end(held) for held in list(self._held.values())))
        while self._held and self._tasks:
            await asyncio.wait(self._tasks)
        for task in self._tasks:
            task.cancel()

    def _begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
