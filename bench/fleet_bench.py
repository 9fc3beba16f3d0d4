"""`fleet`: many confined plugins in one host: their start, their cost, and the cost of a bad plugin for the others.

All plugins are real SDK plugins in the full sandbox. A neighbour is a plugin of the same host that misbehaves; its
victims are called before and during that, in one process, so a ratio compares two moments of the same seconds.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.harness import (
    CHILDREN,
    BenchFailed,
    Column,
    Comparison,
    Entry,
    Finding,
    Options,
    Rounds,
    Sample,
    interleave,
    percentile,
    serve,
)
from bench.idle_bench import allow_files, usage

if TYPE_CHECKING:
    from plugbay import Host

NAME = "fleet"
TITLE = "Many confined plugins in one host, and one that does its worst"

INPUT = {"text": "x" * 1000}
PATIENCE = 60.0
MOST_REPEATS = 3
"""A round takes more than a minute."""

OWN_FILES = 64
"""Descriptors that a host may have for itself."""

FILES = 4096
"""Descriptors that the largest fleet may take, and many to spare."""

VICTIMS = 20
PAUSE = 0.05
"""Seconds between the calls of a victim: enough victims to be hit, too few calls to fill the machine by themselves."""

NEIGHBOURS = {
    "garbage": "fills its stdout with garbage",
    "events": "publishes what it may not, without end",
    "questions": "asks without end",
    "brackets": "sends nothing but brackets",
    "lists": "sends 90,000 lists in one message",
    "one_long_line": "sends a line that never ends",
    "stderr": "fills its stderr",
    "deaf": "does not read",
    "drops": "sends a byte at a time",
    "spin": "uses all the processor it gets",
    "hoard": "takes all the memory it gets",
    "breed": "forks without end",
    "die": "dies whenever it is started",
}

MANIFEST = """
[plugin]
id = "{id}"
version = "1.0.0"
name = "{id}"
description = "One of many."
min_nexo_version = ">=0.1.0"

[plugin.entrypoint]
command = "python3"
args = {args}

[plugin.extends]
tools = ["{id}_echo", "{id}_die"]

[plugin.sandbox]
enabled = true
"""


def run(options: Options) -> Comparison:
    """The whole fleet, the crowd, and the neighbours."""
    count = options.size(200, 20)
    entries = [
        Entry("fleet", f"{count} plugins", {"plugins": count, "seconds": options.size(8, 2)}),
        Entry("crowd", "a crowd of callers", {"plugins": options.size(50, 10), "calls": options.size(60, 20)}),
        Entry("beside", f"{VICTIMS} plugins with a bad neighbour", {"seconds": options.size(3, 1)}),
    ]
    rounds = interleave("bench.fleet_bench", entries, replace(options, repeats=min(options.repeats, MOST_REPEATS)))
    columns = [
        Column("calls", "calls", digits=0),
        Column("busy_ms", "longest stretch of the loop, CPU ms"),
        Column("calm_ms", "p99 ms without a neighbour"),
    ]
    return Comparison(NAME, TITLE, [*_fleet_findings(rounds), *_neighbour_findings(rounds)], columns, rounds)


def _fleet_findings(rounds: Rounds) -> list[Finding]:
    def fleet(figure: str) -> Any:
        return rounds.spread("fleet", figure)

    def crowd(figure: str) -> Any:
        return rounds.spread("crowd", figure)

    return [
        Finding("all started at once: until the last has answered", fleet("start_s"), at_most=30, unit=" s"),
        Finding("of these, failed", fleet("start_failed"), at_most=0, unit=""),
        Finding("host's memory for each", fleet("rss_kib"), at_most=256, unit=" KiB"),
        Finding(f"host's descriptors beyond {OWN_FILES}, for each", fleet("descriptors"), at_most=4, unit=""),
        Finding("threads of the host", fleet("threads"), at_most=16, unit=""),
        Finding("called once a second: failed", fleet("failed"), at_most=0, unit=""),
        Finding("one call after the other, 1 KiB: p50", fleet("p50_us"), at_most=250, unit=" us"),
        Finding("the same: p99", fleet("p99_us"), at_most=1000, unit=" us"),
        Finding("a crash: until the call that waits has failed, p99", fleet("noticed_ms"), at_most=100, unit=" ms"),
        Finding("50 plugins, 8 callers each: calls/s", crowd("calls_per_s"), at_least=8000, unit="/s"),
        Finding("the same: p99", crowd("p99_ms"), unit=" ms"),  # 400 calls wait at a time: it follows from the rate
    ]


def _neighbour_findings(rounds: Rounds) -> list[Finding]:
    def beside(figure: str) -> Any:
        return rounds.spread("beside", figure)

    return [
        *(
            Finding(f"p99, added by one that {what}", beside(f"added_{way}"), at_most=10, unit=" ms")
            for way, what in NEIGHBOURS.items()
        ),
        Finding("calls that failed beside any of them", beside("failed"), at_most=0, unit=""),
        Finding("longest stretch of the loop beside any, CPU", beside("busy_ms"), at_most=50, unit=" ms"),
    ]


# The contenders.


def fleet(params: dict[str, Any]) -> Sample:
    with _plugins(params["plugins"]) as folder:
        return _run(_fleet, folder, params["plugins"], params["seconds"])


def crowd(params: dict[str, Any]) -> Sample:
    with _plugins(params["plugins"]) as folder:
        return _run(_crowd, folder, params["plugins"], params["calls"])


def beside(params: dict[str, Any]) -> Sample:
    with _plugins(VICTIMS) as folder:
        return _run(_neighbourhood, folder, params["seconds"])


@contextmanager
def _plugins(count: int = 0, neighbour: str = "") -> Iterator[Path]:
    """A folder of plugins, each in its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # confined plugins are other users
        for number in range(count):
            _write(folder / _id(number), "member.py")
        if neighbour:
            _write(folder / "bad", "neighbour.py", neighbour)
        yield folder


def _write(folder: Path, program: str, *arguments: str) -> None:
    folder.mkdir()
    shutil.copy(CHILDREN / "fleet" / program, folder / "plugin.py")
    args = str(["plugin.py", *arguments]).replace("'", '"')
    (folder / "nexo-plugin.toml").write_text(MANIFEST.format(id=folder.name, args=args))


def _id(number: int) -> str:
    return f"p{number:03d}"


def _run(measured: Callable[..., Awaitable[Sample]], folder: Path, *arguments: Any) -> Sample:
    import logging

    import uvloop

    logging.getLogger("plugbay").setLevel("ERROR")  # neighbours are warned of, as they should be
    allow_files(FILES)

    async def main() -> Sample:
        async with _hosted(folder) as host:
            return await measured(host, *arguments)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


@asynccontextmanager
async def _hosted(folder: Path) -> AsyncIterator[Host]:
    from plugbay import Host

    with tempfile.TemporaryDirectory() as state:
        async with Host.load(folder, grant_all=True, state_dir=Path(state)) as host:
            yield host


async def _fleet(host: Host, count: int, seconds: float) -> Sample:
    ids = [_id(number) for number in range(count)]
    before = usage()
    began = time.perf_counter()
    started = await asyncio.gather(*(host.attempt(f"{id}_echo", INPUT, timeout=PATIENCE) for id in ids))
    sample: Sample = {"start_s": time.perf_counter() - began}
    sample["start_failed"] = sum(result.failure is not None for result in started)
    after = usage()
    sample["rss_kib"] = (after["rss_kib"] - before["rss_kib"]) / count
    sample["descriptors"] = max(0.0, after["descriptors"] - OWN_FILES) / count
    sample["threads"] = after["threads"]
    watch = Busy()
    calls = await _called(host, ids, seconds, 1.0)
    sample |= {"failed": calls.failed, "busy_ms": watch.stop(), "calls": len(calls.times)}
    times = sorted([await _timed(host, ids[0]) for _ in range(2000)])
    sample |= {"p50_us": percentile(times, 0.5) * 1e6, "p99_us": percentile(times, 0.99) * 1e6}
    deaths = sorted([await _death(host, id) for id in ids[:20]])
    return sample | {"noticed_ms": percentile(deaths, 0.99) * 1e3}


async def _death(host: Host, id: str) -> float:
    """Seconds from the end of a process to the end of the call that it was answering."""
    began = time.perf_counter()
    result = await host.attempt(f"{id}_die", {}, timeout=PATIENCE)
    if result.failure is None:
        raise BenchFailed(f"{id} did not die")
    return time.perf_counter() - began


async def _crowd(host: Host, count: int, calls: int) -> Sample:
    ids = [_id(number) for number in range(count)]
    await asyncio.gather(*(host.call(f"{id}_echo", INPUT, timeout=PATIENCE) for id in ids))
    times: list[float] = []

    async def caller(id: str) -> None:
        for _ in range(calls):
            times.append(await _timed(host, id))

    watch = Busy()
    began = time.perf_counter()
    await asyncio.gather(*(caller(id) for id in ids for _ in range(8)))
    took = time.perf_counter() - began
    times.sort()
    sample: Sample = {"calls_per_s": len(times) / took, "p99_ms": percentile(times, 0.99) * 1e3}
    return sample | {"busy_ms": watch.stop(), "calls": len(times)}


async def _neighbourhood(host: Host, seconds: float) -> Sample:
    """Before and beside each neighbour, which lives in a host of its own in the same loop, and so can be ended."""
    ids = [_id(number) for number in range(VICTIMS)]
    await asyncio.gather(*(host.call(f"{id}_echo", INPUT, timeout=PATIENCE) for id in ids))
    watch, calm_times, sample = Busy(), [], {"failed": 0.0, "calls": 0.0}
    for way in NEIGHBOURS:
        calm = await _called(host, ids, seconds, PAUSE)
        with _plugins(neighbour=way) as folder:
            async with _hosted(folder) as other:
                asked = asyncio.ensure_future(_provoke(other, way))
                await _until_it_is_bad(other)
                bad = await _called(host, ids, seconds, PAUSE)
                asked.cancel()
        sample[f"added_{way}"] = bad.p99_ms - calm.p99_ms
        sample["failed"] += calm.failed + bad.failed
        sample["calls"] += len(bad.times)
        calm_times += calm.times
    return sample | {"busy_ms": watch.stop(), "calm_ms": percentile(sorted(calm_times), 0.99) * 1e3}


async def _provoke(host: Host, way: str) -> None:
    """Calls that the neighbour will not answer; more than its pipe holds for the one that does not read."""
    size, calls = (10_000, 500) if way == "deaf" else (1, 1)
    await asyncio.gather(*(host.attempt("bad_echo", {"text": "x" * size}, timeout=PATIENCE) for _ in range(calls)))


async def _until_it_is_bad(host: Host) -> None:
    async with asyncio.timeout(PATIENCE):
        for _ in itertools.count():
            bad = host.plugins()[0]
            if bad.generation or bad.state in ("backoff", "quarantined"):
                return
            await asyncio.sleep(PAUSE)


class Called:
    """What came of many calls."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.failed = 0

    @property
    def p99_ms(self) -> float:
        return percentile(sorted(self.times), 0.99) * 1e3


async def _called(host: Host, ids: list[str], seconds: float, pause: float) -> Called:
    """Each plugin called again and again for so long, with a pause in between; they do not begin all at once."""
    called = Called()
    end = time.perf_counter() + seconds

    async def caller(number: int, id: str) -> None:
        await asyncio.sleep(pause * number / len(ids))
        for _ in itertools.takewhile(lambda _: time.perf_counter() < end, itertools.count()):
            began = time.perf_counter()
            result = await host.attempt(f"{id}_echo", INPUT, timeout=5)
            called.times.append(time.perf_counter() - began)
            called.failed += result.failure is not None
            await asyncio.sleep(pause)

    await asyncio.gather(*(caller(number, id) for number, id in enumerate(ids)))
    return called


async def _timed(host: Host, id: str) -> float:
    began = time.perf_counter()
    await host.call(f"{id}_echo", INPUT)
    return time.perf_counter() - began


class Busy:
    """The longest stretch for which the loop was at one thing, in processor time: a full machine does not count."""

    def __init__(self) -> None:
        self._longest = 0.0
        self._task = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        for _ in itertools.count():
            began = time.thread_time()
            await asyncio.sleep(0)
            self._longest = max(self._longest, time.thread_time() - began)
            await asyncio.sleep(0.001)

    def stop(self) -> float:
        """Milliseconds."""
        self._task.cancel()
        return self._longest * 1e3


if __name__ == "__main__":
    serve({"fleet": fleet, "crowd": crowd, "beside": beside})
