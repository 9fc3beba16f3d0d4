"""`Scratch`: a room of its own for each invocation, empty when it gets it and gone afterwards.

    <root>/host_<random>/<invocation id>/

Owns where rooms are, how full they may be and that none is left: what a host that was killed left behind is removed by
the next one. A host holds a lock on its own folder, so that nobody takes the rooms of a host that lives. What is in
a room is its invocation's business.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import stat
import tempfile
import threading
from pathlib import Path

from plugbay.host import tree
from plugbay.model.errors import Code, Failure, Origin

QUOTA = 256 << 20
"""Bytes in one room."""

LOOK_SECONDS = 1.0
"""Between two looks at how full a room is; what a disk takes within that is what a plugin can have too much."""

FOLDER = "scratch"
"""Below the state directory."""

_LOCK = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Scratch:
    """The rooms of one host. Nothing is made before the first of them."""

    def __init__(self, state_dir: Path | None = None, quota: int = QUOTA) -> None:
        self.quota = quota
        self._root = None if state_dir is None else state_dir / FOLDER
        self._home: Path | None = None
        self._lock = -1
        self._making = threading.Lock()

    async def open(self, invocation_id: str) -> Path | Failure:
        """An empty room for nobody else's eyes; none is left when whoever wants it is cancelled meanwhile."""
        making = asyncio.ensure_future(asyncio.to_thread(self._open, invocation_id))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            await asyncio.wait({making})
            if making.exception() is None:
                await self.remove(making.result())
            raise
        except OSError as error:
            text = f"no scratch directory can be made: {error.strerror}"
            return Failure(Code.UNAVAILABLE, text, origin=Origin.SYSTEM, retryable=True)

    def _open(self, invocation_id: str) -> Path:
        room = self.home() / invocation_id
        room.mkdir(mode=0o700)
        return room

    async def overfull(self, room: Path) -> str | None:
        """Why there is too much in the room; None when there is not."""
        return await asyncio.to_thread(tree.overfull, room, self.quota)

    async def overfilled(self, room: Path) -> str:
        """Wait until there is too much in the room; why it is too much."""
        while True:
            why = await self.overfull(room)
            if why is not None:
                return why
            await asyncio.sleep(LOOK_SECONDS)

    async def remove(self, room: Path) -> bool:
        """Whether nothing of it is left."""
        return await asyncio.to_thread(tree.remove, room)

    async def sweep(self) -> int:
        """Remove what hosts left behind that were killed; how many there were."""
        return await asyncio.to_thread(self._sweep)

    async def close(self) -> bool:
        """Remove everything of this host; whether nothing of it is left."""
        return await asyncio.to_thread(self._close)

    # Blocking.

    def home(self) -> Path:
        """This host's own folder, locked; made if need be."""
        with self._making:
            while self._home is None:
                home = self._private_root() / f"host_{secrets.token_hex(8)}"
                home.mkdir(mode=0o700)
                lock = _locked(home)
                if lock is not None:
                    self._home, self._lock = home, lock
            return self._home

    def _private_root(self) -> Path:
        if self._root is None:
            shared = Path(tempfile.gettempdir(), f"plugbay-scratch-{os.getuid()}")
            # Somebody else may have made a folder of that name, in a place where anybody can.
            self._root = shared if _is_ours(shared) else Path(tempfile.mkdtemp(prefix="plugbay-scratch-"))
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._root

    def _sweep(self) -> int:
        try:
            root = self._private_root()
            left = [root / name for name in os.listdir(root) if name.startswith("host_")]
        except OSError:
            return 0
        return sum(_take_away(home) for home in left if home != self._home)

    def _close(self) -> bool:
        if self._home is None:
            return True
        gone = tree.remove(self._home)
        os.close(self._lock)
        self._home, self._lock = None, -1
        return gone


def _take_away(home: Path) -> bool:
    """Remove the folder of a host that no longer lives."""
    lock = _locked(home)
    if lock is None:
        return False
    try:
        return tree.remove(home)
    finally:
        os.close(lock)


def _locked(home: Path) -> int | None:
    """The folder, open and locked; None when somebody else holds it, or has taken it away while we came."""
    try:
        lock = os.open(home, _LOCK)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), os.lstat(home)):
            return lock
    except OSError:
        pass
    os.close(lock)
    return None


def _is_ours(folder: Path) -> bool:
    """Whether a folder, made now if need be, is ours alone."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        facts = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and not facts.st_mode & 0o077
