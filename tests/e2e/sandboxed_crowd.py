"""Hosts that are about to be killed: each has twenty confined plugins of every kind, says so, and waits.

Reads a number on stdin and becomes such a host, whose plugins carry that number among their arguments; prints its pid
and its helper's. When it is dead the next number is read. Forked from one process, because fifty times the start of a
Python would be most of the work. Run as `python -m tests.e2e.sandboxed_crowd FOLDER`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from itertools import cycle, islice
from pathlib import Path

from plugbay.process.child import Spawner
from plugbay.process.command import Launch
from plugbay.process.sandbox.policy import Policy
from tests.process.helpers import read_until
from tests.support.patience import PATIENCE

PLUGINS = 20

KINDS = (
    "echo ready; exec sleep {0}",
    "sh -c 'echo ready; sleep {0}; true'",
    "(setsid sh -c 'sleep {0}; true' &); echo ready; sleep {0}; true",
)
"""The program itself, one through a shell, and one with a descendant that was forked twice into a session of its own.

None of them reads its stdin or writes anything more: nothing but a signal ends them.
"""


async def host(number: str, package: Path) -> None:
    spawner = Spawner()

    async def start(at: int, script: str) -> int:
        argv = ("/bin/sh", "-c", script.format(number))
        launch = Launch(argv, package, {"PATH": "/usr/bin:/bin"}, label=f"crowd-{at}", policy=Policy(package))
        child = await spawner.spawn(launch, PATIENCE)
        stdout, _ = child.take_pipes()
        await read_until(stdout)
        return stdout

    await asyncio.gather(*(start(at, script) for at, script in enumerate(islice(cycle(KINDS), PLUGINS))))
    await spawner.warden.settled(PATIENCE)  # It learns now that all have started; else it would look 15 s longer.
    print(os.getpid(), spawner.warden.pid, flush=True)
    await asyncio.Event().wait()


def main(package: Path) -> None:
    while number := sys.stdin.readline().strip():
        if not os.fork():
            asyncio.run(host(number, package))
        if not os.WIFSIGNALED(os.wait()[1]):  # it could not start its plugins, and has said why
            sys.exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
