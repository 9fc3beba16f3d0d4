"""Children are looked at until they end, and whoever asked hears once what was found. Real children."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path

from plugbay.host.confinement.watch import Watch
from plugbay.process.child import Child, Spawner
from plugbay.process.command import Launch
from tests.support.loops import Run
from tests.support.patience import until


async def waiting(spawner: Spawner) -> Child:
    return await spawner.spawn(Launch((sys.executable, "-c", "input()"), Path.cwd(), label="p"), 20)


def test_what_is_found_is_told_once_and_nobody_looks_when_nobody_is_left(run: Run) -> None:
    async def main() -> None:
        spawner, watch, told = Spawner(), Watch(0.01), list[str]()
        before = asyncio.all_tasks()
        first, second = await waiting(spawner), await waiting(spawner)
        looks = threading.Semaphore(0)
        watch.begin(first, lambda: looks.release(), told.append)
        watch.begin(second, lambda: "too much", told.append)
        (looking,) = asyncio.all_tasks() - before
        for _ in range(3):  # the first is looked at in each round, and so would be the second
            await asyncio.to_thread(looks.acquire)
        await until(lambda: bool(told))
        assert told == ["too much"]
        second.kill()
        await second.wait()
        assert not looking.done()
        first.kill()
        await first.wait()
        await until(looking.done)
        third = await waiting(spawner)
        watch.begin(third, lambda: "again", told.append)
        await until(lambda: told == ["too much", "again"])
        for child in (first, second, third):
            child.close()
        await spawner.close()

    run(main)
