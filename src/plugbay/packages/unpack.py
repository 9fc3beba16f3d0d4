"""Opens an archive into a folder of its own: new files in a new folder, hashed as they are written.

Owns what an unpacked file looks like: 0644, or 0755 where the archive says executable, in folders of 0755, owned by
whoever unpacks. What may be in an archive is `tar`'s to say.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.rules import DEFAULT_LIMITS, Limits
from plugbay.packages.tar import Archive, Member

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ARCHIVE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Unpacked:
    """What an archive was, and held."""

    digest: str
    """Of the packed bytes, as a registry names them: `sha256:…`."""
    size: int
    files: dict[str, str]
    """SHA-256 in hex by name."""


def unpack_file(
    archive: Path, into: Path, limits: Limits = DEFAULT_LIMITS, wrote: Callable[[str], None] = lambda name: None
) -> Unpacked:
    """`unpack` for a file on disk."""
    try:
        with open(os.open(archive, _ARCHIVE), "rb") as file:
            return unpack(file, into, limits, wrote)
    except FileNotFoundError:
        raise PackageRefused(Reason.NOT_FOUND, f"there is no file {archive}") from None
    except IsADirectoryError:
        hint = f"make a package of it with: plugbay pack {archive}"
        raise PackageRefused(Reason.BAD_ARCHIVE, f"{archive} is a folder, not a package", hint=hint) from None


def unpack(
    file: BinaryIO, into: Path, limits: Limits = DEFAULT_LIMITS, wrote: Callable[[str], None] = lambda name: None
) -> Unpacked:
    """Write the files of an archive below `into`, which must not exist yet.

    After `PackageRefused` there may be files in it; whoever named the folder removes it.
    """
    _make_folder(into)
    archive = Archive(file, limits)
    made, files = {into}, {}
    for member in archive:
        path = into / member.name
        for folder in reversed(path.parents):
            # Made by us, in a folder that was not there before: nobody can have put a link in the way.
            if folder not in made and into in folder.parents:
                _make_folder(folder)
                made.add(folder)
        files[member.name] = _write(path, member)
        wrote(member.name)
    return Unpacked(archive.digest, archive.size, files)


def _make_folder(path: Path) -> None:
    os.mkdir(path, 0o755)
    os.chmod(path, 0o755)  # whatever the umask takes away: another user may run what root installs


def _write(path: Path, member: Member) -> str:
    digest = hashlib.sha256()
    mode = 0o755 if member.executable else 0o644
    with open(os.open(path, _NEW_FILE, mode), "wb") as file:
        for data in member.body:
            digest.update(data)
            file.write(data)
        os.fchmod(file.fileno(), mode)
    return digest.hexdigest()
