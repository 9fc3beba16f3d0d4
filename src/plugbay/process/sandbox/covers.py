"""What is covered within the things a plugin is shown, and what is held in its place so that the cover stays true.

Owns three rules. A hidden folder within something shown is empty, a hidden file cannot be opened. Where something else
is shown within a hidden folder, that is seen in the empty one. And in what a plugin may write, each folder on the way
to something covered or shown is a mount of its own, because the kernel renames no mount point: otherwise the plugin
could move what is covered to where the next start does not look for it, and put its own in that place.

The kernel drops a cover when the path under it is renamed or removed from outside, as an editor does when it saves a
file, and a path that appears later has no cover. `uncovered` finds both in a running sandbox.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from plugbay.model.protected import is_within
from plugbay.process.sandbox.sources import Source, refused

_STEP = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC

_NO_WAY = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP})
"""What keeps a plugin from a path as well."""


@dataclass(frozen=True, slots=True)
class View:
    """Everything that a policy makes visible, each with the name that it has inside."""

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
    """What is seen of the sources. Asked as the plugin's user; `keep` has descriptors closed later.

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
    """What it is called inside: as outside, unless the way there leads through a link in something else that is shown.

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
            at = keep(os.open(name, _STEP, dir_fd=at))
        except OSError as error:
            if error.errno in _NO_WAY:
                return
            raise
        mode = os.fstat(at).st_mode
        yield _Step("/".join(names[:number]), at, mode)
        if not stat.S_ISDIR(mode):
            return


def _check_links(source: Source, steps: Sequence[_Step]) -> None:
    """A link on the way to something hidden cannot be covered, and who writes around it can turn it."""
    if source.writable and steps and stat.S_ISLNK(steps[-1].mode):
        link = f"{source.resolved}/{steps[-1].path}"
        why = f"may be written by the plugin, but {link} lies in it, a link by which the host finds its own files"
        raise refused(source.path, why, "grant a narrower folder, or have the host find its files without a link")


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
    """Which covers and pins there are to be: none in an empty folder, and no pin where something else is shown."""
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
