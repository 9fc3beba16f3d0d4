"""plugbay's own host behind the conformance kit's port, for ainb: command lines, screens, keys and snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from plugbay import CallFailed, Failure, Host
from plugbay.conformance.bad_plugins.catalogue import FOLDER, Entry, load_catalog, prepare
from plugbay.conformance.bad_plugins.host_runner import Observed
from plugbay.host.config.config import Config, PluginConfig, TimeoutOverrides
from plugbay.host.discovery.folders import Found, discover
from plugbay.host.screens.keys import parse_key
from tests.e2e.conftest import eventually, is_tried_raw, still_carrying
from tests.e2e.nexo_port import CALL_SECONDS, NexoPort, beside
from tests.support.patience import PATIENCE

GENEROUS = {"launch": PATIENCE, "handshake": PATIENCE, "farewell": 10.0, "teardown": 5.0}
"""For every timeout that a case is not about, so that a busy machine changes no verdict."""

SIZE = (80, 24)
KEYS = 1000


class AinbPort(NexoPort):
    """One host per entry, with a good plugin beside the bad one, which must answer afterwards."""

    async def visit(self, folder: Path, entry: Entry) -> Observed:
        async with self._host(folder, entry) as host:
            assert host._runtime is not None
            mark = f"PLUGBAY_HOST={host._runtime.spawner.warden.mark}"
            leaving = self._leaving(host, entry)
            host.actions.register("conformance.hang", _hang)
            for _ in range(entry.times - 1):
                await self._ask(host, entry)
                await eventually(lambda: self._status(host, entry).pid is None)
            output, failure = await self._ask(host, entry)
            generation = self._generation(host, entry)
            counts = await self._counts(host, entry)
            published = await self._kept(host, entry)
            after = await self._after(host, entry, generation) if entry.expect.next else ""
            self.next_output = (await host.run_cli("good", [])).stdout
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
        timeout = entry.timeouts.get("call", CALL_SECONDS)
        if "call" in entry.timeouts and self._status(host, entry).pid is None:
            await self._wake(host, entry)
        try:
            if entry.way == "run":
                ran = await host.run_cli(entry.tool, list(entry.given()), timeout=timeout)
                return {"stdout": ran.stdout.decode(), "stderr": ran.stderr.decode(), "exit_code": ran.exit_code}, None
            if entry.way == "press":
                await host.screens.render(entry.tool, *SIZE, timeout=CALL_SECONDS)
                for _ in range(KEYS):
                    host.screens.press(entry.tool, parse_key("x"))
            frame = await host.screens.render(entry.tool, *SIZE, timeout=timeout)
        except CallFailed as error:
            return None, error.failure
        return "\n".join(frame.lines()).rstrip("\n").split("\n"), None

    async def _wake(self, host: Host, entry: Entry) -> None:
        """Have the plugin started before the time of a call counts, by asking for what the call is not about."""
        with suppress(CallFailed):
            if entry.way == "run":
                await host.screens.render("bad/main", 1, 1, timeout=CALL_SECONDS)
            else:
                await host.run_cli("bad", [], timeout=CALL_SECONDS)

    async def _kept(self, host: Host, entry: Entry) -> list[Any]:
        """What the plugin has published, one value for each topic."""
        await eventually(lambda: len(host.snapshots.topics()) >= len(entry.expect.published or ()))
        kept = {topic: host.snapshots.get(topic) for topic in host.snapshots.topics()}
        return [{"topic": topic, "data": entry.data.decode()} for topic, entry in kept.items() if entry is not None]

    async def _after(self, host: Host, entry: Entry, generation: int) -> str:
        if entry.expect.next == "new":
            assert await eventually(lambda: self._status(host, entry).pid is None), "it is still there"
        _, failure = await self._ask(host, entry)
        if failure is not None and failure.code in ("quarantined", "unavailable"):
            return "refused"
        return "same" if self._generation(host, entry) == generation else "new"

    @asynccontextmanager
    async def _host(self, folder: Path, entry: Entry) -> AsyncIterator[Host]:
        timeouts = {**GENEROUS, **{name: seconds for name, seconds in entry.timeouts.items() if name != "call"}}
        settings = PluginConfig(grants=list(entry.grants), timeouts=TimeoutOverrides.model_validate(timeouts))
        roots = [folder] if entry.plugin_id == "good" else [folder, self._good]
        found = [hurried(item) for item in discover(roots)]
        config = Config(plugins={"good": beside(entry, GENEROUS), entry.plugin_id: settings})
        async with asyncio.timeout(CALL_SECONDS * 2), Host(found, config, unconfined=is_tried_raw(entry)) as host:
            yield host


def hurried(found: Found) -> Found:
    """The plugin with the host's own waits made short; those that the plugin is judged by stay."""
    spec = found.spec
    assert spec is not None, found.problems
    return replace(found, spec=replace(spec, restart=replace(spec.restart, first_delay=0.02, longest_delay=0.1)))


async def _hang(data: bytes) -> bytes:
    await asyncio.Event().wait()
    return data


@cache
def ainb_entries() -> list[Entry]:
    return load_catalog("ainb")


def good_ainb_folder(tmp: Path) -> Path:
    good = next(entry for entry in ainb_entries() if entry.name == "good")
    return prepare(good, tmp / "beside", FOLDER / "ainb")
