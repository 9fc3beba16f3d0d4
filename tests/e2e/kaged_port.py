"""plugbay's own host behind the conformance kit's port, for kaged: calls, hooks, compaction and storage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from plugbay import Failure, Host
from plugbay.conformance.bad_plugins.catalogue import FOLDER, Entry, load_catalog, prepare
from plugbay.conformance.bad_plugins.host_runner import Observed
from plugbay.host.config.config import Config, PluginConfig, TimeoutOverrides
from plugbay.host.discovery.folders import Found, discover
from tests.e2e.conftest import eventually, is_tried_raw, still_carrying
from tests.e2e.nexo_port import CALL_SECONDS, DEPTH, NexoPort, beside
from tests.support.patience import PATIENCE

GENEROUS = {"launch": PATIENCE, "handshake": PATIENCE, "farewell": 10.0, "teardown": 5.0}
"""For every timeout that a case is not about, so that a busy machine changes no verdict."""

MESSAGES = [{"role": "user", "content": str(number)} for number in range(30)]

SHORTEST_INTERVAL = 5
"""Seconds between probes that a manifest may ask for; who asks for them is probed without that wait."""


class KagedPort(NexoPort):
    """One host per entry, with a good plugin beside the bad one, which must answer afterwards."""

    def __init__(self, good: Path, state: Path) -> None:
        super().__init__(good)
        self._state = state

    async def visit(self, folder: Path, entry: Entry) -> Observed:
        async with self._host(folder, entry) as host:
            assert host._runtime is not None
            mark = f"PLUGBAY_HOST={host._runtime.spawner.warden.mark}"
            told, leaving = host.subscribe("plugin.bad.>", depth=DEPTH), self._leaving(host, entry)
            await self._ready(host, entry)
            for _ in range(entry.times - 1):
                await self._ask(host, entry)
            output, failure = await self._ask(host, entry)
            generation = self._generation(host, entry)
            counts = await self._counts(host, entry)
            published = await self._published(told, entry)
            after = await self._next(host, entry, generation) if entry.expect.next else ""
            self.next_output = await host.call("good_tool")
        left = await still_carrying(mark)
        return Observed(
            code=failure.code if failure else None,
            output=output,
            message=failure.message if failure else "",
            left_running=left,
            failure=failure.to_json() if failure else None,
            published=tuple(published),
            counts=counts,
            next=after,
            parting=await self._parting(leaving),
        )

    async def _ask(self, host: Host, entry: Entry) -> tuple[Any, Failure | None]:
        """What came of it, in the way the entry says."""
        if entry.way == "fire":
            fired = await host.fire(entry.tool, entry.given(), context=entry.context)
            return {"injections": [list(each) for each in fired.injections], "skipped": _codes(fired.skipped)}, None
        if entry.way == "compact":
            done = await host.compact(MESSAGES, context=entry.context)
            failures = _codes(done.failures)
            return {"left": len(done.messages), "compacted_by": done.compacted_by, "failures": failures}, None
        timeout = entry.timeouts.get("call", CALL_SECONDS)
        result = await host.attempt(entry.tool, entry.given(), context=entry.context, timeout=timeout)
        return None if result.failure else result.value(), result.failure

    async def _next(self, host: Host, entry: Entry, generation: int) -> str:
        if entry.expect.next == "new":
            assert await eventually(lambda: self._status(host, entry).generation != generation or _gone(host, entry))
        _, failure = await self._ask(host, entry)
        if failure is not None and failure.code in ("quarantined", "unavailable"):
            return "refused"
        return "same" if self._generation(host, entry) == generation else "new"

    @asynccontextmanager
    async def _host(self, folder: Path, entry: Entry) -> AsyncIterator[Host]:
        timeouts = {**GENEROUS, **{name: seconds for name, seconds in entry.timeouts.items() if name != "call"}}
        settings = PluginConfig(grants=list(entry.grants), timeouts=TimeoutOverrides.model_validate(timeouts))
        roots = [folder] if entry.plugin_id == "good" else [folder, self._good]
        found = [_hurried(item) for item in discover(roots)]
        config = Config(plugins={"good": beside(entry, GENEROUS), entry.plugin_id: settings})
        host = Host(found, config, state_dir=self._state, unconfined=is_tried_raw(entry))
        async with asyncio.timeout(CALL_SECONDS * 2), host:
            yield host


def _hurried(found: Found) -> Found:
    """The plugin with the host's own waits made short; those that the plugin is judged by stay."""
    spec = found.spec
    assert spec is not None, found.problems
    restart = replace(spec.restart, first_delay=0.02, longest_delay=0.1)
    if spec.health_interval != SHORTEST_INTERVAL:
        return replace(found, spec=replace(spec, restart=restart))
    patience = {**spec.patience, "CheckHealth": 0.1}
    return replace(found, spec=replace(spec, restart=restart, health_interval=0.05, patience=patience))


def _gone(host: Host, entry: Entry) -> bool:
    return next(status for status in host.plugins() if status.spec.id == entry.plugin_id).pid is None


def _codes(failures: tuple[tuple[str, Failure], ...]) -> Mapping[str, str]:
    return {plugin: failure.code for plugin, failure in failures}


@cache
def kaged_entries() -> list[Entry]:
    return load_catalog("kaged")


def good_kaged_folder(tmp: Path) -> Path:
    good = next(entry for entry in kaged_entries() if entry.name == "good")
    return prepare(good, tmp / "beside", FOLDER / "kaged")
