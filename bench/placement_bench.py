"""`placement`: calls that take a while, on one node, on three, and on three of which one is ten times slower.

A node has four places and its plugin answers after 20 ms, so the nodes and not the processor are the limit.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from bench.harness import (
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
    started,
)
from bench.nodes_bench import PROGRAM, nats_server

NAME = "placement"
TITLE = "Calls of 20 ms on nodes with four places"
PLUGIN = "nexo_sleep"
SECONDS, SLOW_SECONDS, PLACES = 0.02, 0.2, 4
NODES = {"one": (SECONDS,), "three": (SECONDS,) * 3, "slow": (SECONDS, SECONDS, SLOW_SECONDS)}


def run(options: Options) -> Comparison:
    """All contenders, round by round."""
    calls = options.size(3_000, 600)
    labels = {"one": "one node", "three": "three nodes", "slow": "three nodes, one ten times slower"}
    entries = [Entry(key, label, {"nodes": NODES[key], "calls": calls}, needs=PROGRAM) for key, label in labels.items()]
    rounds = interleave("bench.placement_bench", entries, options)
    findings = [
        Finding("calls/s: three nodes : one", rounds.ratio("three", "one", "calls_per_s"), at_least=2.7),
        Finding("calls/s with a slow node : all capacities", rounds.spread("slow", "of_capacity"), at_least=0.85),
    ]
    columns = [
        Column("calls_per_s", "calls/s", digits=0),
        Column("of_capacity", "of all capacities", digits=2),
        Column("cpu_us", "caller CPU us/call"),
    ]
    return Comparison(NAME, TITLE, findings, columns, rounds, missing(entries))


def measure(params: dict[str, Any]) -> Sample:
    import uvloop

    with nats_server() as (url, _), ExitStack() as stack:
        for number, seconds in enumerate(params["nodes"]):
            words = ("node", url, f"n{number}", str(PLACES), str(seconds))
            child = stack.enter_context(started([sys.executable, "-m", "bench.children.node", *words]))
            assert child.stdout is not None and child.stdout.readline().strip() == b"ready"
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_measure(url, params))


async def _measure(url: str, params: dict[str, Any]) -> Sample:
    from plugbay.cluster.calling import Cluster, Target
    from plugbay.cluster.envelope import Access, Package
    from plugbay.cluster.placement import Wish
    from plugbay.host.config.sections import ClusterConfig
    from plugbay.model.operations import InvokeTool

    nodes, calls = params["nodes"], params["calls"]
    cluster = Cluster(ClusterConfig(nats=[url]), {})
    await cluster.start()
    try:
        while len(cluster.nodes()) < len(nodes):  # noqa: ASYNC110 - a node has no event for its first beat
            await asyncio.sleep(0.01)
        package, wish = Package("bench_sleep", "1.0.0", "0" * 64, PLUGIN), Wish("bench", False, confined=False)
        target = Target(package, Access(), "bench_sleep_nap", "tool", "", "bench", wish, True)
        callers = PLACES * len(nodes)

        async def caller(left: Iterator[int]) -> None:
            for _ in left:
                ended = await cluster.call(target, InvokeTool("bench_sleep_nap", {}), 60.0)
                assert ended.failure is None, ended.failure

        async def make(count: int) -> None:
            left = iter(range(count))  # shared: a caller who waits for the slow node leaves calls to the others
            await asyncio.gather(*(caller(left) for _ in range(callers)))

        await make(5 * callers)
        watch = Stopwatch()
        await make(calls)
        per_second = watch.per_second(calls)
        capacity = sum(PLACES / seconds for seconds in nodes)
        return {"calls_per_s": per_second, "of_capacity": per_second / capacity, "cpu_us": watch.cpu_us(calls)}
    finally:
        await cluster.stop()


if __name__ == "__main__":
    serve(dict.fromkeys(NODES, measure))
