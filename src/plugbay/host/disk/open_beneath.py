"""Opens a path below a folder without following links: by `openat2` where the kernel has it, else folder by folder.

Does not check access: callers have done that.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys

_SYS_OPENAT2 = 437
"""The same number on every architecture."""

_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08

_MISSING = frozenset({errno.ENOSYS, errno.EPERM})
"""Errors of an old kernel or of a container's system call filter."""

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(folder: str, path: str, flags: int) -> int:
    """A descriptor of `path`, relative to `folder`; raises `OSError`, with ELOOP or ENOTDIR if it contains a link."""
    parent = os.open(folder, _FOLDER)
    try:
        return by_openat2(parent, path, flags)
    except OSError as error:
        if error.errno not in _MISSING:
            raise
        return by_walking(parent, path, flags)
    finally:
        os.close(parent)


def by_openat2(parent: int, path: str, flags: int) -> int:
    """Let the kernel resolve the whole path; ENOSYS if it cannot."""
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), path)
    how = _OpenHow(flags | os.O_CLOEXEC, 0, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS)
    number, name = ctypes.c_long(_SYS_OPENAT2), os.fsencode(path)
    fd = int(_LIBC.syscall(number, parent, name, ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how))))
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)
    return fd


def by_walking(parent: int, path: str, flags: int) -> int:
    """Open folder by folder, each relative to the one before."""
    *folders, last = path.split("/")
    if ".." in path.split("/"):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
    at = os.dup(parent)
    try:
        for name in folders:
            below = os.open(name, _FOLDER, dir_fd=at)
            os.close(at)
            at = below
        return os.open(last, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    finally:
        os.close(at)
