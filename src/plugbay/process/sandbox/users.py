"""The user of a confined plugin if its host is root: a user number of its own, which owns nothing else.

Chooses the number, checks that the machine has it, and switches a thread to it. A host that is not root runs its
plugins as its own user: the user namespace of the sandbox takes all rights from them except those to the files of that
user.

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
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from plugbay.process.diagnose import SandboxUnavailable
from plugbay.process.sandbox.policy import SandboxSettings

AT_EACCESS, AT_EMPTY_PATH = 0x200, 0x1000
SYS_FACCESSAT2 = 439
"""The same number on every machine; since Linux 5.8."""

SYS_SETRESUID, SYS_SETRESGID, SYS_SETGROUPS = {"x86_64": (117, 119, 116), "aarch64": (147, 149, 159)}.get(
    platform.machine(), (-1, -1, -1)
)

PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 24, 38, 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
CAPABILITIES = 0x2008_0522
"""The version of the structure in which the kernel takes and gives rights."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
_thread = threading.local()
_MAPS = ("/proc/self/uid_map", "/proc/self/gid_map")


def uid_of(label: str, settings: SandboxSettings) -> int | None:
    """The user and group number for the plugin of this label; None when the host is not root."""
    if os.geteuid() != 0:
        return None
    first, last = settings.uids
    digest = hashlib.blake2s(label.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return first + int.from_bytes(digest, "big") % (last - first + 1)


def check_mapped(uid: int, settings: SandboxSettings, maps: tuple[str, ...] = _MAPS) -> None:
    """Raise SandboxUnavailable if processes of this machine or container cannot have this number, or a user has it."""
    taken = _name_of(uid)
    if uid == 0 or taken or not all(_contains(path, uid) for path in maps):
        first, last = settings.uids
        why = f"{uid} is {taken}'s" if taken else f"{uid} cannot be used here"
        raise SandboxUnavailable(
            f"plugins of a host that runs as root get a user id of {first}-{last}, and {why}",
            'in plugbay.toml, set uids = "FIRST-LAST" of [sandbox] to ids in /proc/self/uid_map, '
            "or do not run the host as root",
            {"uid": uid},
        )


@contextmanager
def as_user(uid: int | None) -> Iterator[None]:
    """Switch the calling thread, and no other, to the plugin's user; None changes nothing.

    The thread can return to root. A program that it starts meanwhile cannot: the kernel drops the saved user when it
    runs one. By system call, because the C library's functions of these names would change every thread. Raises
    SandboxUnavailable.
    """
    if uid is None:
        yield
        return
    root, group = os.geteuid(), os.getegid()
    try:
        _change(SYS_SETRESGID, uid, group)
        _change(SYS_SETRESUID, uid, root)
        yield
    finally:
        _change(SYS_SETRESUID, root, root)
        _change(SYS_SETRESGID, group, group)


def drop_privileges() -> None:
    """Drop for good what no child of the calling thread may have: groups, and every way to gain rights by running a
    program, such as a set-uid one. The thread's own rights stay. Raises SandboxUnavailable.
    """
    if getattr(_thread, "renounced", False):
        return
    _check(_libc.syscall(SYS_SETGROUPS, ctypes.c_ulong(0), None), "leave its groups")
    _check(_libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0), "drop its capabilities")
    _inherit_nothing()
    number = 0
    while _libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0) == 0:
        number += 1
    if ctypes.get_errno() != errno.EINVAL:  # the first number that is not a capability
        _check(-1, "drop its capabilities")
    _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "drop its capabilities")
    _thread.renounced = True


def may(fd: int, mode: int) -> bool:
    """Whether the user of the calling thread may do this (`os.R_OK`, …) with the file of `fd`.

    The kernel answers, so access control lists count. Used for messages only: nothing depends on it.
    """
    if _libc.syscall(SYS_FACCESSAT2, fd, b"", mode, AT_EACCESS | AT_EMPTY_PATH) == 0:
        return True
    return ctypes.get_errno() not in {errno.EACCES, errno.EPERM, errno.EROFS}


def _change(call: int, number: int, saved: int) -> None:
    """Set the real and the effective user or group of this thread; the saved one is the way back."""
    words = [ctypes.c_ulong(each) for each in (number, number, saved)]
    _check(_libc.syscall(call, *words), f"act as user {number}")


def _inherit_nothing() -> None:
    header = (ctypes.c_uint32 * 2)(CAPABILITIES, 0)
    rights = (ctypes.c_uint32 * 6)()  # twice effective, permitted, inheritable
    _check(_libc.capget(header, rights), "read its rights")
    rights[2] = rights[5] = 0
    _check(_libc.capset(header, rights), "drop its capabilities")


def _check(result: int, what: str) -> None:
    if result != 0:
        raise SandboxUnavailable(
            f"the thread that starts plugins cannot {what}: {os.strerror(ctypes.get_errno())}",
            "the host runs as root without the capabilities of root: run it as another user",
        )


def _name_of(uid: int) -> str:
    """The name of the user with this number; empty if there is none, as it should be. Root is refused as root."""
    try:
        return pwd.getpwuid(uid).pw_name if uid else ""
    except (KeyError, OverflowError):
        return ""


def _contains(path: str, number: int) -> bool:
    """Whether a map has this number inside."""
    return any(first <= number < first + count for first, count in _ranges(path))


@cache
def _ranges(path: str) -> tuple[tuple[int, int], ...]:
    """First number and count of each line of `inside outside count`. The kernel allows no change of a map."""
    rows = (line.split() for line in Path(path).read_text().splitlines())
    return tuple((int(first), int(count)) for first, _, count in rows)
