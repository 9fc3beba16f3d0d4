"""Limits and file names of packages, for packing and unpacking alike. Pure.

A name is refused if any file system could read it as another name, so that the files verified on one machine are the
files that run on the next.
"""

from __future__ import annotations

import unicodedata

import msgspec

from plugbay.packages.errors import PackageRefused, Reason

MAX_PATH = 500
"""Bytes of a name; macOS allows 1,024 including the store's own folders."""

MAX_PART = 200
"""Bytes of one part; most file systems allow 255, encrypted ones fewer."""

MAX_DEPTH = 32
"""Nesting; a deep node_modules tree has about 20."""

_RESERVED = frozenset(
    "con prn aux nul conin$ conout$".split() + [f"{device}{digit}" for device in ("com", "lpt") for digit in range(10)]
)
"""Device names on Windows, with any suffix."""

_WINDOWS = frozenset('\\:<>|"?*')
"""Separators, patterns and forbidden characters on Windows."""

_INVISIBLE = frozenset(
    map(chr, [0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180F, 0x3164, 0xFFA0, *range(0x180B, 0x180E)])
) | frozenset(map(chr, [*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)]))
"""Default-ignorable characters that count as printable; case-insensitive file systems ignore them."""


class Limits(msgspec.Struct, frozen=True):
    """Limits for untrusted packages."""

    packed: int = 50 << 20
    """Bytes of the archive."""
    unpacked: int = 200 << 20
    """Bytes of the tar, counted while inflating."""
    files: int = 5_000
    """Entries, including folders."""
    ratio: int = 100
    """Inflated bytes per packed byte; text reaches 10, generated tables 50."""
    unjudged: int = 1 << 20
    """Inflated bytes before the ratio counts: small files are mostly padding."""


DEFAULT_LIMITS = Limits()


def name_problem(name: str) -> str | None:
    """Why a file name is not allowed; None when it is."""
    if not name or name.startswith("/"):
        return "is empty" if not name else "is an absolute path"
    if not _WINDOWS.isdisjoint(name):
        return 'contains one of \\ : < > | " ? *, which have a special meaning on some systems'
    if not name.isprintable() or not _INVISIBLE.isdisjoint(name):
        return "contains characters that cannot be printed"
    if len(name.encode()) > MAX_PATH:
        return f"has more than {MAX_PATH} bytes"
    parts = name.split("/")
    if len(parts) > MAX_DEPTH:
        return f"is more than {MAX_DEPTH} folders deep"
    return next((problem for part in parts if (problem := _part_problem(part))), None)


def _part_problem(part: str) -> str | None:
    if part in {"", ".", ".."}:
        return f"has {part!r} as one of its parts"
    if len(part.encode()) > MAX_PART:
        return f"has a part of more than {MAX_PART} bytes"
    if part != part.strip() or part.endswith("."):
        return "has a part that begins or ends with a space, or ends with a dot"
    if _key(part.split(".")[0]).strip() in _RESERVED:
        return f"has a part, {part!r}, that is a device on Windows"
    return None


class Names:
    """The names of one package; raises `PackageRefused` for the first one that is not allowed."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._folders: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._files) + len(self._folders)

    def add(self, name: str) -> None:
        """Add a file and its parent folders."""
        self._check(name)
        parts = name.split("/")
        for depth in range(1, len(parts)):
            self._take_folder("/".join(parts[:depth]))
        key = _key(name)
        if key in self._files or key in self._folders:
            self._refuse_duplicate(name, self._files.get(key) or self._folders[key])
        self._files[key] = name

    def add_folder(self, name: str) -> None:
        """Add a folder, which may be listed more than once."""
        self._check(name)
        parts = name.split("/")
        for depth in range(1, len(parts) + 1):
            self._take_folder("/".join(parts[:depth]))

    def _check(self, name: str) -> None:
        problem = name_problem(name)
        if problem:
            raise PackageRefused(Reason.UNSAFE_NAME, f"the name {name!r} {problem}", file=name)

    def _take_folder(self, name: str) -> None:
        key = _key(name)
        if key in self._files:
            self._refuse_duplicate(name, self._files[key])
        if self._folders.setdefault(key, name) != name:
            self._refuse_duplicate(name, self._folders[key])

    def _refuse_duplicate(self, name: str, other: str) -> None:
        text = f"{name!r} appears twice" if name == other else f"{other!r} and {name!r} are one name on some systems"
        raise PackageRefused(Reason.DUPLICATE_NAME, text, file=name)


def _key(name: str) -> str:
    """Equal for names that differ only in case or Unicode composition."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
