"""The terminal app with a real host and plugins, keys and clicks through Textual's own driver."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from textual.geometry import Region
from textual.pilot import Pilot

from plugbay.host.host import Host
from plugbay.tui.app import Terminal
from plugbay.tui.backend import HostBackend
from plugbay.tui.canvas import Canvas
from plugbay.tui.widgets import PluginList
from tests.support.patience import PATIENCE, until


class Seen:
    """A running app, what it shows, and input for it."""

    def __init__(self, app: Terminal, pilot: Pilot[None]) -> None:
        self.app = app
        self.host = app.backend
        self.pilot = pilot

    @property
    def canvas(self) -> Canvas:
        return self.app.query_one(Canvas)

    @property
    def lines(self) -> list[str]:
        """The lines of the screen area, without trailing blanks."""
        room = Region(0, 0, *self.canvas.size)
        return [strip.text.rstrip() for strip in self.canvas.render_lines(room)]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def whole(self) -> str:
        """All text of the window."""
        return "\n".join(strip.text for strip in self.app.screen._compositor.render_strips())

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def until(self, condition: Callable[[], object]) -> None:
        await until(lambda: bool(condition()), PATIENCE)

    async def shows(self, text: str) -> None:
        """Wait until the screen shows this text."""

        def is_there() -> bool:
            shown = self.text
            return text in shown and " is starting …" not in shown

        await self.until(is_there)

    async def choose(self, name: str) -> None:
        """Move in the list to this plugin."""
        wanted = [status.spec.id for status in self.host.plugins()].index(name)
        plugins = self.app.query_one(PluginList)
        await self.until(lambda: plugins.highlighted is not None)
        assert plugins.highlighted is not None
        steps = wanted - plugins.highlighted
        await self.press(*["down" if steps > 0 else "up"] * abs(steps))
        await self.until(lambda: plugins.highlighted == wanted)

    async def use(self, name: str, text: str = "") -> None:
        """Select a plugin, wait for its frame and focus its screen."""
        await self.choose(name)
        await self.shows(text or name)
        await self.press("enter")
        await self.until(lambda: self.canvas.has_focus)


@contextlib.asynccontextmanager
async def terminal(root: Path, *, size: tuple[int, int] = (120, 30), **options: Any) -> AsyncIterator[Seen]:
    """The app for all plugins in `root`."""
    async with Host.load(root, **{"grant_all": True, **options}) as host:
        app = Terminal(HostBackend(host))
        async with app.run_test(size=size, notifications=True) as pilot:
            yield Seen(app, pilot)


def plain(page: RenderableType, width: int = 100) -> str:
    """A page as plain text."""
    console = Console(width=width, color_system=None, highlight=False, markup=False, legacy_windows=False)
    with console.capture() as captured:
        console.print(page)
    return captured.get()
