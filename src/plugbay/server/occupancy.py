"""One server for each data directory, and where to find it.

Owns the lock, which the system lets go of however the server ends, the files that tell commands their addresses, and
which server a command means. A second server is refused with the pid of the first, which goes on running.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from plugbay.packages.durable import write_file
from plugbay.store.locks import locked

LOCK_FILE = "server.lock"
RUNTIME_FOLDER = "servers"
"""Below the state directory: a file for each server that runs."""


@contextmanager
def occupied(data: Path) -> Iterator[None]:
    """The data directory is ours for as long as this lasts; raises `InUse`."""
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    with locked(data / LOCK_FILE, str(data)):
        yield


class Found(msgspec.Struct, frozen=True):
    """A server, as its file tells of it."""

    url: str
    pid: int
    token_file: str
    data: str
    folder: str = ""
    """Where it was started; empty where an older server did not tell."""


@contextmanager
def announced(folder: Path, found: Found) -> Iterator[None]:
    """Commands find the server for as long as this lasts, or until its process is gone."""
    place = folder / RUNTIME_FOLDER
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    for path in place.iterdir():
        told = _read(path)
        if told is not None and not _alive(told[1].pid):
            path.unlink(missing_ok=True)
    own = place / f"{found.pid}.json"
    write_file(own, msgspec.json.encode(found), 0o600)
    try:
        yield
    finally:
        own.unlink(missing_ok=True)


def running(folder: Path) -> list[Found]:
    """The servers that run, in the order of their start."""
    try:
        told = [_read(path) for path in (folder / RUNTIME_FOLDER).iterdir()]
    except OSError:
        return []
    alive = [(started, found) for started, found in filter(None, told) if _alive(found.pid)]
    return [found for _, found in sorted(alive, key=lambda each: each[0])]


def meant(servers: Sequence[Found], here: Path) -> list[Found]:
    """The server that a command in the folder `here` is about: the only one, or the one of this folder.

    Of several, that is the one that was started in it, else in the nearest folder above it, the root left aside. A
    result of several servers is ambiguous.
    """
    if len(servers) > 1:
        for folder in (here, *here.parents[:-1]):
            found = [server for server in servers if server.folder == str(folder)]
            if found:
                return found
    return list(servers)


def _read(path: Path) -> tuple[int, Found] | None:
    """When a server was started, and what its file tells; None when that is nothing of use.

    A file that others could have written counts as none: it would tell whom to show a key to.
    """
    try:
        with open(path, "rb") as file:
            facts = os.fstat(file.fileno())
            if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
                return None
            return facts.st_mtime_ns, msgspec.json.decode(file.read(), type=Found)
    except (OSError, msgspec.DecodeError):
        return None


def _alive(pid: int) -> bool:
    """Whether there is such a process; one that was killed has left its file behind."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
