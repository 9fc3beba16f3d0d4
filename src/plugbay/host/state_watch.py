"""`StateWatch`: whether confined plugins keep more than they may, before they start and for as long as they run.

Owns when a plugin's own folder is measured and what counts: what the disk holds for it, also of files without a name.
Refuses to know what becomes of a plugin that keeps too much: whoever watches it is told.

No file system that we can count on limits a folder, so there is a look at it now and then. What a disk takes between
two of them is what a plugin can have too much.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from plugbay.host import tree
from plugbay.process import unlinked

if TYPE_CHECKING:
    from plugbay.process.child import Child

    TooFull = Callable[[str], None]
    """Hears why, once."""

LOOK_SECONDS = 2.0
"""Between two looks at all of them."""

LONGEST_PAUSE = 30.0

SHARE = 20
"""The time between two looks is at least so many times what one takes: large folders must not keep a core busy."""


class StateWatch:
    """The folders of all plugins of one host; one look at a time, on a thread."""

    __slots__ = ("_looking", "_watched")

    def __init__(self) -> None:
        self._watched: dict[Child, tuple[Path, int, TooFull]] = {}
        self._looking: asyncio.Task[None] | None = None

    def begin(self, child: Child, folder: Path, most: int, too_full: TooFull) -> None:
        """Until its end, see to it that a plugin does not keep more than `most` bytes in its folder."""
        self._watched[child] = (folder, most, too_full)
        child.on_exit(lambda _: self._end(child))
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look_again_and_again())

    def _end(self, child: Child) -> None:
        self._watched.pop(child, None)
        if not self._watched and self._looking is not None:
            self._looking.cancel()
            self._looking = None

    async def _look_again_and_again(self) -> None:
        pause = LOOK_SECONDS
        while True:
            await asyncio.sleep(pause)
            began = time.monotonic()
            looks = [(child, child.pid, folder, most) for child, (folder, most, _) in self._watched.items()]
            found = await asyncio.to_thread(_look_at_all, looks)
            pause = min(max(LOOK_SECONDS, SHARE * (time.monotonic() - began)), LONGEST_PAUSE)
            for child, why in found:
                if why is not None and child in self._watched:
                    self._watched[child][2](why)


def _look_at_all(looks: list[tuple[Child, int, Path, int]]) -> list[tuple[Child, str | None]]:
    return [(child, overfull(pid, folder, most)) for child, pid, folder, most in looks]


def overfull(pid: int, folder: Path, most: int) -> str | None:
    """Why a process keeps too much in a folder; None when it does not. Blocks."""
    return tree.overfull(folder, most, unlinked.held(pid, folder))
