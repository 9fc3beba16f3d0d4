"""`StateWatch`: whether confined plugins keep more than they may, before they start and for as long as they run.

Owns when a plugin's own folder is measured and what counts: what the disk holds for it, also of files without a name.
Refuses to know what becomes of a plugin that keeps too much: whoever watches it is told.

No file system that we can count on limits a folder, so there is a look at it now and then. What a disk takes between
two of them is what a plugin can have too much.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from plugbay.host.confinement.watch import Watch
from plugbay.host.disk import tree
from plugbay.process import unlinked

if TYPE_CHECKING:
    from plugbay.process.child import Child

LOOK_SECONDS = 2.0
"""Between two looks at all of them."""


class StateWatch:
    """The folders of all plugins of one host."""

    __slots__ = ("_watch",)

    def __init__(self) -> None:
        self._watch = Watch(LOOK_SECONDS)

    def begin(self, child: Child, folder: Path, most: int, too_full: Callable[[str], None]) -> None:
        """Until its end, see to it that a plugin does not keep more than `most` bytes in its folder."""
        self._watch.begin(child, partial(overfull, child.pid, folder, most), too_full)


def overfull(pid: int, folder: Path, most: int) -> str | None:
    """Why a process keeps too much in a folder; None when it does not. Blocks."""
    return tree.overfull(folder, most, unlinked.held(pid, folder))
