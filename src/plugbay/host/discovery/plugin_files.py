"""`PluginFiles`: what a manifest may know of the folder it lies in, and of the machine.

Owns the way to a file below a plugin's folder: links are followed as long as they stay inside. Judges no content.
"""

from __future__ import annotations

import os
import platform
import stat
import sys
from pathlib import Path

from plugbay.contracts.vai.platforms import Platform, named
from plugbay.host.disk.open_beneath import open_beneath
from plugbay.model.errors import Problem
from plugbay.process.command import LaunchFailed, resolve

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
"""A pipe or a terminal in the place of a file must not hold the host up."""


class PluginFiles:
    """The folder of one plugin. Nothing it meets there raises."""

    def __init__(self, root: Path) -> None:
        self._root = os.path.realpath(root)

    @property
    def platform(self) -> Platform:
        """What machine this is."""
        return named(sys.platform, platform.machine())

    def read(self, path: str, limit: int) -> bytes | Problem:
        """A file of the folder, unless it has more than `limit` bytes."""
        below = self._below(path)
        if below is None:
            return Problem("path_escape", "", "leads out of the plugin's folder through a link")
        try:
            at = open_beneath(self._root, below, _FLAGS)
        except OSError as error:
            return _missing(error.strerror or str(error))
        try:
            return _content(at, limit)
        finally:
            os.close(at)

    def program_problem(self, path: str) -> str | None:
        """Why this file of the folder cannot be started."""
        if self._below(path) is None:
            return "leads out of the plugin's folder through a link"
        try:
            resolve((path,), Path(self._root), "")
        except LaunchFailed as error:
            return f"cannot be started: {error.message}"
        return None

    def _below(self, path: str) -> str | None:
        """The path without links, relative to the folder; None when it leads out."""
        real = os.path.realpath(os.path.join(self._root, path))
        inside = os.path.commonpath((self._root, real)) == self._root
        return os.path.relpath(real, self._root) if inside else None


def _content(file: int, limit: int) -> bytes | Problem:
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return _missing("it is no regular file")
        data = b""
        while len(data) <= limit and (more := os.read(file, limit + 1 - len(data))):
            data += more
    except OSError as error:
        return _missing(error.strerror or str(error))
    return data if len(data) <= limit else Problem("too_large", "", f"has more than {limit:,} bytes")


def _missing(why: str) -> Problem:
    return Problem("file_missing", "", f"cannot be read: {why}")
