"""What only control groups limit: the memory and the time of a whole tree. Bounded, like all attacks."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress

from .tools import World


def memory_hog(world: World) -> None:
    """160 MiB in one process."""
    bytearray(160 << 20)


def memory_hog_in_parts(world: World) -> None:
    """The same in four processes."""
    children = []
    ready, hold = os.pipe(), os.pipe()
    for _ in range(4):
        child = os.fork()
        if child == 0:
            piece = bytearray(40 << 20)
            os.write(ready[1], b"." if piece else b"")
            os.close(ready[1])  # or nobody would notice the death of another one
            os.close(hold[1])
            os.read(hold[0], 1)
            os._exit(0)
        children.append(child)
    os.close(ready[1])
    held = 0
    while held < 4 and os.read(ready[0], 1):
        held += 1
    os.close(hold[1])
    for child in children:
        os.waitpid(child, 0)
    if held < 4:
        raise OSError(12, "memory")


def socket_buffers(world: World) -> None:
    """40 MiB on their way between sockets."""
    listening = socket.create_server(("127.0.0.1", 0))
    kept, waiting = [], 0
    for _ in range(40):
        kept += [socket.create_connection(listening.getsockname()), listening.accept()[0]]
        kept[-2].setblocking(False)
        with suppress(BlockingIOError):
            while waiting < 40 << 20:
                waiting += kept[-2].send(bytes(1 << 16))
    if waiting < 40 << 20:
        raise OSError(12, "memory")


def empty_files(world: World) -> None:
    """60 000 files without a byte in them: each takes memory of the kernel, and no size of /tmp counts that."""
    for number in range(60_000):
        os.close(os.open(f"/tmp/{number}", os.O_CREAT | os.O_WRONLY))


def spin(world: World) -> None:
    """50 ms of the processor; the driver looks whether the kernel held it back."""
    while time.process_time() < 0.05:
        pass
