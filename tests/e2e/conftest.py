"""plugbay's own host behind the conformance kit's port, and an outside view of what it leaves running."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from plugbay import Failure, Host
from plugbay.conformance.bad_plugins.host_runner import Entry, Observed, Situation, load_catalog, prepare
from plugbay.host.config.config import Config, PluginConfig, TimeoutOverrides
from plugbay.host.discovery.folders import discover
from plugbay.host.records import MemoryCallLog
from tests.support.patience import PATIENCE
from tests.support.tiers import one_of_each

GENEROUS = {"launch": PATIENCE, "handshake": PATIENCE, "call": PATIENCE, "teardown": 5.0}
"""For every timeout that a case is not about, so that a busy machine changes no verdict."""

NOT_JSON: tuple[Any, ...] = (
    object(),
    {"n": float("nan")},
    {"n": float("inf")},
    {"s": "\ud800"},
    {"k": {1: 2}},
)


async def eventually(condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    """Whether the condition comes true in time; returns as soon as it does."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.002)
    return True


def is_tried_raw(entry: Entry) -> bool:
    """Whether the plugin closes its output and stays. Of a confined one nobody sees that before its time is over: the
    sandbox's own processes hold the same pipe open. So what a host makes of it is tried without a sandbox.
    """
    return entry.name.endswith("closes_stdout")


def carrying(mark: str) -> list[str]:
    """Command lines of living processes with this text in their environment; uses no code under test."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark.encode() in Path(f"/proc/{entry}/environ").read_bytes():
                found.append(Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


async def still_carrying(mark: str) -> tuple[str, ...]:
    """Those that carry it although everything had time to go. To look takes 10 ms, so nobody looks twice."""
    found: list[str] = []

    def nothing() -> bool:
        found[:] = carrying(mark)
        return not found

    await eventually(nothing)
    return tuple(found)


class PlugbayPort:
    """One host per call. After it nothing may be left running, and the same host must serve a good plugin."""

    def __init__(self, good: Path, before: Callable[[Host], Awaitable[None]] | None = None) -> None:
        self._good = good
        self._before = before
        self._steps: list[str] = []
        self.steps: list[str] = []
        """The walk of the last call."""
        self.failure: Failure | None = None
        """Why the last call failed."""
        self.next_output: Any = None
        """What the good plugin said after it."""
        self.timeouts: Mapping[str, float] = {}
        """These hold over those of a case."""

    async def call(
        self, folder: Path, tool: str, input: Any, *, grants: Sequence[str], timeouts: Mapping[str, float]
    ) -> Observed:
        async with self._host(folder, grants, timeouts) as host:
            if self._before is not None:
                await self._before(host)
            result = await host.attempt(tool, input)
            return await self._observed(host, result.failure, result.value() if not result.failure else None)

    async def call_in(
        self,
        situation: Situation,
        folder: Path,
        tool: str,
        *,
        grants: Sequence[str],
        timeouts: Mapping[str, float],
    ) -> Observed:
        async with self._host(folder, grants, timeouts) as host:
            if situation == "caller_cancels":
                return await self._cancelled(host, folder, tool)
            if situation == "slow_spawn":
                return await self._slowly(host, tool)
            return await self._without_json(host, tool)

    async def _cancelled(self, host: Host, folder: Path, tool: str) -> Observed:
        call = asyncio.create_task(host.attempt(tool))
        assert await eventually((folder / "reached").exists), "the plugin did not come to the point"
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert isinstance(host.call_log, MemoryCallLog)
        return await self._observed(host, host.call_log.records[-1].failure, None)

    async def _slowly(self, host: Host, tool: str) -> Observed:
        assert host._runtime is not None
        spawner = host._runtime.spawner
        released = threading.Event()

        def popen(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
            released.wait(PATIENCE)
            return subprocess.Popen(*args, **options)

        spawner._starts._popen = popen
        result = await host.attempt(tool)
        released.set()
        # The start goes on although nobody waits for it: only when it has arrived can anything of it be left.
        assert await eventually(lambda: not spawner._starting)
        return await self._observed(host, result.failure, None)

    async def _without_json(self, host: Host, tool: str) -> Observed:
        """The first odd input that is not refused as it should be; else how the last one was refused."""
        failure = None
        for odd in NOT_JSON:
            failure = (await host.attempt(tool, odd)).failure
            if failure is None or failure.code != "invalid_input":
                break
        return await self._observed(host, failure, None)

    async def _observed(self, host: Host, failure: Failure | None, output: Any) -> Observed:
        self.steps = list(self._steps)
        self.failure = failure
        left = await left_running(host)
        self.next_output = await host.call("good.tool")
        if failure is None:
            return Observed(None, output, left_running=left)
        return Observed(failure.code, None, failure.message, left)

    @asynccontextmanager
    async def _host(self, folder: Path, grants: Sequence[str], timeouts: Mapping[str, float]) -> AsyncIterator[Host]:
        self._steps.clear()
        found = discover([folder])
        specs = [item.spec for item in found if item.spec is not None]
        settings = PluginConfig(
            grants=list(grants), timeouts=TimeoutOverrides.model_validate({**GENEROUS, **timeouts, **self.timeouts})
        )
        beside = PluginConfig(timeouts=TimeoutOverrides.model_validate(GENEROUS))
        config = Config(plugins={"good.plugin": beside, **{spec.id: settings for spec in specs}})
        if all(spec.id != "good.plugin" for spec in specs):
            found += discover([self._good])
        async with Host(found, config, trace=self._walked) as host:
            yield host

    def _walked(self, step: str) -> None:
        self._steps.append(step)


async def left_running(host: Host) -> tuple[str, ...]:
    """What the host still has, or has lost, after everything had time to go."""
    assert host._runtime is not None
    spawner = host._runtime.spawner
    mark = f"PLUGBAY_HOST={spawner.warden.mark}"
    await eventually(lambda: not spawner.children and not carrying(mark))
    held = [f"pid {pid}, which the host still counts" for pid in spawner.children]
    busy = [f"{status.spec.id}: {status.busy} busy" for status in host.plugins() if status.busy]
    return (*held, *busy, *carrying(mark))


def sampled(entries: Iterable[Entry]) -> list[Any]:
    """Rows of a catalogue, of which `make test` takes one for each way to end."""
    return one_of_each(entries, lambda entry: (entry.expect.code, entry.expect.outcome))


def entry_named(name: str) -> Entry:
    return next(entry for entry in load_catalog("rune") if entry.name == name)


def good_folder(tmp: Path) -> Path:
    return prepare(entry_named("good"), tmp / "beside")


@pytest.fixture
def port(tmp_path: Path) -> PlugbayPort:
    return PlugbayPort(good_folder(tmp_path))
