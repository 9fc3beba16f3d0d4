"""`Painter`: one screen of one plugin, its last picture, and when to ask for the next one.

Owns the pace: at most 30 pictures a second, never two questions at once, a pause after a failure. Asks through the
host's `Screens`; knows no terminal, and is told its size and the time by whoever shows the picture.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from plugbay.host.screens.screens import Frame, Screen, Screens
from plugbay.host.status import PluginStatus
from plugbay.model.errors import CallFailed, Code, Failure

FRAME_SECONDS = 1 / 30
"""Between two pictures: as often as terminals repaint, and what the contract's own host does."""

PROBE_SECONDS = 5.0
"""Until a plugin that did not answer in time is asked again, unless it says something before."""

RETRY_SECONDS = 1.0
"""Until a living plugin that answered with an error is asked again, and then only when something changed."""


class Painter:
    """Asks for pictures of one screen. `changed` is called whenever there is something else to show."""

    def __init__(
        self,
        screens: Screens,
        screen: Screen,
        status: Callable[[], PluginStatus],
        changed: Callable[[Painter], None],
    ) -> None:
        self.screen = screen
        self.status = status
        """How the plugin is doing now."""
        self.frame: Frame | None = None
        """The last picture; it stays while the plugin hangs."""
        self.failure: Failure | None = None
        """Why the last question had no answer."""
        self._screens = screens
        self._changed = changed
        self._asking: asyncio.Task[None] | None = None
        self._size = (0, 0)
        self._wanted = True
        self.held = False
        """Nothing is asked, because the plugin is being replaced."""
        self._started = self._ended = float("-inf")

    @property
    def stuck(self) -> bool:
        """Whether the plugin let a picture's time run out and has said nothing since."""
        return self._screens.wedged(self.screen.plugin_id)

    @property
    def broken(self) -> Failure | None:
        """Why there is nothing to look at; None while there is a picture, or one is on its way."""
        return None if self.failure is None or self.failure.code == Code.TIMEOUT else self.failure

    @property
    def captures_text(self) -> bool:
        return self.frame is not None and self.frame.captures_text

    # What a person does.

    def press(self, key: Mapping[str, Any]) -> bool:
        return self._screens.press(self.screen.name, key)

    def mouse(self, mouse: Mapping[str, Any]) -> bool:
        return self._screens.mouse(self.screen.name, mouse)

    # Asking.

    def tick(self, width: int, height: int, now: float) -> None:
        """Ask for a picture if one is due."""
        size = (width, height)
        if self._asking is None and not self.held and min(size) > 0 and self._due(size, now):
            self._size, self._wanted, self._started = size, False, now
            self._asking = asyncio.ensure_future(self._ask(width, height))

    def _due(self, size: tuple[int, int], now: float) -> bool:
        if now - self._started < FRAME_SECONDS:
            return False
        changed = self._wanted or size != self._size or self._screens.dirty(self.screen.name)
        if self.failure is None or self._wanted:
            return changed
        if self.failure.code == Code.TIMEOUT:
            return not self.stuck or now - self._ended >= PROBE_SECONDS
        return changed and self.status().pid is not None and now - self._ended >= RETRY_SECONDS

    async def _ask(self, width: int, height: int) -> None:
        try:
            self.frame = await self._screens.render(self.screen.name, width, height)
            self.failure = None
        except CallFailed as error:
            self.failure = error.failure
        finally:
            self._asking = None
            self._ended = asyncio.get_running_loop().time()
        self._changed(self)

    # What others know.

    def again(self) -> None:
        """Ask at the next tick, whatever happened before."""
        self._wanted = True

    def hold(self) -> None:
        """Ask nothing and show nothing until `renew`: the plugin is being replaced."""
        self.held, self.frame, self.failure = True, None, None
        self._changed(self)

    def renew(self) -> None:
        self.held, self._wanted = False, True

    def lost(self, failure: Failure) -> None:
        """The process ended. A question that is open is taken back: it would only wait for the next process."""
        if not self.held:
            if self._asking is not None:
                self._asking.cancel()
            self.failure = failure
            self._changed(self)

    async def close(self) -> None:
        """Take back the question that is open."""
        self.held = True
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
