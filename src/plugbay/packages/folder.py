"""A plugin's folder as a list of files: which of them belong into a package, and their hashes.

Owns the ignore list. Follows no link, and refuses what no package can hold rather than leaving it out in silence.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from plugbay.packages.errors import PackageRefused, Reason

IGNORE_FILE = ".plugbayignore"

IGNORED = tuple(
    f"{IGNORE_FILE} .git .gitignore .gitattributes .hg .svn .DS_Store Thumbs.db .idea .vscode *.swp *~ .env *.key "
    "__pycache__ *.pyc *.pyo .venv venv .tox .nox .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage htmlcov "
    "*.egg-info".split()
)
"""Never packed: what tools leave behind, and what is secret by its name."""

SIGNATURE_NAME = "marketplace.signature.json"
"""The signature of a folder; no part of what it signs."""

CHUNK = 1 << 20


class Entry(NamedTuple):
    """One file."""

    name: str
    """As in a package: parts divided by `/`."""
    path: Path
    executable: bool
    size: int


def packed_files(root: Path) -> list[Entry]:
    """The files that `pack` takes, in their order in a package."""
    return _sorted(_walk(root, _patterns(root)))


def would_be_packed(root: Path, path: Path) -> bool:
    """Whether a file, also one that is not there yet, lies where `pack` would take it."""
    root, path = root.resolve(), path.resolve()
    parts = path.relative_to(root).parts if path.is_relative_to(root) else ()
    places = ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
    return bool(places) and not any(_is_ignored(place, _patterns(root)) for place in places)


def all_files(root: Path) -> list[Entry]:
    """Every file but the signature: what an unpacked package consists of."""
    return _sorted(_walk(root, ()))


def hashes(entries: list[Entry]) -> dict[str, str]:
    """SHA-256 in hex by name."""
    return {entry.name: _hash(entry.path) for entry in entries}


def read_signature(root: Path) -> bytes | None:
    """The bytes of a folder's signature; None when it has none."""
    path = root / SIGNATURE_NAME
    return path.read_bytes() if path.is_file() and not path.is_symlink() else None


def _sorted(entries: Iterator[Entry]) -> list[Entry]:
    found = [entry for entry in entries if entry.name != SIGNATURE_NAME]
    return sorted(found, key=lambda entry: entry.name.encode("utf-8", "surrogateescape"))


def _patterns(root: Path) -> tuple[str, ...]:
    """What is never packed, and the plugin's own list: a pattern a line, `#` for comments."""
    try:
        lines = (root / IGNORE_FILE).read_text("utf-8", "surrogateescape").splitlines()
    except FileNotFoundError:
        return IGNORED
    return (*IGNORED, *(line.strip().rstrip("/") for line in lines if line.strip() and not line.startswith("#")))


def _is_ignored(name: str, patterns: tuple[str, ...]) -> bool:
    """A pattern without a slash is for a file or folder anywhere, one with a slash for a path from the root."""
    last = name.rpartition("/")[2]
    return any(fnmatch.fnmatchcase(name if "/" in pattern else last, pattern.lstrip("/")) for pattern in patterns)


def _walk(root: Path, patterns: tuple[str, ...]) -> Iterator[Entry]:
    for place, folders, files in os.walk(root, onerror=_raise):
        below = "" if place == str(root) else f"{Path(place).relative_to(root).as_posix()}/"
        kept = [name for name in (*folders, *files) if not _is_ignored(below + name, patterns)]
        folders[:] = [name for name in folders if name in kept and not os.path.islink(os.path.join(place, name))]
        yield from (_entry(below + name, Path(place, name)) for name in kept if name not in folders)


def _raise(error: OSError) -> None:
    raise error


def _entry(name: str, path: Path) -> Entry:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        hint = f"put the file itself in its place, or name it in {IGNORE_FILE}"
        raise PackageRefused(Reason.LINK, f"{name!r} is a symbolic link", hint=hint, file=name)
    if not stat.S_ISREG(status.st_mode):
        text = f"{name!r} is a pipe, a socket or a device"
        raise PackageRefused(Reason.SPECIAL_FILE, text, hint=f"name it in {IGNORE_FILE}", file=name)
    return Entry(name, path, bool(status.st_mode & 0o111), status.st_size)


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        while data := file.read(CHUNK):
            digest.update(data)
    return digest.hexdigest()
