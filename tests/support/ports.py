"""Ports of servers that tests start, and start again at the same port.

A port that the kernel chose is free only for the moment: the next outgoing connection, or another test, may have it
before the server does, or while the server is down. `free_port` stays below the range of outgoing connections, and
gives a port once in twenty thousand times, whatever process asks.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
import tempfile
from pathlib import Path

FIRST, COUNT = 11_000, 20_000


def free_port() -> int:
    """A port on 127.0.0.1 that no other test has."""
    with open(Path(tempfile.gettempdir()) / f"plugbay-test-ports-{os.getuid()}", "a+") as last:
        fcntl.flock(last, fcntl.LOCK_EX)
        last.seek(0)
        at = int(last.read() or secrets.randbelow(COUNT))
        while not _is_free(FIRST + (at := (at + 1) % COUNT)):
            pass
        last.truncate(0)
        last.write(str(at))
    return FIRST + at


def _is_free(port: int) -> bool:
    with socket.socket() as found:
        try:
            found.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
