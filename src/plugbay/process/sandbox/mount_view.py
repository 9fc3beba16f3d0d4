"""Where sources of binds are laid out for bubblewrap when the host is root: in a view of the mounts that only the
starting thread has.

bubblewrap runs as the plugin's user, and finds its sources by path, even those it is given as descriptors. That user
cannot walk through a folder such as /root, mode 0700. So the thread leaves the host's mount namespace, once, and for
each start covers /tmp with an empty folder onto which the sources are bound by their descriptors; bubblewrap inherits
the view, and is given `/tmp/0`, `/tmp/1`. Nobody else sees any of it, and when the thread ends it is gone.

/tmp, because bubblewrap itself needs that folder to exist and covers it in the same way.

The view has no more mounts than it needs: bubblewrap reads the list of all of them for each that it makes, thirty times
for a plugin, and a machine with containers has hundreds. Ten fewer make a start half a millisecond shorter.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from plugbay.process.sandbox.forbidden import PLACES
from plugbay.process.sandbox.sources import Source

CLONE_NEWNS = 0x00020000
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
MS_BIND, MS_REC, MS_SLAVE = 4096, 16384, 1 << 19
MNT_DETACH = 2

PLACE = "/tmp"

UNSEEN = (
    *(place for place in PLACES if place not in ("/proc", "/dev")),
    *("/dev/hugepages", "/dev/mqueue", "/dev/pts", "/dev/shm"),
)
"""Where nothing is a source, whatever a policy says, and bubblewrap needs nothing. Of /proc and /dev it needs what is
there to make new ones: a container may have covered files of the one, and mounted each device of the other."""

_UNSEEN = tuple(f"{place}/" for place in UNSEEN)
_libc = ctypes.CDLL(None, use_errno=True)
_thread = threading.local()


def enter(kept: Sequence[Path] = ()) -> None:
    """Give the calling thread, and what it starts, mounts of its own; once. Raises OSError.

    What is mounted in the host later is seen here too; what is mounted here is not seen in the host. Of what no plugin
    is ever shown only the mounts on the way to `kept` are seen.
    """
    if getattr(_thread, "apart", False):
        return
    _check(_libc.unshare(CLONE_NEWNS), "unshare")
    _mount(None, "/", None, MS_REC | MS_SLAVE, None)
    mounts = Path("/proc/thread-self/mountinfo").read_bytes().splitlines()
    for point in needless([os.fsdecode(line.split(b" ")[4]) for line in mounts], kept):
        _libc.umount2(os.fsencode(point), MNT_DETACH)  # one that stays, as in some containers, costs no more than time
    _thread.apart = True


def needless(points: Sequence[str], kept: Iterable[Path]) -> Iterator[str]:
    """Which of these mount points, in the order in which they were mounted, can go; the last first."""
    used = [f"{path}/" for path in kept]
    for point in reversed(points):
        within = f"{point}/"
        if within.startswith(_UNSEEN) and not any(path.startswith(within) for path in used):
            yield point


def lay_out(sources: Sequence[Source]) -> list[str]:
    """Bind the sources in the calling thread's view; the path of each. Raises OSError, and then nothing stays."""
    _mount("tmpfs", PLACE, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0711,size=64k")
    try:
        return [_lay(number, source) for number, source in enumerate(sources)]
    except BaseException:
        clear()
        raise


def clear() -> None:
    """Take the stage down again; must be called by the thread that set it up. Raises OSError."""
    _check(_libc.umount2(PLACE.encode(), MNT_DETACH), "umount")


def _lay(number: int, source: Source) -> str:
    path = f"{PLACE}/{number}"
    if source.folder:
        os.mkdir(path)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    _mount(f"/proc/self/fd/{source.fd}", path, None, MS_BIND | MS_REC, None)
    return path


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None) -> None:
    words = [None if word is None else word.encode() for word in (source, target, kind, data)]
    _check(_libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]), "mount")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
