"""`ChannelStarter`: starts the channels of each plugin when its process has started.

That is with the server, after a respawn, after a reload and after a grant. Each process is asked once for each of its
channels: a plugin that came back has forgotten that its channels were started.
"""

from __future__ import annotations

import asyncio

from plugbay.host.events.bus import BusEvent
from plugbay.host.host import Host
from plugbay.host.supervision.resident import SOURCE
from plugbay.model.errors import CallFailed
from plugbay.model.lifecycle import State

LIFECYCLE = "plugin.lifecycle.>"
STARTED = ".started"

DEPTH = 1_024
"""Lifecycle events that wait: many plugins start with a host."""


class ChannelStarter:
    """Starts channels of the plugins of one host, on the host's own loop."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._served: dict[str, int | None] = {}
        """By plugin: the process whose channels were started."""
        self._starting: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Start channels until cancelled."""
        try:
            async with self._host.subscribe(LIFECYCLE, depth=DEPTH) as events:
                self._start_running()
                async for event in events:
                    self._on_event(event)
        finally:
            for task in self._starting:
                task.cancel()

    def _start_running(self) -> None:
        """Start the channels of processes that were there before the subscription."""
        for plugin_id in self._host.specs:
            supervisor = self._host.supervisor(plugin_id)
            if supervisor is not None and supervisor.state is State.RUNNING:
                self._start(plugin_id, supervisor.pid)

    def _on_event(self, event: BusEvent) -> None:
        if event.source == SOURCE and event.topic.endswith(STARTED):
            self._start(event.payload["plugin_id"], event.payload["pid"])

    def _start(self, plugin_id: str, pid: int | None) -> None:
        if self._served.get(plugin_id) == pid:
            return
        self._served[plugin_id] = pid
        for kind in self._host.channels.kinds():
            if self._host.channels.owner(kind) == plugin_id:
                task = asyncio.ensure_future(self._start_channel(plugin_id, kind))
                self._starting.add(task)
                task.add_done_callback(self._starting.discard)

    async def _start_channel(self, plugin_id: str, kind: str) -> None:
        try:
            await self._host.channels[kind].start()
        except CallFailed as error:
            text = f"the channel {kind} did not start: {error.failure.message}"
            self._host.journal.note(plugin_id, "channel_failed", text)
