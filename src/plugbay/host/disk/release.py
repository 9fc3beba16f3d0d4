"""Installed releases of packages: the list of their files, and the check before each start that nothing has changed.

The package store writes the list beside the folder of a release. A folder without a list is not a release, and is not
checked. All files are hashed at the first start and after any change that the kernel recorded; else their inodes and
times are compared, which cost a system call for each file. Blocks: run it on a thread.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from plugbay.process.diagnose import LaunchFailed

LIST = "plugbay-release.sha256"
"""File name of the list, in the format of `sha256sum`. It is beside the folder, so it is not part of the release."""

SIGNATURE_NAME = "marketplace.signature.json"
"""The signature of a folder; not part of the signed files, and not listed: another one may take its place."""

MAX_LIST = 4 << 20
"""Bytes of a list: 5,000 names of 500 bytes, with their hashes."""

MAX_KNOWN = 256
"""Releases whose inodes and times are remembered."""

SETTLED_SECONDS = 2.0
"""Times of files are as coarse as the clock of the kernel: a file that changed less than this ago may change once more
without another time, so it is hashed each time."""

HINT = "install it again: plugbay uninstall, then plugbay install; a plugin keeps its data in its state folder"

Prints = tuple[tuple[str, int, int, int, int, int], ...]
"""Name, device, inode, size, and times of change of each file."""

_known: dict[str, Prints] = {}
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def format_list(files: Mapping[str, str]) -> bytes:
    """The list for these SHA-256 by name."""
    return "".join(f"{files[name]}  {name}\n" for name in sorted(files, key=str.encode)).encode()


def is_release(root: Path) -> bool:
    """Whether a folder has a list beside it."""
    return os.path.isfile(f"{os.path.dirname(root)}/{LIST}")


def verify(root: Path, place: str | None = None) -> None:
    """Raise `LaunchFailed` if the files of a release are not those of its list.

    `place`: where to read them, such as a descriptor that a sandbox shows to the plugin; the folder by default.
    """
    try:
        expected = _read_list(root.parent / LIST)
        found = dict(_files(place or str(root)))
    except OSError as error:
        raise _refused(root, "", f"the files of the package cannot be read: {error.strerror}") from error
    prints = tuple((name, *_print(status)) for name, status in sorted(found.items()))
    if _known.get(str(root)) == prints and found.keys() == expected.keys():
        return
    for name in sorted(found.keys() | expected.keys()):
        if name not in expected:
            raise _refused(root, name, f"{name!r} is not part of the installed package")
        if name not in found:
            raise _refused(root, name, f"{name!r} of the package is missing")
        if not stat.S_ISREG(found[name].st_mode) or _hash(f"{place or root}/{name}") != expected[name]:
            raise _refused(root, name, f"{name!r} was changed after the package was installed")
    if all(_is_settled(status) for status in found.values()):
        if len(_known) >= MAX_KNOWN:
            _known.clear()
        _known[str(root)] = prints


def is_listed(root: Path, name: str, data: bytes) -> bool:
    """Whether these are the contents of a file of a release; True for a folder that is not a release."""
    try:
        return not is_release(root) or _read_list(root.parent / LIST).get(name) == hashlib.sha256(data).hexdigest()
    except OSError:
        return False


def _read_list(path: Path) -> dict[str, str]:
    with open(os.open(path, _READ), "rb") as file:
        lines = file.read(MAX_LIST).decode("utf-8", "surrogateescape").splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def _files(place: str, below: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Everything in a folder that is not a folder. Links are not followed."""
    with os.scandir(f"{place}/{below}") as entries:
        for entry in entries:
            name = below + entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from _files(place, f"{name}/")
            elif name != SIGNATURE_NAME:
                yield name, entry.stat(follow_symlinks=False)


def _print(status: os.stat_result) -> tuple[int, int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _is_settled(status: os.stat_result) -> bool:
    return status.st_ctime < time.time() - SETTLED_SECONDS


def _hash(path: str) -> str:
    with open(os.open(path, _READ), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _refused(root: Path, name: str, why: str) -> LaunchFailed:
    detail: dict[str, object] = {"reason": "tampered", "folder": str(root), **({"file": name} if name else {})}
    return LaunchFailed(f"the plugin is not started: {why}", HINT, detail)
