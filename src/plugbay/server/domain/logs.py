"""`Log`: the lines of one plugin or package, from this machine and from all nodes. `HostLogs`: those of the operator's
plugins.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple

from plugbay.host.admin.logs import LogLine, PluginLogs

if TYPE_CHECKING:
    from plugbay.cluster.logs import NodeLogs

MAX_WAITING = 1000
"""Lines that wait for a reader; the log is read more slowly then."""


class Past(NamedTuple):
    """The lines of a log until now."""

    lines: list[LogLine]
    places: Mapping[str, int]
    """Where the logs of nodes go on."""


class Log(NamedTuple):
    """One readable log."""

    logs: PluginLogs
    label: str
    """Its name on this machine."""
    plugin_id: str
    org_id: str | None
    """None: the lines of all orgs."""
    nodes: NodeLogs | None

    async def tail(self, count: int) -> Past:
        """The last lines, oldest first."""
        if self.nodes is None:
            return Past(self.logs.tail(self.label, count), {})
        found, places = await self.nodes.tail(self.plugin_id, self.org_id, count)
        merged = sorted([*self.logs.tail(self.label, count), *found], key=lambda line: line.at)
        return Past(merged[-count:] if count else [], places)

    def follow(self, past: Past) -> AsyncGenerator[LogLine, None]:
        """Lines after its past."""
        source = self.logs.follow(self.label)
        if self.nodes is None:
            return source
        return _merge([source, self.nodes.follow(self.plugin_id, self.org_id, past.places)])


class HostLogs:
    """The logs of the operator's plugins."""

    def __init__(self, logs: PluginLogs, nodes: NodeLogs | None) -> None:
        self._logs = logs
        self._nodes = nodes

    def of(self, plugin_id: str) -> Log:
        """The log of one plugin."""
        return Log(self._logs, plugin_id, plugin_id, None, self._nodes)


async def _merge(sources: list[AsyncGenerator[LogLine, None]]) -> AsyncGenerator[LogLine, None]:
    """The lines of several logs as they come."""
    waiting: asyncio.Queue[LogLine | Exception] = asyncio.Queue(MAX_WAITING)

    async def read(source: AsyncGenerator[LogLine, None]) -> None:
        try:
            async with aclosing(source):
                async for line in source:
                    await waiting.put(line)
        except Exception as error:
            await waiting.put(error)

    loop = asyncio.get_running_loop()
    readers = [loop.create_task(read(source)) for source in sources]
    try:
        while True:
            found = await waiting.get()
            if isinstance(found, Exception):
                raise found
            yield found
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
