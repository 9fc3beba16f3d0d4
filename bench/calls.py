"""Measures calls in the same way for every contender: one at a time, then 64 callers at once.

The protocol is that of the floors, so that figures can be divided.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.harness import PAYLOAD, Sample, Stopwatch, percentile

IN_FLIGHT = 64

Echo = Callable[[], Awaitable[str]]


async def measure(echo: Echo, params: dict[str, Any]) -> Sample:
    """Warm up, one call at a time, warm up, 64 callers at once."""
    calls, burst = params["calls"], params["burst"]
    assert await echo() == PAYLOAD
    await one_at_a_time(echo, calls // 10)
    watch = Stopwatch()
    times = sorted(await one_at_a_time(echo, calls))
    sample = {
        "p50_us": percentile(times, 0.5),
        "p99_us": percentile(times, 0.99),
        "cpu_us": watch.cpu_us(calls),
    }
    await at_once(echo, burst // 10)
    watch = Stopwatch()
    await at_once(echo, burst)
    return sample | {"calls_per_s": watch.per_second(burst), "burst_cpu_us": watch.cpu_us(burst)}


async def one_at_a_time(echo: Echo, calls: int) -> list[float]:
    times, clock = [], time.perf_counter_ns
    for _ in range(calls):
        began = clock()
        await echo()
        times.append((clock() - began) / 1e3)
    return times


async def at_once(echo: Echo, calls: int) -> None:
    async def caller(share: int) -> None:
        for _ in range(share):
            await echo()

    shares = [calls // IN_FLIGHT + (number < calls % IN_FLIGHT) for number in range(IN_FLIGHT)]
    await asyncio.gather(*map(caller, shares))
