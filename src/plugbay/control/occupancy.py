"""One server for each data directory, and where to find it.

Owns the lock, which the system lets go of however the server ends, and the file that tells commands its address. A
second server is refused and told who was first; nobody is ever ended for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from plugbay.packages.durable import write_file
from plugbay.store.locks import locked

LOCK_FILE = "server.lock"
RUNTIME_FILE = "server.json"


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


@contextmanager
def announced(folder: Path, found: Found) -> Iterator[None]:
    """Commands find the server for as long as this lasts; of several servers, the one that was started last."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / RUNTIME_FILE
    write_file(path, msgspec.json.encode(found), 0o600)
    try:
        yield
    finally:
        if look(folder) == found:
            path.unlink(missing_ok=True)


def look(folder: Path) -> Found | None:
    """The server that commands should talk to; None when there is none, or its file says nothing of use.

    A file that others could have written counts as none: it would tell whom to show a key to.
    """
    try:
        with open(folder / RUNTIME_FILE, "rb") as file:
            facts = os.fstat(file.fileno())
            if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
                return None
            return msgspec.json.decode(file.read(), type=Found)
    except (OSError, msgspec.DecodeError):
        return None
