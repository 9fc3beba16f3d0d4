"""`sandbox`: the cost of the full sandbox at a start, and of a confined child during its life.

All starts go through `Spawner`, as in a host. Inside one process bare and confined starts take turns, so a ratio
compares neighbours in time. The full sandbox has another user where the host is root, namespaces, the system call
filter, control groups, limits, and the check from outside; with egress, also the proxy in its network.
"""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import exchange
from bench.harness import (
    CHILDREN,
    PAYLOAD,
    BenchFailed,
    Column,
    Comparison,
    Entry,
    Finding,
    Options,
    Sample,
    interleave,
    serve,
)
from bench.idle_bench import usage

if TYPE_CHECKING:
    from plugbay.process.child import Child, Spawner
    from plugbay.process.sandbox.policy import Policy

NAME = "sandbox"
TITLE = "The full sandbox beside the bare process"

PATIENCE = 60.0
FIRST = 8
"""Children before counting begins: twice the spawner's threads."""

SDK = CHILDREN / "echo_sdk"
PYTHON = (sys.executable, "-I", "-S", "-c", "pass")
PROGRAMS: dict[str, tuple[str, ...]] = {
    "true": ("/usr/bin/true",),
    "python": PYTHON,
    "sdk": (sys.executable, str(SDK / "plugin.py")),
}
WAYS = ("bare", "confined", "egress")


def run(options: Options) -> Comparison:
    """Every program in every way, round by round, and the fleet that only waits."""
    starts = {"starts": options.size(15, 4)}
    entries = [
        Entry("true", "true, until it is gone", starts),
        Entry("python", "python -I -S -c pass, until it is gone", starts),
        Entry("sdk", "SDK plugin, until its first result", starts),
        Entry("fleet", "confined children that wait", {"children": options.size(50, 10)}),
    ]
    rounds = interleave("bench.sandbox_bench", entries, options)

    def times(key: str, way: str) -> Any:
        return rounds.ratio(key, key, f"{way}_ms", "bare_ms")

    def each(figure: str) -> Any:
        return rounds.spread("fleet", figure)

    findings = [
        Finding("added to a start / python -I -S -c pass", rounds.spread("python", "added_x"), at_most=0.6),
        Finding("the same with a way out", rounds.spread("python", "added_egress_x")),
        Finding("true: confined / bare", times("true", "confined")),
        Finding("SDK plugin, first result: confined / bare", times("sdk", "confined")),
        Finding("SDK plugin, first result: with a way out / bare", times("sdk", "egress")),
        Finding("monitor and first process of a sandbox, PSS each", each("pss_kib"), unit=" KiB"),
        Finding("host's resident memory, each confined child", each("rss_kib"), unit=" KiB"),
        Finding("host's descriptors, each confined child", each("descriptors"), unit=""),
    ]
    columns = [Column(f"{way}_ms", f"{way} ms") for way in WAYS]
    return Comparison(NAME, TITLE, findings, columns, rounds)


# The contenders.


def starts(params: dict[str, Any]) -> Sample:
    """One program, bare and confined by turns."""
    return asyncio.run(_starts(sys.argv[1], params["starts"]))


async def _starts(key: str, count: int) -> Sample:
    from plugbay.process.child import Spawner

    spawner = Spawner()
    try:
        taken: dict[str, list[float]] = {way: [] for way in WAYS}
        for number in range(count + 1):
            for way in WAYS:
                took = await _one(spawner, key, _policy(way))
                taken[way] += [took] if number else []  # the first of each finds nothing in its place yet
    finally:
        await spawner.close()
    sample = {f"{way}_ms": statistics.median(times) for way, times in taken.items()}
    return sample | {
        "added_x": sample["confined_ms"] / sample["bare_ms"] - 1,
        "added_egress_x": sample["egress_ms"] / sample["bare_ms"] - 1,
    }


def _policy(way: str) -> Policy | None:
    from plugbay.process.sandbox.policy import Endpoint, Network, Policy, Reach

    if way == "bare":
        return None
    network = Network(Reach.LISTED, (Endpoint("api.example.com", 443),)) if way == "egress" else Network()
    return Policy(SDK, network=network)


async def _spawned(spawner: Spawner, argv: tuple[str, ...], policy: Policy | None) -> Child:
    from plugbay.process.command import Launch

    return await spawner.spawn(Launch(argv=argv, cwd=SDK, label="bench", policy=policy), PATIENCE)


async def _one(spawner: Spawner, key: str, policy: Policy | None) -> float:
    """Milliseconds from the start to the end, or to the first result."""
    began = time.perf_counter()
    child = await _spawned(spawner, PROGRAMS[key], policy)
    if key == "sdk":
        await asyncio.to_thread(_first_result, child)
        took = time.perf_counter() - began
    status = await child.wait(PATIENCE)
    took = took if key == "sdk" else time.perf_counter() - began
    if status is None or status.code != 0:
        raise BenchFailed(f"{PROGRAMS[key][-1]}: {status}, {child.stderr.tail()}")
    return took * 1e3


def _first_result(child: Child) -> None:
    stdout, stdin = child.take_pipes()
    os.set_blocking(stdout, True)
    with open(stdout, "rb") as answers, open(stdin, "wb", buffering=0) as questions:
        answer = b""
        for line in (exchange.HANDSHAKE, exchange.REQUEST):
            questions.write(line)
            answer = answers.readline()
        if PAYLOAD.encode() not in answer:
            raise BenchFailed(f"no result: {answer!r}")


def fleet(params: dict[str, Any]) -> Sample:
    """Confined children that wait for a line that never comes."""
    return asyncio.run(_fleet(params["children"]))


async def _fleet(size: int) -> Sample:
    from plugbay.process.child import Spawner

    spawner = Spawner()
    try:
        await _waiting(spawner, FIRST)
        before = usage()
        children = await _waiting(spawner, size)
        after = usage()
        sample = {name: (after[name] - before[name]) / size for name in after}
        return sample | {"pss_kib": sum(_pss_kib(child) for child in children) / size}
    finally:
        await spawner.close()


async def _waiting(spawner: Spawner, count: int) -> list[Child]:
    argv, policy = ("/bin/sh", "-c", "read line"), _policy("confined")
    children = await asyncio.gather(*(_spawned(spawner, argv, policy) for _ in range(count)))
    gc.collect()
    return list(children)


def _pss_kib(child: Child) -> float:
    """The private memory of bubblewrap's two processes, and their share of the common memory."""
    first = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
    found = 0.0
    for pid in (str(child.pid), *first):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        found += next(float(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return found


if __name__ == "__main__":
    serve({**dict.fromkeys(PROGRAMS, starts), "fleet": fleet})
