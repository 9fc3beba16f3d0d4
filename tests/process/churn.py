"""Start and end children in every combination, many times, and report what is left. Reused by longer runs."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import random
from dataclasses import dataclass

from plugbay.process.child import Child, Spawner
from tests.process.helpers import DETACHED, SHELL, carrying, open_fds, read_until, rss_kib, spawn, threads
from tests.support.patience import PATIENCE

SCRIPTS = {
    "direct": "echo up; read line",
    "wrapped": "sleep 600 & echo up; read line",
    "detached": f"{DETACHED}; echo up; read line",
}
"""Each leaves when its stdin is closed; what it started does not."""

ENDS = ("killed", "stopped", "left", "interrupted")
"""The last one is killed at a random moment of its start, also in the middle of a fork or an exec."""

START_SECONDS = 0.01
"""About as long as a start takes."""

WARM_UP = 30
"""Starts before the first measurement: threads, caches and allocator pools reach their size."""


@dataclass(frozen=True, slots=True)
class Residue:
    """What a churn left behind, next to nothing; only the pool may have grown to its number of threads."""

    orphans: int
    children: int
    fds: int
    threads: int
    rss_kib: int
    survivors_killed: int


async def churn(count: int) -> Residue:
    """Run `count` starts and ends, one after the other."""
    spawner = Spawner()
    plan = itertools.cycle(itertools.product(SCRIPTS, ENDS))
    try:
        await asyncio.gather(*(_once(spawner, *next(plan)) for _ in range(WARM_UP)))
        gc.collect()
        fds, running, rss = open_fds(), threads(), rss_kib()
        for _ in range(count):
            await _once(spawner, *next(plan))
        assert await spawner.swept(PATIENCE)
        gc.collect()
        return Residue(
            orphans=len(carrying(spawner.warden.mark)),
            children=len(spawner.children),
            fds=open_fds() - fds,
            threads=threads() - running,
            rss_kib=rss_kib() - rss,
            survivors_killed=spawner.survivors_killed,
        )
    finally:
        await spawner.close()


async def _once(spawner: Spawner, kind: str, end: str) -> None:
    child = await spawn(spawner, *SHELL, SCRIPTS[kind])
    stdout, stdin = child.take_pipes()
    try:
        if end == "interrupted":
            await asyncio.sleep(random.random() * START_SECONDS)
        else:
            assert await read_until(stdout) == b"up\n"
        await end_child(child, end, stdin)
    finally:
        os.close(stdout)
        os.close(stdin)


async def end_child(child: Child, end: str, stdin: int) -> None:
    """End a child that is up in one of the ways of `ENDS`, and see that it ended."""
    if end == "stopped":
        status = await child.stop(PATIENCE, PATIENCE)
    elif end == "left":
        os.write(stdin, b"go\n")
        status = await child.wait(PATIENCE)
    else:
        child.kill()
        status = await child.wait(PATIENCE)
    assert status is not None
