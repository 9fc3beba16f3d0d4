"""What a plugin's granted access covers: topics, folders, the starting of processes. Decides with values.

Pure, so every row of the decision is a row of a test table. Where the network leads is judged in `model.addresses`.
"""

from __future__ import annotations

from collections.abc import Iterable
from os.path import normpath
from pathlib import PurePosixPath

from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.spec import Access
from plugbay.model.topics import covers


def covers_topic(access: Iterable[Access], topic: str) -> bool:
    """Whether the snapshots of this topic may be read or published."""
    return any(item.kind == "topic" and covers(item.target, topic) for item in access)


def read_roots(access: Iterable[Access]) -> list[str]:
    """The folders and files that may be looked at, `~` not expanded yet."""
    return [item.target for item in access if item.kind == "read_path"]


def may_spawn(access: Iterable[Access]) -> bool:
    """Whether processes may be started for the plugin."""
    return any(item.kind == "run" for item in access)


def closing(requested: Iterable[Access], path: str, home: str) -> str:
    """The capability that would open this path: the one whose folder it is in, or else the one for any folder.

    Goes by the letters of the paths: it only names what was refused already.
    """
    wanted = PurePosixPath(normpath(path))
    for item in requested:
        root = PurePosixPath(home, item.target[2:]) if item.target.startswith("~/") else PurePosixPath(item.target)
        if item.kind == "read_path" and wanted.is_relative_to(root):
            return item.capability.partition("=")[0]
    return "read_paths"


def refused(capability: str, text: str) -> Failure:
    """A gate that stays closed."""
    return Failure(Code.CAPABILITY_NOT_ALLOWED, text, origin=Origin.POLICY, detail={"capability": capability})
