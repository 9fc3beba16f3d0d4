"""Being there after the end."""

from __future__ import annotations

import os
import signal

from .tools import World, libc

PR_SET_PDEATHSIG = 1


def outlive(world: World) -> None:
    """A process without parent, session, terminal, environment and fear of signals; it leaves by itself in a minute."""
    ready, told = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            libc.prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0)
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            os.dup2(os.open("/dev/null", os.O_RDWR), 0)
            os.dup2(0, 1)
            os.dup2(0, 2)
            os.execve("/bin/sleep", [f"survivor-{world['mark']}", "60"], {})  # closes `told`
        os._exit(0)
    os.close(told)
    os.read(ready, 1)
