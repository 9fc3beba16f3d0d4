"""One server per data directory, and the files by which commands find it.

The lock is a file lock, so the kernel releases it however the server ends. A second server is refused with the pid of
the first. Each running server has a file with its URL below the state directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from plugbay.host.disk.durable import write_file
from plugbay.store.locks import locked

LOCK_FILE = "server.lock"
RUNTIME_FOLDER = "servers"
"""Below the state directory: one file per running server."""


@contextmanager
def lock_data_dir(data: Path) -> Iterator[None]:
    """Lock the data directory; raises `InUse`."""
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    with locked(data / LOCK_FILE, str(data)):
        yield


class RunningServer(msgspec.Struct, frozen=True):
    """A running server, as recorded in its file."""

    url: str
    pid: int
    token_file: str
    data: str
    folder: str = ""
    """The working directory of the server; empty for older servers."""


@contextmanager
def announce(folder: Path, found: RunningServer) -> Iterator[None]:
    """Publish the server's file for commands, until the server or its process ends."""
    place = folder / RUNTIME_FOLDER
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    for path in place.iterdir():
        file = _read(path)
        if file is not None and not _is_alive(file[1].pid):
            path.unlink(missing_ok=True)
    own = place / f"{found.pid}.json"
    write_file(own, msgspec.json.encode(found), 0o600)
    try:
        yield
    finally:
        own.unlink(missing_ok=True)


def running_servers(folder: Path) -> list[RunningServer]:
    """Running servers in the order of their start."""
    try:
        files = [_read(path) for path in (folder / RUNTIME_FOLDER).iterdir()]
    except OSError:
        return []
    alive = [(started, found) for started, found in filter(None, files) if _is_alive(found.pid)]
    return [found for _, found in sorted(alive, key=lambda each: each[0])]


def select_servers(servers: Sequence[RunningServer], here: Path) -> list[RunningServer]:
    """The server for a command in the folder `here`: the only one, or the one of this folder.

    Of several, the one started in this folder, else in the nearest parent except the root. A result of several servers
    is ambiguous.
    """
    if len(servers) > 1:
        for folder in (here, *here.parents[:-1]):
            found = [server for server in servers if server.folder == str(folder)]
            if found:
                return found
    return list(servers)


def _read(path: Path) -> tuple[int, RunningServer] | None:
    """Start time and content of a server's file; None if it is unusable.

    A file that other users could have written is ignored: the token is sent to its URL.
    """
    try:
        with open(path, "rb") as file:
            facts = os.fstat(file.fileno())
            if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
                return None
            return facts.st_mtime_ns, msgspec.json.decode(file.read(), type=RunningServer)
    except (OSError, msgspec.DecodeError):
        return None


def _is_alive(pid: int) -> bool:
    """Whether the process exists; a killed server leaves its file behind."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
