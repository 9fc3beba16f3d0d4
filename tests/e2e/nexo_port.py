"""plugbay's own host behind the conformance kit's port for plugins that stay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from plugbay import Host
from plugbay.conformance.bad_plugins.catalogue import FOLDER, Entry, load_catalog, prepare
from plugbay.conformance.bad_plugins.host_runner import Observed
from plugbay.host.admin import operating
from plugbay.host.config.config import Config, PluginConfig, TimeoutOverrides
from plugbay.host.discovery.folders import discover
from plugbay.host.events.bus import Stream
from plugbay.host.request import CallResult
from plugbay.host.status import PluginStatus
from tests.e2e.conftest import eventually, still_carrying
from tests.support.patience import PATIENCE

GENEROUS = {"launch": PATIENCE, "handshake": PATIENCE, "farewell": 10.0, "teardown": 5.0}
"""For every timeout that a case is not about, so that a busy machine changes no verdict."""

CALL_SECONDS = PATIENCE
DEPTH = 1000
"""Events looked at; a plugin that publishes more is judged by what it does next."""


class NexoPort:
    """One host per entry, with a good plugin beside the bad one, which must answer afterwards."""

    def __init__(self, good: Path) -> None:
        self._good = good
        self.next_output: Any = None
        """What the good plugin said after the bad one had its turn."""

    async def call(
        self, folder: Path, tool: str, input: Any, *, grants: Sequence[str], timeouts: Mapping[str, float]
    ) -> Observed:
        words = {"name": folder.name, "file": None, "row": "", "what": "", "expect": {"outcome": "succeeded"}}
        asked = {"tool": tool, "input": input, "grants": list(grants), "timeouts": dict(timeouts)}
        return await self.visit(folder, Entry.model_validate({**words, **asked, "manifest": {"id": "bad"}}))

    async def visit(self, folder: Path, entry: Entry) -> Observed:
        async with self._host(folder, entry) as host:
            assert host._runtime is not None
            mark = f"PLUGBAY_HOST={host._runtime.spawner.warden.mark}"
            inbound, leaving = host.subscribe("plugin.inbound.>", depth=DEPTH), self._leaving(host, entry)
            await self._tell(host, entry)
            await self._ready(host, entry)
            chunks: list[Any] = []
            result = await self._calls(host, entry, chunks)
            generation = self._generation(host, entry)
            counts = await self._counts(host, entry)
            published = await self._published(inbound, entry)
            after = await self._next(host, entry, generation) if entry.expect.next else ""
            self.next_output = await host.call("good_tool")
        left = await still_carrying(mark)
        failure = result.failure
        return Observed(
            code=failure.code if failure else None,
            output=None if failure else result.value(),
            message=failure.message if failure else "",
            left_running=left,
            failure=failure.to_json() if failure else None,
            chunks=tuple(chunks),
            published=tuple(published),
            counts=counts,
            next=after,
            parting=await self._parting(leaving),
        )

    async def _ready(self, host: Host, entry: Entry) -> None:
        """Have the plugin started before the time of a call counts: on a busy machine that alone takes longer."""
        if "call" in entry.timeouts:
            await operating.start(host, entry.plugin_id)

    async def _tell(self, host: Host, entry: Entry) -> None:
        if entry.events is None:
            return
        assert await host.settled(PATIENCE)
        for _ in range(entry.events.times):
            host.publish(entry.events.topic, entry.events.payload)

    async def _calls(self, host: Host, entry: Entry, chunks: list[Any]) -> CallResult:
        for _ in range(entry.times - 1):
            await host.attempt(entry.tool, entry.given(), timeout=CALL_SECONDS)
        return await host.attempt(
            entry.tool,
            entry.given(),
            timeout=entry.timeouts.get("call", CALL_SECONDS),
            on_progress=chunks.append if entry.stream else None,
        )

    async def _counts(self, host: Host, entry: Entry) -> dict[str, int]:
        """What was counted, as soon as it is what is expected; some of it comes a moment after the answer."""
        wanted = entry.expect.counts
        await eventually(lambda: all(_counted(host, entry).get(name, 0) >= least for name, least in wanted.items()))
        return _counted(host, entry)

    async def _published(self, stream: Stream, entry: Entry) -> list[Any]:
        await eventually(lambda: len(stream._waiting) >= len(entry.expect.published or ()))
        return [event.to_json() for event in stream._waiting]

    async def _next(self, host: Host, entry: Entry, generation: int) -> str:
        if entry.expect.next == "new":
            assert await eventually(lambda: self._status(host, entry).pid is None), "it is still there"
        result = await host.attempt(entry.tool, entry.given(), timeout=CALL_SECONDS)
        if result.failure is not None and result.failure.code in ("quarantined", "unavailable"):
            return "refused"
        return "same" if self._generation(host, entry) == generation else "new"

    def _generation(self, host: Host, entry: Entry) -> int:
        """Which child of the plugin it is, counted from 1."""
        return self._status(host, entry).generation

    def _status(self, host: Host, entry: Entry) -> PluginStatus:
        return next(status for status in host.plugins() if status.spec.id == entry.plugin_id)

    def _leaving(self, host: Host, entry: Entry) -> Stream:
        life = f"plugin.lifecycle.{entry.plugin_id}"
        return host.subscribe(f"{life}.shutdown_failed", f"{life}.stopped")

    async def _parting(self, leaving: Stream) -> str:
        leaving.close()
        told = [event async for event in leaving]
        failed = [event.payload["code"] for event in told if event.topic.endswith(".shutdown_failed")]
        return failed[0] if failed else "ok" if told else ""

    @asynccontextmanager
    async def _host(self, folder: Path, entry: Entry) -> AsyncIterator[Host]:
        timeouts = {**GENEROUS, **entry.timeouts}
        settings = PluginConfig(grants=list(entry.grants), timeouts=TimeoutOverrides.model_validate(timeouts))
        found = discover([folder])
        if entry.plugin_id != "good":
            found += discover([self._good])
        config = Config(plugins={"good": beside(entry, GENEROUS), entry.plugin_id: settings})
        async with asyncio.timeout(CALL_SECONDS * 2), Host(found, config, eager=entry.events is not None) as host:
            yield host


def beside(entry: Entry, timeouts: Mapping[str, float]) -> PluginConfig:
    """For the good plugin: the patience that a case has with the bad one is not for it."""
    return PluginConfig(grants=list(entry.grants), timeouts=TimeoutOverrides.model_validate(timeouts))


def _counted(host: Host, entry: Entry) -> dict[str, int]:
    return dict(next(status.counters for status in host.plugins() if status.spec.id == entry.plugin_id))


@cache
def nexo_entries() -> list[Entry]:
    return load_catalog("nexo")


def good_folder(tmp: Path) -> Path:
    return prepare(next(entry for entry in nexo_entries() if entry.name == "good"), tmp / "beside", FOLDER / "nexo")
