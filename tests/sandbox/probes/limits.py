"""More than its share. All of it is bounded: where there is no limit, an attack stops by itself and has succeeded."""

from __future__ import annotations

import os
import signal
import threading

from .tools import World

MIB = 1024 * 1024


def fork_bomb(world: World) -> None:
    """40 processes at a time."""
    children = []
    try:
        for _ in range(40):
            child = os.fork()
            if child == 0:
                signal.pause()
            children.append(child)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)


def thread_bomb(world: World) -> str | None:
    """40 threads at a time."""
    done = threading.Event()
    try:
        for _ in range(40):
            threading.Thread(target=done.wait, daemon=True).start()
    except RuntimeError as error:
        return str(error)
    finally:
        done.set()
    return None


def fork_bomb_in_new_sessions(world: World) -> None:
    """40 processes that have left their session and lost their parent."""
    alive, told = os.pipe()
    for _ in range(40):
        child = os.fork()
        if child == 0:
            os.setsid()
            _orphan(alive, told)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            raise OSError(11, "fork")


def _orphan(alive: int, told: int) -> None:
    try:
        if os.fork() == 0:
            os.close(told)
            os.read(alive, 1)  # until the attack ends
    except OSError:
        os._exit(1)
    os._exit(0)


def open_files(world: World) -> None:
    """100 descriptors."""
    for _ in range(100):
        os.dup(0)


def large_file(world: World) -> None:
    """A file of 3 MiB in a folder that may be written."""
    _fill(f"{world['written']}/large-{os.getpid()}", 3 * MIB)


def fill_tmp(world: World) -> None:
    """3 MiB in /tmp, in files of half a MiB."""
    for number in range(6):
        _fill(f"/tmp/{world['mark']}-{number}", MIB // 2, keep=number < 5)


def fill_shared_memory(world: World) -> None:
    """The same in /dev/shm."""
    for number in range(6):
        _fill(f"/dev/shm/{world['mark']}-{number}", MIB // 2, keep=number < 5)


def _fill(path: str, size: int, *, keep: bool = False) -> None:
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        for _ in range(size // 65536):
            if os.write(fd, bytes(65536)) < 65536:
                raise OSError(28, "short")
    finally:
        os.close(fd)
        if not keep:
            os.unlink(path)


def sparse_file(world: World) -> None:
    """A file that only says it is large."""
    path = f"{world['written']}/sparse-{os.getpid()}"
    try:
        with open(path, "wb") as file:
            os.truncate(file.fileno(), 1 << 40)
    finally:
        os.unlink(path)
