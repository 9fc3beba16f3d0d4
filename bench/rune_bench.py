"""`rune`: one call through `plugbay.Host`, beside the same child driven by hand.

A rune child lives for one call, so most of a call is the start and the end of the child, which no host can avoid.
Measured are the overhead of the host and the gain of a pool of greeted children. Both sides run the same program with
the same arguments, working directory and environment.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
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

if TYPE_CHECKING:
    from plugbay import Host
    from plugbay.host.discovery.folders import Found

NAME = "rune"
TITLE = "One rune call, process and all: 100-byte echo"
POOL = 4
PATIENCE = 30.0
POLL_SECONDS = 0.002
PLUGIN_ID = "bench.echo"

KINDS = {"sdk": "SDK plugin", "sh": "shell plugin"}
GOALS = {"sdk": (1.3, 0.25), "sh": (1.5, 0.4)}


def run(options: Options) -> Comparison:
    """Both kinds of child, by hand, through the host, and from a warm pool."""
    calls = {"sdk": {"calls": options.size(15, 6)}, "sh": {"calls": options.size(60, 20)}}
    ways = {"bare": "spawned by hand", "host": "plugbay.Host", "pool": f"plugbay.Host, pool of {POOL}"}
    entries = [Entry(f"{way}-{kind}", f"{KINDS[kind]}, {ways[way]}", calls[kind]) for kind in KINDS for way in ways]
    rounds = interleave("bench.rune_bench", entries, options)
    findings = []
    for kind, label in KINDS.items():
        bare = f"bare-{kind}"
        host = rounds.ratio(f"host-{kind}", bare, "median_ms")
        pool = rounds.ratio(f"pool-{kind}", bare, "median_ms")
        most_host, most_pool = GOALS[kind]
        findings.append(Finding(f"{label}: Host / by hand", host, at_most=most_host))
        findings.append(Finding(f"{label}: warm pool / by hand", pool, at_most=most_pool))
    columns = [
        Column("median_ms", "median ms", digits=2),
        Column("low_ms", "fastest ms", digits=2),
        Column("high_ms", "slowest ms", digits=2),
        Column("cpu_ms", "host CPU ms/call", digits=2),
    ]
    return Comparison(NAME, TITLE, findings, columns, rounds)


# The contenders.


def by_hand(kind: str, calls: int) -> Sample:
    from plugbay.process.command import build_env, host_search_path, resolve

    spec = _found(kind).spec
    if spec is None:
        raise BenchFailed(f"the manifest of echo_{kind} is not valid")
    argv = resolve(spec.command, spec.root, host_search_path(os.environ))
    env = build_env(spec.env_inherit, os.environ, spec.env, ())
    exchange.rune(argv, spec.root, env)
    cpu = time.process_time()
    times = [exchange.rune(argv, spec.root, env).whole_ms for _ in range(calls)]
    return _sample(times, time.process_time() - cpu)


def through_host(kind: str, calls: int, pool: int = 0) -> Sample:
    return asyncio.run(_through_host(kind, calls, pool))


async def _through_host(kind: str, calls: int, pool: int) -> Sample:
    from plugbay import Host
    from plugbay.host.config.config import Config

    patient = {"launch": PATIENCE, "handshake": PATIENCE, "teardown": PATIENCE}
    config = Config.model_validate({"plugins": {PLUGIN_ID: {"pool": pool, "timeouts": patient}}})
    async with Host([_found(kind)], config) as host:
        await _timed_call(host, pool)
        times, cpu = [], 0.0
        for _ in range(calls):
            elapsed, used = await _timed_call(host, pool)
            times.append(elapsed)
            cpu += used
    return _sample(times, cpu)


async def _timed_call(host: Host, pool: int) -> tuple[float, float]:
    """Milliseconds of one call and seconds of CPU; the pool is full when it begins."""
    await _until_full(host, pool)
    cpu, began = time.process_time(), time.perf_counter()
    output = await host.call("echo", {"text": PAYLOAD}, timeout=PATIENCE)
    elapsed, used = time.perf_counter() - began, time.process_time() - cpu
    if output != {"text": PAYLOAD}:
        raise BenchFailed(f"not an echo: {output!r}")
    return elapsed * 1e3, used


async def _until_full(host: Host, pool: int) -> None:
    for _ in range(int(PATIENCE / POLL_SECONDS)):
        if host.plugins()[0].ready >= pool:
            return
        await asyncio.sleep(POLL_SECONDS)
    raise BenchFailed(f"the pool did not fill within {PATIENCE:g} s")


def _found(kind: str) -> Found:
    from plugbay.host.discovery.folders import inspect

    return inspect(CHILDREN / f"echo_{kind}")


def _sample(times: list[float], cpu: float) -> Sample:
    return {
        "median_ms": statistics.median(times),
        "low_ms": min(times),
        "high_ms": max(times),
        "cpu_ms": cpu * 1e3 / len(times),
    }


def _contender(way: str, kind: str) -> Any:
    if way == "bare":
        return lambda params: by_hand(kind, params["calls"])
    return lambda params: through_host(kind, params["calls"], POOL if way == "pool" else 0)


if __name__ == "__main__":
    serve({f"{way}-{kind}": _contender(way, kind) for kind in KINDS for way in ("bare", "host", "pool")})
