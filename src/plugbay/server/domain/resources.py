"""`ResourceHistory`: memory and CPU time of the host's plugins over the last hour.

Sampled from /proc on a thread, into a ring in memory: a restart begins a new one. A process that ends between two
samples is not seen.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping

import msgspec

from plugbay.host.host import Host
from plugbay.process.usage import cpu_of_tree, memory_of_tree
from plugbay.server.domain.clock import Clock

SAMPLE_SECONDS = 10.0

KEPT_SAMPLES = 360
"""An hour."""

SHARE = 20
"""The pause between two samples is at least so many times as long as a sample takes, so that hundreds of plugins keep
no core busy."""


class Usage(msgspec.Struct, frozen=True):
    """What the processes of one plugin, or of all, use."""

    memory: int
    """Bytes; shared pages in proportion."""
    cpu: float | None
    """Cores in use since the sample before; None: there is none."""


class Sample(msgspec.Struct, frozen=True):
    """All plugins at one moment."""

    at: float
    total: Usage


_Measured = dict[str, dict[int, tuple[int, float]]]
"""Memory and CPU seconds by plugin and process."""


class ResourceHistory:
    """The samples of one host."""

    def __init__(self, host: Host, clock: Clock) -> None:
        self._host = host
        self._clock = clock
        self._seconds: dict[int, float] = {}
        self._measured_at: float | None = None
        self.samples: deque[Sample] = deque(maxlen=KEPT_SAMPLES)
        """The last hour, oldest first."""
        self.plugins: Mapping[str, Usage] = {}
        """The plugins with processes, at the last sample."""

    async def run(self) -> None:
        """Take samples until cancelled."""
        while True:
            began = self._clock.monotonic()
            await self.sample()
            await asyncio.sleep(max(SAMPLE_SECONDS, SHARE * (self._clock.monotonic() - began)))

    async def sample(self) -> None:
        """Take a sample now."""
        measured = await asyncio.to_thread(_measure, self._host.processes())
        now, before = self._clock.monotonic(), self._measured_at
        elapsed = None if before is None else now - before
        self.plugins = {plugin: self._usage(found, elapsed) for plugin, found in measured.items()}
        used = self.plugins.values()
        cpu = None if elapsed is None else sum(usage.cpu or 0.0 for usage in used)
        self.samples.append(Sample(self._clock.now(), Usage(sum(usage.memory for usage in used), cpu)))
        self._seconds = {pid: seconds for found in measured.values() for pid, (_, seconds) in found.items()}
        self._measured_at = now

    def _usage(self, found: Mapping[int, tuple[int, float]], elapsed: float | None) -> Usage:
        """A process that was not there at the sample before has used all of its time since then."""
        memory = sum(size for size, _ in found.values())
        if not elapsed:
            return Usage(memory, None)
        spent = sum(max(0.0, seconds - self._seconds.get(pid, 0.0)) for pid, (_, seconds) in found.items())
        return Usage(memory, spent / elapsed)


def _measure(processes: Mapping[str, list[int]]) -> _Measured:
    """Blocks for about a millisecond per process."""
    return {
        plugin: {pid: (memory_of_tree(pid), cpu_of_tree(pid)) for pid in pids} for plugin, pids in processes.items()
    }
