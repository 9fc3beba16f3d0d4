"""`idle`: the cost of an idle resident child for its host in memory, descriptors and threads.

Children are spawned and greeted through `Spawner` and `Link`: first a few, so that costs per host (pool threads, the
warden, the first allocations) are not counted, then many more. Afterwards each child must answer a call, because a lost
child would be cheap.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.harness import (
    CHILDREN,
    ROOT,
    BenchFailed,
    Column,
    Comparison,
    Entry,
    Finding,
    Options,
    Rounds,
    Sample,
    interleave,
    serve,
)

if TYPE_CHECKING:
    from plugbay.link.deadlines import Deadlines
    from plugbay.link.link import Link
    from plugbay.process.child import Spawner
    from plugbay.wire.fast_json import MsgspecCodec

NAME = "idle"
TITLE = "A resident child that does nothing, in its host"

SIZES = (100, 500)
FIRST = 16
"""Children before counting begins: four times the spawner's threads."""
PATIENCE = 60.0
SPARE_FILES = 64


def run(options: Options) -> Comparison:
    """Both fleets, round by round."""
    if not Path("/proc/self/statm").exists():
        return Comparison(NAME, TITLE, [], [], Rounds([]), ["left out: there is no /proc here"])
    entries = [Entry(f"n{size}", f"{size} children", {"children": size}) for size in SIZES]
    rounds = interleave("bench.idle_bench", entries, options)
    findings = []
    for entry in entries:
        figures = {name: rounds.spread(entry.key, name) for name in ("rss_kib", "pipes", "pidfds", "threads", "lost")}
        findings += [
            Finding(f"{entry.label}: resident memory each", figures["rss_kib"], at_most=16, unit=" KiB"),
            Finding(f"{entry.label}: pipes each", figures["pipes"], at_most=3, unit=""),
            Finding(f"{entry.label}: pidfds each", figures["pidfds"], at_most=1, unit=""),
            Finding(f"{entry.label}: threads each", figures["threads"], at_most=0, unit=""),
            Finding(f"{entry.label}: lost", figures["lost"], at_most=0, unit=""),
        ]
    columns = [
        Column("start_ms", "spawn and greet, ms/child", digits=2),
        Column("cpu_ms", "host CPU, ms/child", digits=2),
        Column("descriptors", "descriptors each", digits=2),
        Column("stop_ms", "kill and reap, ms/child", digits=2),
    ]
    return Comparison(NAME, TITLE, findings, columns, rounds)


# The contender.


def fleet(params: dict[str, Any]) -> Sample:
    allow_files((params["children"] + FIRST) * 4 + SPARE_FILES)
    return asyncio.run(_fleet(params["children"]))


async def _fleet(size: int) -> Sample:
    from plugbay.link.deadlines import Deadlines
    from plugbay.process.child import Spawner
    from plugbay.wire.fast_json import MsgspecCodec

    spawner, deadlines, codec = Spawner(), Deadlines(asyncio.get_running_loop()), MsgspecCodec()
    try:
        links = await _greeted(FIRST, spawner, deadlines, codec)
        before = usage()
        began, cpu = time.perf_counter(), time.process_time()
        links += await _greeted(size, spawner, deadlines, codec)
        took, used = time.perf_counter() - began, time.process_time() - cpu
        after = usage()
        sample = {name: (after[name] - before[name]) / size for name in after}
        sample |= {"start_ms": took * 1e3 / size, "cpu_ms": used * 1e3 / size}
        sample["lost"] = size + FIRST - len(spawner.children) + await _silent(links)
    finally:
        began = time.perf_counter()
        await spawner.close()
    return sample | {"stop_ms": (time.perf_counter() - began) * 1e3 / size}


async def _greeted(count: int, spawner: Spawner, deadlines: Deadlines, codec: MsgspecCodec) -> list[Link]:
    return list(await asyncio.gather(*(_greet_one(spawner, deadlines, codec) for _ in range(count))))


async def _greet_one(spawner: Spawner, deadlines: Deadlines, codec: MsgspecCodec) -> Link:
    from plugbay.contracts.base import Role
    from plugbay.link.link import Link
    from plugbay.link.stream import PipeStream
    from plugbay.process.command import Launch
    from tests.support.echo import EchoMachine

    argv = ("/bin/sh", str(CHILDREN / "idle_child.sh"))
    child = await spawner.spawn(Launch(argv=argv, cwd=ROOT, label="idle"), PATIENCE)
    stream = PipeStream(asyncio.get_running_loop(), *child.take_pipes())
    link = Link(EchoMachine(Role.HOST, codec), stream, deadlines, has_process=True)
    child.on_exit(lambda _: link.peer_exited())
    failure = await link.open(PATIENCE)
    if failure is not None:
        raise BenchFailed(str(failure))
    return link


async def _silent(links: list[Link]) -> int:
    """How many children do not answer."""
    from plugbay.model.operations import InvokeTool

    answers = await asyncio.gather(*(link.call(InvokeTool("echo", {}), PATIENCE) for link in links))
    return sum(answer.failure is not None for answer in answers)


def usage() -> dict[str, float]:
    """What this process holds right now, after a collection."""
    gc.collect()
    kinds = [_kind(fd) for fd in os.listdir("/proc/self/fd")]
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "rss_kib": pages * resource.getpagesize() / 1024,
        "descriptors": len(kinds),
        "pipes": kinds.count("pipe"),
        "pidfds": kinds.count("anon_inode"),
        "threads": len(os.listdir("/proc/self/task")),
    }


def _kind(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}").partition(":")[0]
    except OSError:
        return "gone"


def allow_files(wanted: int) -> None:
    """Raise the limit of this process where it is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise BenchFailed(f"{wanted} open files are needed, {hard} are allowed (ulimit -Hn)")
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


if __name__ == "__main__":
    serve({f"n{size}": fleet for size in SIZES})
