"""`Painter`: requests the frames of one screen, and keeps the last one.

At most 30 frames per second, one request at a time, and a pause after a failure. Independent of the terminal: size and
time are arguments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from plugbay.host.screens.screens import Frame, Screen
from plugbay.host.status import PluginStatus
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.tui.backend import ScreenSource

FRAME_SECONDS = 1 / 30
"""Minimum time between frames: the refresh rate of terminals."""

PROBE_SECONDS = 5.0
"""Until a plugin that timed out is asked again, unless it sends something before."""

RETRY_SECONDS = 1.0
"""Until a running plugin that returned an error is asked again, and only if something changed."""


class Painter:
    """Requests frames of one screen. `changed` is called when there is something new to show."""

    def __init__(
        self,
        screens: ScreenSource,
        screen: Screen,
        status: Callable[[], PluginStatus],
        changed: Callable[[Painter], None],
    ) -> None:
        self.screen = screen
        self.status = status
        """Returns the current status of the plugin."""
        self.frame: Frame | None = None
        """The last frame; kept while the plugin hangs."""
        self.failure: Failure | None = None
        """Why the last request failed."""
        self._screens = screens
        self._changed = changed
        self._asking: asyncio.Task[None] | None = None
        self._size = (0, 0)
        self._wanted = True
        self.held = False
        """Requests are paused while the plugin is being replaced."""
        self._started = self._ended = float("-inf")

    @property
    def stuck(self) -> bool:
        """Whether the plugin timed out and has sent nothing since."""
        return self._screens.wedged(self.screen.plugin_id)

    @property
    def broken(self) -> Failure | None:
        """Why there is no frame; None while there is one, or one is requested."""
        return None if self.failure is None or self.failure.code == Code.TIMEOUT else self.failure

    @property
    def captures_text(self) -> bool:
        return self.frame is not None and self.frame.captures_text

    # Input.

    def press(self, key: Mapping[str, Any]) -> bool:
        return self._screens.press(self.screen.name, key)

    def mouse(self, mouse: Mapping[str, Any]) -> bool:
        return self._screens.mouse(self.screen.name, mouse)

    # Requests.

    def tick(self, width: int, height: int, now: float) -> None:
        """Request a frame if one is due."""
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

    # State changes.

    def request_again(self) -> None:
        """Request a frame at the next tick in any case."""
        self._wanted = True

    def hold(self) -> None:
        """Pause and show nothing until `renew`."""
        self.held, self.frame, self.failure = True, None, None
        self._changed(self)

    def renew(self) -> None:
        self.held, self._wanted = False, True

    def process_ended(self, failure: Failure) -> None:
        """The process ended. Cancel the open request: it would only wait for the next process."""
        if not self.held:
            if self._asking is not None:
                self._asking.cancel()
            self.failure = failure
            self._changed(self)

    async def close(self) -> None:
        """Cancel the open request."""
        self.held = True
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
