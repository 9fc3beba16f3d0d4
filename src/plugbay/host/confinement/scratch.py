"""`Scratch`: a room of its own for each invocation, empty when it gets it and gone afterwards.

    <root>/host_<random>/rooms/<child>/<invocation id>/

Owns where rooms are, how full they may be and that none is left: what a host that was killed left behind is removed by
the next one. A host holds a lock on its own folder, so that nobody takes the rooms of a host that lives. What is in
a room is its invocation's business.

Each child has a lodging of its own for all its rooms, and a confined one sees no other: a process that serves one org
never comes across another org's files. A lodging and what is in it belongs to the plugin, which may put a link in the
place of a room, so whoever goes into a room follows none.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import stat
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Container
from contextlib import suppress
from pathlib import Path

from plugbay.host.confinement.policy import give
from plugbay.host.disk import tree
from plugbay.model.errors import Code, Failure, Origin

QUOTA = 256 << 20
"""Bytes in one room."""

LOOK_SECONDS = 1.0
"""Between two looks at how full a room is; what a disk takes within that is what a plugin can have too much."""

FOLDER = "scratch"
"""Below the state directory."""

ROOMS = "rooms"
"""Below the folder of a host, which may have others than lodgings."""

_LOCK = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Scratch:
    """The rooms of one host. Nothing is made before the first of them."""

    def __init__(
        self, state_dir: Path | None = None, quota: int = QUOTA, owner: Callable[[str], int | None] = lambda _: None
    ) -> None:
        """`owner` says which user a plugin's rooms are for; None: the host's own."""
        self.quota = quota
        self.root = None if state_dir is None else state_dir / FOLDER
        self._owner = owner
        self._home: Path | None = None
        self._lock = -1
        self._making = threading.Lock()
        self._rooms: defaultdict[Path, set[str]] = defaultdict(set)
        """The names of those in each lodging, from before they are made until they are about to go."""
        self._vacant: set[Path] = set()
        """Lodgings without a child, of which somebody still needs a room."""
        self._leaving: set[asyncio.Task[bool]] = set()

    async def lodge(self, plugin_id: str) -> Path | Failure:
        """A folder for the rooms of one child of this plugin, which is its alone."""
        return await self._made(self._new_lodging, self._owner(plugin_id))

    async def open(self, lodging: Path, invocation_id: str) -> Path | Failure:
        """An empty room for nobody else's eyes; none is left when whoever wants it is cancelled meanwhile."""
        room: Path | Failure | None = None
        self._rooms[lodging].add(invocation_id)
        try:
            room = await self._made(lambda: lodging / invocation_id, None)
        finally:
            if not isinstance(room, Path):
                self._rooms[lodging].discard(invocation_id)
        return room

    async def _made(self, place: Callable[[], Path], owner: int | None) -> Path | Failure:
        """A new folder, whose owner is that of the folder it is in unless it is named."""
        making = asyncio.ensure_future(asyncio.to_thread(_make, place, owner))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            await asyncio.wait({making})
            if making.exception() is None:
                await asyncio.to_thread(tree.remove, making.result())
            raise
        except OSError as error:
            text = f"no scratch directory can be made: {error.strerror}"
            return Failure(Code.UNAVAILABLE, text, origin=Origin.SYSTEM, retryable=True)

    async def overfull(self, room: Path) -> str | None:
        """Why there is too much in the room, or beside the rooms of its child; None when there is not."""
        return await asyncio.to_thread(self._overfull, room, len(self._rooms[room.parent]))

    def _overfull(self, room: Path, rooms: int) -> str | None:
        return tree.overfull(room, self.quota) or tree.overfull(room.parent, self.quota * rooms)

    async def overfilled(self, room: Path) -> str:
        """Wait until there is too much in the room; why it is too much."""
        while True:
            why = await self.overfull(room)
            if why is not None:
                return why
            await asyncio.sleep(LOOK_SECONDS)

    async def remove(self, room: Path) -> bool:
        """Whether nothing of it is left. What a child put beside its rooms goes with the last of them."""
        lodging = room.parent
        rooms = self._rooms[lodging]
        rooms.discard(room.name)
        gone = await asyncio.to_thread(tree.remove, room)
        if not rooms:
            await asyncio.to_thread(_clear, lodging, lodging in self._vacant, rooms)
        if not rooms:
            self._rooms.pop(lodging, None)
            self._vacant.discard(lodging)
        return gone

    def vacated(self, lodging: Path) -> None:
        """The child that had it is gone; so is the lodging, as soon as no room in it is needed any more."""
        if self._rooms[lodging]:
            self._vacant.add(lodging)
            return
        task = asyncio.get_running_loop().create_task(asyncio.to_thread(tree.remove, lodging))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def sweep(self) -> int:
        """Remove what hosts left behind that were killed; how many there were."""
        return await asyncio.to_thread(self._sweep)

    async def close(self) -> bool:
        """Remove everything of this host; whether nothing of it is left."""
        while self._leaving:
            await asyncio.wait(self._leaving)
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

    def _new_lodging(self) -> Path:
        folder = self.home() / ROOMS
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder / secrets.token_hex(8)

    def _private_root(self) -> Path:
        if self.root is None:
            shared = Path(tempfile.gettempdir(), f"plugbay-scratch-{os.getuid()}")
            # Somebody else may have made a folder of that name, in a place where anybody can.
            self.root = shared if _is_ours(shared) else Path(tempfile.mkdtemp(prefix="plugbay-scratch-"))
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self.root

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


def _make(place: Callable[[], Path], owner: int | None) -> Path:
    folder = place()
    folder.mkdir(mode=0o700)
    above = os.stat(folder.parent).st_uid
    give(folder, owner if owner is not None or above == os.geteuid() else above)
    return folder


def _clear(lodging: Path, vacant: bool, rooms: Container[str]) -> None:
    """Remove what is left in it but for rooms made meanwhile, and the lodging itself if nobody lives there."""
    if vacant:
        tree.remove(lodging)
        return
    with suppress(OSError):
        for name in os.listdir(lodging):
            if name not in rooms:
                tree.remove(lodging / name)


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
