"""`Singletons`: keeps the plugins that one gateway needs running on some node, one copy of each at a time.

A lease decides who runs a plugin, and a node takes it with a call. So a gateway only sees to it that there is a holder:
it reminds the holder of what it needs, and asks a fitting node when there is none.
"""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import Protocol

from plugbay.cluster.placement import holder_of
from plugbay.cluster.roster import Roster
from plugbay.cluster.times import USUAL, Times
from plugbay.model.errors import Code, Failure

LOG = logging.getLogger("plugbay.cluster")

LOOK_SECONDS = 0.25
"""Interval of the look at holders: after a drain, another node is asked within it."""

AGAIN_SECONDS = 1.0
"""The pause after a node could not start a plugin: the lease of a dead one runs on for a while."""

PREFIX = "plugin/"
"""Names of the leases of plugins begin with this."""


def lease_name(plugin_id: str) -> str:
    """The lease of a plugin that runs on one node at a time."""
    return PREFIX + plugin_id


class Wanted(Protocol):
    """A plugin that must run somewhere."""

    @property
    def lease_name(self) -> str:
        """Empty for a plugin that may run more than once."""
        ...

    @property
    def is_stopped(self) -> bool:
        """Whether it is not needed any more."""
        ...

    async def start_somewhere(self) -> Failure | None:
        """Have a node start it, with the present release and settings; None if it runs now."""
        ...


class Singletons:
    """The plugins that one gateway keeps running."""

    def __init__(self, roster: Roster, times: Times = USUAL) -> None:
        self._roster = roster
        self._times = times
        self._keeping: dict[Wanted, asyncio.Task[None]] = {}

    def want(self, plugin: Wanted) -> None:
        """Keep a plugin running until it is stopped."""
        if plugin not in self._keeping:
            task = self._keeping[plugin] = asyncio.get_running_loop().create_task(self._keep(plugin))
            task.add_done_callback(lambda _: self._keeping.pop(plugin, None))

    async def stop(self) -> None:
        """Let the plugins be; other gateways may need them."""
        tasks = list(self._keeping.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, plugin: Wanted) -> None:
        next_at, problem = 0.0, ""
        while not plugin.is_stopped:
            now = monotonic()
            if self._roster.up(now) and (now >= next_at or self._has_no_holder(plugin, now, next_at)):
                failure = await _start(plugin)
                next_at = monotonic() + (self._times.wanted if failure is None else AGAIN_SECONDS)
                if failure is not None and failure.message != problem:
                    LOG.warning("%s does not run: %s", plugin.lease_name, failure.message)
                problem = "" if failure is None else failure.message
            await asyncio.sleep(LOOK_SECONDS)

    def _has_no_holder(self, plugin: Wanted, now: float, next_at: float) -> bool:
        """Whether a plugin that ran a moment ago has lost its node."""
        ran = next_at - now <= self._times.wanted - AGAIN_SECONDS and next_at - now > AGAIN_SECONDS
        return bool(plugin.lease_name) and ran and holder_of(plugin.lease_name, self._roster.up(now)) is None


async def _start(plugin: Wanted) -> Failure | None:
    """A bug costs an attempt, never the plugin."""
    try:
        return await plugin.start_somewhere()
    except Exception as error:
        LOG.exception("a plugin was not started")
        return Failure(Code.INTERNAL, f"a bug in plugbay: {error!r}")
