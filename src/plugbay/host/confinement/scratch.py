"""`Scratch`: a scratch folder for each invocation, empty at first and removed afterwards.

    <root>/host_<random>/rooms/<instance>/<invocation id>/

A host locks its own folder; folders of a host that was killed are removed by the next one. All scratch folders of an
instance lie in one instance folder, the only one that a confined process sees, so a process that serves one org never
sees the files of another. The instance folder belongs to the plugin, which may replace a scratch folder with a symbolic
link, so code that works in a scratch folder must not follow links.
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

from plugbay.host.confinement.policy import change_owner
from plugbay.host.disk import tree
from plugbay.model.errors import PASSING, Code, Failure, Origin
from plugbay.process.diagnose import error_name

QUOTA = 256 << 20
"""Bytes in one scratch folder."""

CHECK_SECONDS = 1.0
"""Interval of quota checks; a plugin can exceed its quota by what the disk takes in that time."""

FOLDER = "scratch"
"""Below the state directory."""

INSTANCES = "rooms"
"""Below the folder of a host: the instance folders."""

_LOCK = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Scratch:
    """The scratch folders of one host. Nothing is created before the first one."""

    def __init__(
        self, state_dir: Path | None = None, quota: int = QUOTA, owner: Callable[[str], int | None] = lambda _: None
    ) -> None:
        """`owner` returns the user id for a plugin's folders; None: the host's own user."""
        self.quota = quota
        self.root = None if state_dir is None else state_dir / FOLDER
        self._owner = owner
        self._home: Path | None = None
        self._lock = -1
        self._making = threading.Lock()
        self._in_use: defaultdict[Path, set[str]] = defaultdict(set)
        """By instance folder: the invocations with a scratch folder, from before it is created until its removal."""
        self._orphaned: set[Path] = set()
        """Instance folders whose process has ended while an invocation still needs its scratch folder."""
        self._removing: set[asyncio.Task[bool]] = set()

    async def make_instance_folder(self, plugin_id: str) -> Path | Failure:
        """Create the folder of a new instance of this plugin."""
        return await self._make_folder(self._new_instance_folder, self._owner(plugin_id))

    async def open(self, instance_folder: Path, invocation_id: str) -> Path | Failure:
        """Create an empty, private scratch folder. None is left if the caller is cancelled meanwhile."""
        folder: Path | Failure | None = None
        self._in_use[instance_folder].add(invocation_id)
        try:
            folder = await self._make_folder(lambda: instance_folder / invocation_id, None)
        finally:
            if not isinstance(folder, Path):
                self._in_use[instance_folder].discard(invocation_id)
        return folder

    async def _make_folder(self, place: Callable[[], Path], owner: int | None) -> Path | Failure:
        """Create a folder, owned by `owner`, or like its parent if that is None."""
        making = asyncio.ensure_future(asyncio.to_thread(_make, place, owner))
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            await asyncio.wait({making})
            if making.exception() is None:
                await asyncio.to_thread(tree.remove, making.result())
            raise
        except OSError as error:
            text = f"the scratch directory cannot be created: {error.strerror}"
            detail = {"errno": error_name(error)}
            return Failure(Code.UNAVAILABLE, text, origin=Origin.SYSTEM, retryable=True, detail=detail)

    async def quota_problem(self, folder: Path) -> str | None:
        """Why a scratch folder, or its instance folder, is over its quota; None if neither is."""
        return await asyncio.to_thread(self._quota_problem, folder, len(self._in_use[folder.parent]))

    def _quota_problem(self, folder: Path, count: int) -> str | None:
        return tree.quota_problem(folder, self.quota) or tree.quota_problem(folder.parent, self.quota * count)

    async def wait_over_quota(self, folder: Path) -> str:
        """Wait until a scratch folder is over its quota; returns why."""
        while True:
            why = await self.quota_problem(folder)
            if why is not None:
                return why
            await asyncio.sleep(CHECK_SECONDS)

    async def remove(self, folder: Path) -> bool:
        """Remove a scratch folder, and other files of the instance with the last one. False if something is left."""
        instance_folder = folder.parent
        in_use = self._in_use[instance_folder]
        in_use.discard(folder.name)
        gone = await asyncio.to_thread(tree.remove, folder)
        if not in_use:
            await asyncio.to_thread(_clear, instance_folder, instance_folder in self._orphaned, in_use)
        if not in_use:
            self._in_use.pop(instance_folder, None)
            self._orphaned.discard(instance_folder)
        return gone

    def release(self, instance_folder: Path) -> None:
        """Remove an instance folder after its process has ended, as soon as no invocation needs a folder in it."""
        if self._in_use[instance_folder]:
            self._orphaned.add(instance_folder)
            return
        task = asyncio.get_running_loop().create_task(asyncio.to_thread(tree.remove, instance_folder))
        self._removing.add(task)
        task.add_done_callback(self._removing.discard)

    async def sweep(self) -> int:
        """Remove the folders of killed hosts; returns how many there were."""
        return await asyncio.to_thread(self._sweep)

    async def close(self) -> bool:
        """Remove all folders of this host; False if something is left."""
        while self._removing:
            await asyncio.wait(self._removing)
        return await asyncio.to_thread(self._close)

    # Blocking.

    def home(self) -> Path:
        """The locked folder of this host; created if necessary."""
        with self._making:
            while self._home is None:
                home = self._private_root() / f"host_{secrets.token_hex(8)}"
                home.mkdir(mode=0o700)
                try:
                    lock = _try_lock(home)
                except OSError:
                    home.rmdir()
                    raise
                if lock is not None:
                    self._home, self._lock = home, lock
            return self._home

    def _new_instance_folder(self) -> Path:
        folder = self.home() / INSTANCES
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder / secrets.token_hex(8)

    def _private_root(self) -> Path:
        if self.root is None:
            shared = Path(tempfile.gettempdir(), f"plugbay-scratch-{os.getuid()}")
            # Another user may have created a folder of that name in the shared temporary folder.
            self.root = shared if _is_ours(shared) else Path(tempfile.mkdtemp(prefix="plugbay-scratch-"))
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self.root

    def _sweep(self) -> int:
        try:
            root = self._private_root()
            left = [root / name for name in os.listdir(root) if name.startswith("host_")]
            return sum(_remove_if_dead(home) for home in left if home != self._home)
        except OSError:
            return 0

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
    change_owner(folder, owner if owner is not None or above == os.geteuid() else above)
    return folder


def _clear(instance_folder: Path, orphaned: bool, in_use: Container[str]) -> None:
    """Remove the rest in an instance folder, except new scratch folders; and the folder itself if it is orphaned."""
    if orphaned:
        tree.remove(instance_folder)
        return
    with suppress(OSError):
        for name in os.listdir(instance_folder):
            if name not in in_use:
                tree.remove(instance_folder / name)


def _remove_if_dead(home: Path) -> bool:
    """Remove the folder of a host that has ended."""
    lock = _try_lock(home)
    if lock is None:
        return False
    try:
        return tree.remove(home)
    finally:
        os.close(lock)


def _try_lock(home: Path) -> int | None:
    """Open and lock a host folder; None if another host holds it or has removed it meanwhile.

    Raises OSError if the host lacks a descriptor for it.
    """
    try:
        lock = os.open(home, _LOCK)
    except OSError as error:
        if error_name(error) in PASSING:
            raise
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
    """Whether a folder, created if necessary, is private to this user."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        facts = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and not facts.st_mode & 0o077
