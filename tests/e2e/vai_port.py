"""plugbay's own host behind the conformance kit's port, for vai: work in invocations, and what is told about it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from plugbay import Host
from plugbay.conformance.bad_plugins.catalogue import FOLDER, Entry, load_catalog, prepare
from plugbay.conformance.bad_plugins.host_runner import Observed
from plugbay.host.config.config import Config, PluginConfig, TimeoutOverrides
from plugbay.host.discovery.folders import discover
from plugbay.host.request import CallResult, ExportBinding
from tests.e2e.ainb_port import hurried
from tests.e2e.conftest import eventually, is_tried_raw, still_carrying
from tests.e2e.nexo_port import CALL_SECONDS, NexoPort, beside
from tests.support.patience import PATIENCE

GENEROUS = {"launch": PATIENCE, "handshake": PATIENCE, "grace": 10.0, "teardown": 5.0}
"""For every timeout that a case is not about, so that a busy machine changes no verdict."""

SECRET = "the-secret-of-the-operators"
"""Its length is a multiple of three, so that all of its base64 is known whatever stands behind it."""


class VaiPort(NexoPort):
    """One host per entry, with a good plugin beside the bad one, which must answer afterwards."""

    def __init__(self, good: Path) -> None:
        super().__init__(good)
        self.told = ""
        """All that the host has said and kept about the last visit."""
        self.statuses: list[str] = []
        """How the records of the last visit were closed."""
        self.left_in_scratch: list[Path] = []

    async def visit(self, folder: Path, entry: Entry) -> Observed:
        state = folder.parent / "state"
        async with self._host(folder, entry) as host:
            assert host._runtime is not None
            mark = f"PLUGBAY_HOST={host._runtime.spawner.warden.mark}"
            leaving, chunks = self._leaving(host, entry), list[Any]()
            if "call" in entry.timeouts:
                await host.invoke("bad_hook", {"type": "run.completed"}, timeout=CALL_SECONDS)
            result = await self._ask(host, entry, chunks)
            generation = self._generation(host, entry)
            counts = await self._counts(host, entry)
            after = await self._after(host, entry, generation) if entry.expect.next else ""
            self.next_output = await host.call("good_tool", {})
            self.told = self._told(host, entry, result, chunks)
            self.statuses = [str(record.status) for record in result.invocations]
        left = await still_carrying(mark)
        self.left_in_scratch = [path for path in state.rglob("host_*/*") if "scratch" in path.parts]
        failure = result.failure
        return Observed(
            code=failure.code if failure else None,
            output=None if failure else result.value_or_raise(),
            message=failure.message if failure else "",
            left_running=left,
            failure=failure.to_json() if failure else None,
            chunks=tuple(chunks),
            counts=counts,
            next=after,
            parting=await self._parting(leaving),
        )

    async def _ask(self, host: Host, entry: Entry, chunks: list[Any] | None = None) -> CallResult:
        return await host.invoke(
            entry.tool,
            entry.given(),
            timeout=entry.timeouts.get("call", CALL_SECONDS),
            on_progress=None if chunks is None else chunks.append,
            binding=ExportBinding("bind_1", secrets={"token": SECRET} if entry.tool == "bad_tool" else {}),
        )

    async def _after(self, host: Host, entry: Entry, generation: int) -> str:
        if entry.expect.next == "new":
            assert await eventually(lambda: self._status(host, entry).pid is None), "it is still there"
        result = await self._ask(host, entry)
        if result.failure is not None and result.failure.code in ("quarantined", "unavailable"):
            return "refused"
        return "same" if self._generation(host, entry) == generation else "new"

    def _told(self, host: Host, entry: Entry, result: CallResult, chunks: list[Any]) -> str:
        records = [record.to_json() for record in result.invocations]
        said = result.failure.to_json() if result.failure else result.value_or_raise()
        notes = [note.text for note in host.journal.recent(entry.plugin_id)]
        calls = [repr(record) for record in host.call_log.records]  # type: ignore[attr-defined]
        return json.dumps([records, said, chunks, notes, calls])

    @asynccontextmanager
    async def _host(self, folder: Path, entry: Entry) -> AsyncIterator[Host]:
        timeouts = {**GENEROUS, **{name: seconds for name, seconds in entry.timeouts.items() if name != "call"}}
        settings = PluginConfig(grants=list(entry.grants), timeouts=TimeoutOverrides.model_validate(timeouts))
        roots = [folder] if entry.plugin_id == "good/plugin" else [folder, self._good]
        found = [hurried(item) for item in discover(roots)]
        config = Config(plugins={"good/plugin": beside(entry, GENEROUS), entry.plugin_id: settings})
        async with (
            asyncio.timeout(CALL_SECONDS * 2),
            Host(found, config, state_dir=folder.parent / "state", unconfined=is_tried_raw(entry)) as host,
        ):
            yield host


@cache
def vai_entries() -> list[Entry]:
    return load_catalog("vai")


def good_vai_folder(tmp: Path) -> Path:
    good = next(entry for entry in vai_entries() if entry.name == "good")
    return prepare(good, tmp / "beside", FOLDER / "vai")
