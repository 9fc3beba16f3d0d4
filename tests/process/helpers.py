"""What these tests share: launches, conditions with a deadline, and an outside view of processes."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from plugbay.process.child import Child, Spawner
from plugbay.process.command import Launch
from plugbay.process.limits import Rlimits
from tests.support.patience import PATIENCE, until

Run = Callable[[Coroutine[Any, Any, Any]], Any]


ROOT = Path(__file__).parents[2]
PYTHON = (sys.executable, "-I", "-S", "-c")
SHELL = ("/bin/sh", "-c")

DETACHED = "(setsid sleep 600 &)"
"""A double fork and a new session: out of reach for a signal to the group."""


def launch(
    *argv: str, env: Mapping[str, str] | None = None, limits: Rlimits | None = None, cwd: Path = Path("/")
) -> Launch:
    variables = {"PATH": os.environ["PATH"], **(env or {})}
    return Launch(argv=argv, cwd=cwd, env=variables, limits=limits or Rlimits(), label="test")


@asynccontextmanager
async def open_spawner(log_dir: Path | None = None, **options: Any) -> AsyncIterator[Spawner]:
    spawner = Spawner(log_dir, **options)
    try:
        yield spawner
    finally:
        await spawner.close()


async def spawn(spawner: Spawner, *argv: str, **options: Any) -> Child:
    return await spawner.spawn(launch(*argv, **options), PATIENCE)


async def read_until(fd: int, end: bytes = b"\n", seconds: float = PATIENCE) -> bytes:
    """What a child wrote up to and including `end`, or up to the end of the file."""
    loop = asyncio.get_running_loop()
    data = b""
    async with asyncio.timeout(seconds):
        while not data.endswith(end):
            readable = asyncio.Event()
            loop.add_reader(fd, readable.set)
            try:
                await readable.wait()
            finally:
                loop.remove_reader(fd)
            piece = os.read(fd, 65536)
            if not piece:
                break
            data += piece
    return data


async def output_of(spawner: Spawner, *argv: str, **options: Any) -> str:
    """Everything a short command writes to stdout."""
    child = await spawn(spawner, *argv, **options)
    stdout, stdin = child.take_pipes()
    os.close(stdin)
    try:
        return (await read_until(stdout, b"\0never\0")).decode()
    finally:
        os.close(stdout)
        await child.wait(PATIENCE)


async def detached(spawner: Spawner, last: str = "") -> tuple[Child, set[int]]:
    """A child that waits for a line and then does `last`, and the descendants that left its group."""
    child = await spawn(spawner, *SHELL, f"{DETACHED}; read line; {last}")

    escaped: set[int] = set()

    def is_seen() -> bool:
        """Once is enough: a process that is becoming another program has no environment for a moment."""
        escaped.update(pid for pid in carrying(child.token) if session(pid) not in (0, child.pid))
        return bool(escaped)

    await until(is_seen)
    return child, escaped


def close_pipes(child: Child) -> None:
    for fd in child.take_pipes():
        os.close(fd)


def carrying(mark: str) -> set[int]:
    """Pids of all processes whose environment contains this text; found without the code under test."""
    found = set()
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and mark.encode() in Path(f"/proc/{entry}/environ").read_bytes():
                found.add(int(entry))
        except OSError:
            continue
    return found


def stat(pid: int) -> list[str]:
    """State, parent, group, session and so on of a process; empty when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def state(pid: int) -> str:
    return (stat(pid) or [""])[0]


def session(pid: int) -> int:
    """The session of a process; 0 when it is gone."""
    fields = stat(pid)
    return int(fields[3]) if fields and fields[0] not in "ZX" else 0


def exists(pid: int) -> bool:
    """True while the process runs; a zombie is dead."""
    return state(pid) not in {"", "Z", "X"}


def open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


def threads() -> int:
    return threading.active_count()


def rss_kib() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024
