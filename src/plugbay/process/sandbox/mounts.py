"""The mounts of a sandbox: covers over protected paths, and the places from which bubblewrap binds sources.

**Covers.** A hidden folder within a shown one is empty, a hidden file cannot be opened. If another source lies within a
hidden folder, it is visible in the empty one. In a folder that a plugin may write, each folder on the way to a covered
or shown path is a mount of its own, because the kernel renames no mount point: otherwise the plugin could move the
covered path to a place that the next start does not cover, and put its own file there. The kernel drops a cover if the
path under it is renamed or removed from outside, as an editor does when it saves a file, and a path that appears later
has no cover. `uncovered` finds both in a running sandbox.

**Places**, if the host is root. bubblewrap runs as the plugin's user and finds sources by path, even those it gets as
descriptors; that user cannot walk through a folder such as /root, mode 0700. So the starting thread leaves the host's
mount namespace, once, and for each start covers /tmp with an empty folder onto which the sources are bound by their
descriptors. bubblewrap inherits the view and binds `/tmp/0`, `/tmp/1`. No other thread sees it, and it ends with the
thread. /tmp, because bubblewrap itself needs that folder and covers it in the same way. The view has no more mounts
than needed: bubblewrap reads the list of all mounts for each that it makes, thirty times for a plugin, and a machine
with containers has hundreds. Ten fewer make a start half a millisecond shorter.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from plugbay.model.protected import is_within
from plugbay.process.sandbox.sources import OPEN_STEP, PLACES, Source, refused

_NO_WAY = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP})
"""Errors that keep the plugin from a path as well."""


@dataclass(frozen=True, slots=True)
class View:
    """All that a policy makes visible, with the names inside."""

    shown: tuple[tuple[Source, str], ...]
    empty: tuple[str, ...]
    unreadable: tuple[str, ...]
    guarded: tuple[tuple[str, str], ...] = ()
    """Each hidden path in a shown folder that is covered or does not exist yet: the path outside, the name inside."""


@dataclass(frozen=True, slots=True)
class _Step:
    """One name on the way from a source to something in it."""

    path: str
    """From the source on."""
    fd: int
    mode: int


def covering(keep: Callable[[int], int], sources: Sequence[Source], hidden: Sequence[str]) -> View:
    """The view of the sources. Runs as the plugin's user; `keep` closes descriptors later.

    Raises SandboxUnavailable where something could not be covered for good.
    """
    shown = [(source, _name(source, sources)) for source in sources]
    pins: dict[str, tuple[Source, str]] = {}
    covers: dict[str, bool] = {}
    guarded: list[tuple[str, str]] = []
    for source, name in shown:
        if not source.folder:
            continue
        for path in _below(source, hidden):
            steps = list(_walk(keep, source, path))
            _check_links(source, steps)
            if steps and steps[-1].path == path and not stat.S_ISLNK(steps[-1].mode):
                last = steps.pop()
                covers[f"{name}/{last.path}"] = stat.S_ISDIR(last.mode)
            if f"{name}/{path}" in covers or _is_missing(f"{source.resolved}/{path}"):
                guarded.append((f"{source.resolved}/{path}", f"{name}/{path}"))
            pins |= _pins(source, name, steps)
        for path in _below(source, [other.resolved for other in sources]) if source.writable else ():
            pins |= _pins(source, name, list(_walk(keep, source, path))[:-1])
    covered, held = _seen({name for _, name in shown}, covers, {name: around for name, (_, around) in pins.items()})
    return View(
        (*shown, *((pins[name][0], name) for name in held)),
        tuple(name for name in covered if covers[name]),
        tuple(name for name in covered if not covers[name]),
        tuple(guarded),
    )


def uncovered(pid: int, guarded: Sequence[tuple[str, str]]) -> str | None:
    """The first guarded path that a process can see by now; None when every one is covered or missing. Blocks."""
    try:
        mounts = Path("/proc", str(pid), "mountinfo").read_bytes().splitlines()
    except OSError:  # the process is gone
        return None
    names = {os.fsencode(name) for _, name in guarded}
    covered = tuple(os.fsdecode(name) for name in names.intersection(_unescaped(line.split()[4]) for line in mounts))
    for path, name in guarded:
        if not any(is_within(name, cover) for cover in covered) and os.path.lexists(path):
            return path
    return None


def _unescaped(name: bytes) -> bytes:
    """A path as it is; the kernel writes blanks, line feeds and backslashes of it in octal."""
    return re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), name)


def _is_missing(path: str) -> bool:
    try:
        os.lstat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _name(source: Source, sources: Sequence[Source]) -> str:
    """The name of a source inside: as outside, unless the way there leads through a link in another shown source.

    That link is there inside too, and leads to the name without links.
    """
    inside = any(other.folder and other.path != source.path and is_within(source.path, other.path) for other in sources)
    return source.resolved if inside else source.path


def _below(source: Source, paths: Sequence[str]) -> list[str]:
    """Which of these lie within a source, each from the source on."""
    prefix = f"{source.resolved.rstrip('/')}/"
    return [path[len(prefix) :] for path in paths if path.startswith(prefix)]


def _walk(keep: Callable[[int], int], source: Source, inner: str) -> Iterator[_Step]:
    """Name by name, as far as there is something and the plugin's user gets there; a link is the last."""
    at, names = source.fd, inner.split("/")
    for number, name in enumerate(names, 1):
        try:
            at = keep(os.open(name, OPEN_STEP, dir_fd=at))
        except OSError as error:
            if error.errno in _NO_WAY:
                return
            raise
        mode = os.fstat(at).st_mode
        yield _Step("/".join(names[:number]), at, mode)
        if not stat.S_ISDIR(mode):
            return


def _check_links(source: Source, steps: Sequence[_Step]) -> None:
    """A link on the way to a hidden path cannot be covered, and a plugin that may write there can replace it."""
    if source.writable and steps and stat.S_ISLNK(steps[-1].mode):
        link = f"{source.resolved}/{steps[-1].path}"
        why = f"may be written by the plugin, but contains {link}, a link that the host follows to its own files"
        raise refused(source.path, why, "grant a smaller folder, or configure the host without the link")


def _pins(source: Source, name: str, steps: Sequence[_Step]) -> dict[str, tuple[Source, str]]:
    """The folders of a way that must stay where they are, by their names; each with the name of the source around."""
    if not source.writable:
        return {}
    return {
        f"{name}/{step.path}": (
            replace(source, path=f"{source.path}/{step.path}", resolved=f"{source.resolved}/{step.path}", fd=step.fd),
            name,
        )
        for step in steps
        if stat.S_ISDIR(step.mode)
    }


def _seen(named: set[str], covers: Iterable[str], pins: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The covers and pins to make: none in an empty folder, and no pin where another source is shown."""
    covered: list[str] = []
    held: list[str] = []
    for name in sorted({*covers, *pins} - named, key=_depth):
        around = max((other for other in (*named, *covered) if is_within(name, other)), key=len)
        if around in named and name in covers:
            covered.append(name)
        elif pins.get(name) == around:
            held.append(name)
    return covered, held


def _depth(path: str) -> int:
    return path.count("/")


# Places.

CLONE_NEWNS = 0x00020000
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
MS_BIND, MS_REC, MS_SLAVE = 4096, 16384, 1 << 19
MNT_DETACH = 2

PLACE = "/tmp"

UNSEEN = (
    *(place for place in PLACES if place not in ("/proc", "/dev")),
    *("/dev/hugepages", "/dev/mqueue", "/dev/pts", "/dev/shm"),
)
"""Places without sources, whatever a policy says, that bubblewrap does not need. It needs /proc and /dev to make new
ones: a container may have covered files of the one, and mounted each device of the other."""

_UNSEEN = tuple(f"{place}/" for place in UNSEEN)
_libc = ctypes.CDLL(None, use_errno=True)
_thread = threading.local()


def enter(kept: Sequence[Path] = ()) -> None:
    """Give the calling thread, and its children, mounts of their own; once. Raises OSError.

    Later mounts of the host are visible here too; mounts made here are not visible in the host. Of the places that no
    plugin sees, only the mounts on the way to `kept` stay.
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
    """The mount points that are not needed, the last mounted first."""
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
    """Undo `lay_out`; must be called by the same thread. Raises OSError."""
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
