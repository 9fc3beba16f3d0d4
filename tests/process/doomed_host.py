"""A host that is about to be killed: starts twenty children of every kind, says so, and waits.

Prints its helper's pid and the mark of all it started. Run as `python -m tests.process.doomed_host LOOP`.
"""

from __future__ import annotations

import asyncio
import sys

from plugbay.process.child import Spawner
from tests.process.churn import SCRIPTS
from tests.process.helpers import SHELL, read_until, spawn
from tests.support.patience import PATIENCE

CHILDREN = 20


async def main() -> None:
    spawner = Spawner()
    scripts = list(SCRIPTS.values())
    for number in range(CHILDREN):
        child = await spawn(spawner, *SHELL, scripts[number % len(scripts)])
        stdout, _ = child.take_pipes()
        await read_until(stdout)
    await spawner.warden.settled(PATIENCE)  # It learns now that all have started; else it would look 15 s longer.
    print(spawner.warden.pid, spawner.warden.mark, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    if sys.argv[1] == "uvloop":
        import uvloop

        uvloop.run(main())
    asyncio.run(main())
