"""What is bound into a sandbox, held by a descriptor that was opened without following any link.

Owns the way from a path that somebody granted to the one thing on the disk that it means: it is resolved once, both
spellings are held against the list of what nobody sees, and then every folder on the way is opened in turn, links
refused. Whoever swaps a folder for a link in between is noticed, because the link is not followed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass

from plugbay.process.failures import SandboxUnavailable
from plugbay.process.sandbox.forbidden import forbidden, normalised

_STEP = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Source:
    """One folder or file that is made visible; whoever holds it closes `fd`."""

    path: str
    """What it is called, outside and inside."""
    resolved: str
    """The same without links on the way."""
    fd: int
    folder: bool
    writable: bool = False


def open_source(path: str, homes: Iterable[str], *, writable: bool = False, links: bool = False) -> Source:
    """Open what a policy names. `links`: the last part may be a link too, as parts of a runtime are.

    Raises SandboxUnavailable when it may not be shown, does not exist or is no plain file or folder.
    """
    written, resolved = normalised(path), _resolved(path, links)
    for spelling in (written, resolved):
        entry = forbidden(spelling, homes, writing=writable)
        if entry is not None:
            what = "shown to" if forbidden(spelling, homes) else "written by"
            raise refused(path, f"must not be {what} a plugin: it is, contains or lies within {entry}")
    try:
        fd = _open(resolved)
    except OSError as error:
        raise refused(path, f"cannot be opened: {error.strerror}") from error
    mode = os.fstat(fd).st_mode
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        os.close(fd)
        what = "was swapped for a symbolic link" if stat.S_ISLNK(mode) else "is neither a folder nor a file"
        raise refused(path, what)
    return Source(written, resolved, fd, stat.S_ISDIR(mode), writable)


def refused(path: str, why: str, hint: str = "") -> SandboxUnavailable:
    return SandboxUnavailable(f"{path} {why}", hint or "correct the plugin's policy", {"path": path})


def _resolved(path: str, links: bool) -> str:
    if not path.startswith("/") or "\0" in path:
        raise refused(repr(path), "is no absolute path")
    above, last = os.path.split(path.rstrip("/"))
    try:
        if links or last in {"", ".", ".."}:
            return os.path.realpath(path, strict=True)
        # The last part is never followed, not even after a look at it: it may become a link right after the look.
        resolved = os.path.join(os.path.realpath(above, strict=True), last)
        if stat.S_ISLNK(os.lstat(resolved).st_mode):
            raise refused(path, "is a symbolic link, and what it leads to may change", "name what it leads to")
    except OSError as error:
        raise refused(path, f"cannot be shown to the plugin: {error.strerror}") from error
    return resolved


def _open(resolved: str) -> int:
    """Walk down from / one name at a time; a link on the way is an error."""
    *folders, last = resolved.strip("/").split("/")
    here = os.open("/", _STEP | os.O_DIRECTORY)
    try:
        for name in folders:
            here, above = os.open(name, _STEP | os.O_DIRECTORY, dir_fd=here), here
            os.close(above)
        return os.open(last or ".", _STEP, dir_fd=here)
    finally:
        os.close(here)
