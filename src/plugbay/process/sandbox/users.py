"""As whom a confined plugin runs when its host is root: a user number of its own, which owns nothing else.

Owns the choice of the number, the question whether this machine knows it, and acting in its name. A host that is not
root runs its plugins as itself: the user namespace of the sandbox takes from them whatever that user may do beyond its
own files.

Two plugins share a number once in 134 million pairs of labels; then they could reach each other's state folder if, and
only if, a policy shows it to them.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import platform
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from plugbay.process.failures import SandboxUnavailable
from plugbay.process.sandbox.settings import SandboxSettings

INSIDE = 1000
"""What a plugin is called inside. Not 65534: that is what the owners of all foreign files are shown as."""

AT_EACCESS, AT_EMPTY_PATH = 0x200, 0x1000
SYS_FACCESSAT2 = 439
"""The same number on every machine; since Linux 5.8."""

_SET_REAL = {"x86_64": (117, 119), "aarch64": (147, 149)}
"""The numbers of setresuid and setresgid."""

_libc = ctypes.CDLL(None, use_errno=True)
_MAPS = ("/proc/self/uid_map", "/proc/self/gid_map")


def uid_of(label: str, settings: SandboxSettings) -> int | None:
    """The user and group number for the plugin of this label; None when the host is not root."""
    if os.geteuid() != 0:
        return None
    first, last = settings.uids
    digest = hashlib.blake2s(label.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return first + int.from_bytes(digest, "big") % (last - first + 1)


def check_mapped(uid: int, settings: SandboxSettings, maps: tuple[str, ...] = _MAPS) -> None:
    """Raise SandboxUnavailable when processes of this machine or container cannot have this number, or somebody has."""
    taken = _name_of(uid)
    if uid == 0 or taken or not all(_contains(Path(path).read_text(), uid) for path in maps):
        first, last = settings.uids
        why = f"{uid} is {taken}'s" if taken else f"{uid} cannot be used here"
        raise SandboxUnavailable(
            f"plugins of a host that runs as root get a user number of {first}-{last}, and {why}",
            'in plugbay.toml, set uids = "FIRST-LAST" of [sandbox] to numbers that /proc/self/uid_map has, '
            "or do not run the host as root",
            {"uid": uid},
        )


@contextmanager
def posing_as(uid: int | None) -> Iterator[None]:
    """Let the calling thread, and no other, be the plugin's user where the kernel asks who it is; None changes nothing.

    It stays root underneath, or it could not come back. By system call, because the C library's functions of these
    names would change every thread.
    """
    if uid is None:
        yield
        return
    set_user, set_group = _SET_REAL[platform.machine()]
    try:
        _change(set_group, uid)
        _change(set_user, uid)
        _libc.setfsgid(uid)
        _libc.setfsuid(uid)
        yield
    finally:
        # This first: only the way back through it restores the rights over files that the way there took.
        _libc.setfsuid(0)
        _libc.setfsgid(os.getegid())
        _change(set_user, 0)
        _change(set_group, os.getegid())


def may(fd: int, mode: int) -> bool:
    """Whether whoever the calling thread is could do this (`os.R_OK`, …) with what `fd` stands for.

    Asked of the kernel, so that access control lists count. For an honest message only: nothing depends on it.
    """
    if _libc.syscall(SYS_FACCESSAT2, fd, b"", mode, AT_EACCESS | AT_EMPTY_PATH) == 0:
        return True
    return ctypes.get_errno() not in {errno.EACCES, errno.EPERM, errno.EROFS}


def _change(call: int, number: int) -> None:
    """Set the real user or group of this thread; -1 leaves the effective and the saved one."""
    if _libc.syscall(call, ctypes.c_ulong(number), ctypes.c_ulong(2**32 - 1), ctypes.c_ulong(2**32 - 1)) != 0:
        raise OSError(ctypes.get_errno(), f"the thread cannot act as user {number}")


def _name_of(uid: int) -> str:
    """Whose number it is; empty when nobody's, as it should be. Root is refused as root."""
    try:
        return pwd.getpwuid(uid).pw_name if uid else ""
    except (KeyError, OverflowError):
        return ""


def _contains(table: str, number: int) -> bool:
    """Whether a map, lines of `inside outside count`, has this number inside."""
    rows = (line.split() for line in table.splitlines())
    return any(int(first) <= number < int(first) + int(count) for first, _, count in rows)
