"""How much an idle child costs its host, measured in a process of its own.

Prints `name value` lines. Run as `python -m tests.process.scale COUNT LOOP`.
"""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable

from plugbay.process.child import Child, Spawner
from tests.process.helpers import close_pipes, open_fds, read_until, rss_kib, spawn, threads
from tests.support.patience import PATIENCE, until

WARM_UP = 20
"""Children before the first measurement: threads, caches and allocator pools reach their size."""

TIMED = 50
"""Starts whose effect on the loop is measured."""


async def main(count: int) -> dict[str, float]:
    spawner = Spawner()
    for _, *pipes in await asyncio.gather(*(_idle_child(spawner) for _ in range(WARM_UP))):
        assert await _answers(*pipes)
    await until(lambda: not spawner.children)
    gc.collect()
    before = (rss_kib(), open_fds(), threads())
    began = time.monotonic()
    family = await asyncio.gather(*(_idle_child(spawner) for _ in range(count)))
    seconds = time.monotonic() - began
    gc.collect()
    after = (rss_kib(), open_fds(), threads())
    alive = sum([await _answers(*pipes) for _, *pipes in family])
    blocked = [await _longest_gap(spawner) for _ in range(TIMED)]
    await spawner.close()
    return {
        "alive": alive,
        "kib_per_child": (after[0] - before[0]) / count,
        "fds_per_child": (after[1] - before[1]) / count,
        "threads": after[2] - before[2],
        "start_seconds": seconds,
        "blocked_ms_median": statistics.median(blocked) * 1000,
        "blocked_ms_worst": max(blocked) * 1000,
        "children_left": len(spawner.children),
    }


async def _idle_child(spawner: Spawner) -> tuple[Child, int, int]:
    child = await spawn(spawner, "/bin/cat")
    return child, *child.take_pipes()


async def _answers(stdout: int, stdin: int) -> bool:
    os.write(stdin, b"are you there\n")
    try:
        return await read_until(stdout) == b"are you there\n"
    finally:
        os.close(stdout)
        os.close(stdin)


async def _longest_gap(spawner: Spawner) -> float:
    """The longest time for which the loop ran nothing while one child was started."""
    loop = asyncio.get_running_loop()
    gaps: list[float] = []
    last = time.perf_counter()

    def tick() -> None:
        nonlocal last
        now = time.perf_counter()
        gaps.append(now - last)
        last = now
        if not done:
            loop.call_soon(tick)

    done = False
    loop.call_soon(tick)
    child = await spawn(spawner, "/bin/cat")
    done = True
    close_pipes(child)
    await child.wait(PATIENCE)
    return max(gaps)


if __name__ == "__main__":
    factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    if sys.argv[2] == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        for name, value in runner.run(main(int(sys.argv[1]))).items():
            print(name, value)
