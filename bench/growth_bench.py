"""`growth`: the cost of a call, by the number of running plugins and of calls in flight.

Every plugin is a process of its own; callers go round all of them. A host that has one call in flight waits for its
child, so its rate says nothing about the host, and its processor time does.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.harness import (
    CHILDREN,
    PAYLOAD,
    Column,
    Comparison,
    Entry,
    Finding,
    Options,
    Sample,
    Stopwatch,
    interleave,
    missing,
    serve,
)
from bench.idle_bench import allow_files

NAME = "growth"
TITLE = "The cost of a call with more plugins, and with more calls in flight"

PLUGINS = (10, 100, 500)
IN_FLIGHT = (1, 64, 512)
FILES = 4096
MOST_REPEATS = 3
"""500 plugins take a minute to start."""

MANIFEST = """\
[plugin]
id = "{id}"
version = "1.0.0"
name = "{id}"
description = "One of many."
min_nexo_version = ">=0.1.0"

[plugin.entrypoint]
command = "python3"
args = ["-S", "child.py"]

[plugin.extends]
tools = ["{id}_echo"]
"""


def run(options: Options) -> Comparison:
    """Every number of plugins, round by round."""
    counts = PLUGINS[:2] if options.quick else PLUGINS
    calls = options.size(20_000, 4_000)
    entries = [Entry(str(count), f"{count} plugins", {"plugins": count, "calls": calls}, "uvloop") for count in counts]
    rounds = interleave("bench.growth_bench", entries, replace(options, repeats=min(options.repeats, MOST_REPEATS)))
    least = str(counts[0])
    findings = [
        Finding(
            f"{count} plugins, {number} in flight: CPU / {least}", rounds.ratio(str(count), least, cpu_field(number))
        )
        for count in counts[1:]
        for number in IN_FLIGHT
    ]
    columns = [Column(cpu_field(number), f"host CPU us/call, {number} in flight", digits=2) for number in IN_FLIGHT]
    columns += [Column(_rate(number), f"calls/s, {number} in flight", digits=0) for number in IN_FLIGHT[1:]]
    return Comparison(NAME, TITLE, findings, columns, rounds, missing(entries))


def cpu_field(in_flight: int) -> str:
    return f"cpu_{in_flight}_us"


def _rate(in_flight: int) -> str:
    return f"per_s_{in_flight}"


def measure(params: dict[str, Any]) -> Sample:
    import uvloop

    allow_files(FILES)
    with (
        tempfile.TemporaryDirectory(prefix="plugbay-bench-") as folder,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(_measure(Path(folder), params))


async def _measure(folder: Path, params: dict[str, Any]) -> Sample:
    from plugbay import Host
    from plugbay.host.discovery.folders import discover

    ids = [f"many_{number}" for number in range(params["plugins"])]
    for id in ids:
        (folder / id).mkdir()
        (folder / id / "nexo-plugin.toml").write_text(MANIFEST.format(id=id))
        shutil.copy(CHILDREN / "growth/child.py", folder / id / "child.py")
    names = [f"{id}_echo" for id in ids]
    given = {"text": PAYLOAD}
    async with Host(discover([folder / id for id in ids])) as host:
        await asyncio.gather(*(host.call(name, given, timeout=300) for name in names))

        async def caller(share: int, name: Any) -> None:
            for _ in range(share):
                await host.call(next(name), given)

        sample: Sample = {}
        for in_flight in IN_FLIGHT:
            calls = params["calls"] if in_flight > 1 else params["calls"] // 4
            turns = itertools.cycle(names)
            await asyncio.gather(*(caller(calls // in_flight // 10 + 1, turns) for _ in range(in_flight)))
            watch = Stopwatch()
            await asyncio.gather(*(caller(calls // in_flight, turns) for _ in range(in_flight)))
            made = calls // in_flight * in_flight
            sample |= {cpu_field(in_flight): watch.cpu_us(made), _rate(in_flight): watch.per_second(made)}
        return sample


if __name__ == "__main__":
    serve({str(count): measure for count in PLUGINS})
