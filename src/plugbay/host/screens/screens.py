"""`Screens`: what plugins draw, and what they are told of keys, the mouse and actions.

Owns when a picture is out of date, how long one may take, how often a plugin may ask to be drawn again, and the numbers
of keys. Every use is a call of its own, so after a restart it reaches whoever lives then. What is in a picture is
`frames`' business; how it is shown is the caller's. Lives on the host's loop.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plugbay.host.calls.calls import CallResult, Calls
from plugbay.host.catalog.catalog import Entry
from plugbay.host.screens import frames
from plugbay.host.screens.frames import MAX_CELLS, Cell, Frame
from plugbay.host.supervision.instance import Deadline
from plugbay.host.supervision.supervisor import Supervisor
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.operations import PerformAction, PressKey, Render, UseMouse

if TYPE_CHECKING:
    from plugbay.model.operations import PluginOp

__all__ = ["Cell", "Frame", "Screen", "Screens"]

MAX_REDRAWS = 600
"""Pictures in a row that a plugin may ask for itself: 20 s of an animation that nobody has touched."""

REDRAW_SECONDS = 5.0
"""From then on one picture in so many seconds, until the plugin is content or somebody does something. One that took
too long is asked for again after this time, too."""

NEEDS_LATER_ABI = frozenset({"insert"})
"""Keys that came with a later version of the contract; a plugin of this one could not read the message."""


@dataclass(frozen=True, slots=True)
class Screen:
    """One screen of one plugin."""

    name: str
    """`plugin/screen`, which is unique."""
    plugin_id: str
    screen: str


class _View:
    """What is known about the last picture of one screen."""

    __slots__ = ("due", "life", "redraws", "size")

    def __init__(self) -> None:
        self.due = -math.inf
        """From when on, by our clock, the picture is out of date."""
        self.life: _Life = (None, 0)
        """Whose picture it is."""
        self.redraws = 0
        self.size: tuple[int, int] | None = None

    def touched(self) -> None:
        """Something happened that the next picture may show."""
        self.due = -math.inf
        self.redraws = 0

    def drawn(self, frame: Frame | Failure, now: float) -> None:
        """There is a picture, or none; what happened while it was being drawn asks for another one in any case."""
        if isinstance(frame, Failure):
            wanted, at = frame.code == Code.TIMEOUT, now + REDRAW_SECONDS
        else:
            self.redraws = self.redraws + 1 if frame.redraw else 0
            wanted, at = frame.redraw, now if self.redraws <= MAX_REDRAWS else now + REDRAW_SECONDS
        if wanted:
            self.due = min(self.due, at)


_Life = tuple[Supervisor | None, int]
"""One process of a plugin: who looks after it, and how many came before it."""


class Screens:
    """Every screen of every plugin."""

    def __init__(self, calls: Calls, clock: Callable[[], float] = time.monotonic) -> None:
        self._calls = calls
        self._clock = clock
        self._entries = calls.catalog.of_kind("screen")
        self._views = {entry.full_name: _View() for entry in self._entries}
        self._overdue: dict[str, tuple[_Life, int]] = {}
        """Of each plugin that owes us a picture: which process of it, and how much it had answered too late by then."""
        self._generation = 0
        """Keys and mouse events so far, over all plugins."""

    def all(self) -> list[Screen]:
        return [Screen(entry.full_name, entry.spec.id, entry.export.name) for entry in self._entries]

    # Drawing.

    async def render(self, name: str, width: int, height: int, *, timeout: float | None = None) -> Frame:
        """A picture of a screen; raises `CallFailed`.

        A plugin that does not run is started first. With `timeout`, that counts too; otherwise the time is the
        contract's and begins when the plugin is there.
        """
        entry = self._find(name)
        if not (0 < width <= 0xFFFF and 0 < height <= 0xFFFF and width * height <= MAX_CELLS):
            text = f"a screen of {width} by {height} cells cannot be drawn; there may be {MAX_CELLS:,} of them"
            raise CallFailed(Failure(Code.INVALID_INPUT, text, plugin=entry.spec.id))
        view = self._views[entry.full_name]
        view.due = math.inf
        if view.size != (width, height):
            view.size, view.redraws = (width, height), 0
        op = Render(entry.export.name, width, height, self._generation)
        try:
            if timeout is None:
                await self._awaken(entry)
            result = await self._calls.attempt(entry.full_name, lambda _: op, timeout, kind="screen")
        except asyncio.CancelledError:
            view.due = -math.inf
            raise
        self._looked_at(entry)
        view.life = self._life(entry.spec.id)
        frame = self._judged(entry, result, timeout) or frames.decode(result.output, width, height)
        view.drawn(frame, self._clock())
        if isinstance(frame, Failure):
            raise CallFailed(frame.with_detail(entry.spec.id), result.record.call_id)
        return frame

    async def _awaken(self, entry: Entry) -> None:
        """Start the plugin ahead of the call: a picture that takes long is no good sign, a start that does may be."""
        supervisor = self._calls.supervisors.get(entry.spec.id)
        if supervisor is None or supervisor.ready or not self._calls.admits(entry):
            return
        times = supervisor.binding.spec.timeouts
        lease = await supervisor.lease(Deadline(times.launch + times.handshake))
        if isinstance(lease, Failure):
            raise CallFailed(lease)
        lease.release()

    def _judged(self, entry: Entry, result: CallResult, timeout: float | None) -> Failure | None:
        """Why there is no picture. A plugin that lives and says nothing is noted, and left alone."""
        failure, plugin_id = result.failure, entry.spec.id
        supervisor = self._calls.supervisors.get(plugin_id)
        if failure is None:
            self.answered(plugin_id)
        if failure is None or failure.code != Code.TIMEOUT or supervisor is None or not supervisor.ready:
            return failure
        self._overdue[plugin_id] = self._signs(plugin_id)
        spec = supervisor.binding.spec
        seconds = timeout if timeout is not None else spec.patience.get(Render.__name__, spec.timeouts.call)
        return Failure(Code.TIMEOUT, f"render exceeded {seconds:g} s", plugin=plugin_id, detail=failure.detail)

    def wedged(self, plugin_id: str) -> bool:
        """Whether a picture has taken too long and the same process has not answered anything since."""
        return plugin_id in self._overdue and self._overdue[plugin_id] == self._signs(plugin_id)

    def answered(self, plugin_id: str) -> None:
        """The plugin has answered something, whatever it was."""
        self._overdue.pop(plugin_id, None)

    def dirty(self, name: str) -> bool:
        """Whether the last picture of a screen is out of date, or there is none."""
        entry = self._find(name)
        view = self._looked_at(entry)
        return view.due <= self._clock() or view.life != self._life(entry.spec.id)

    def touch(self, plugin_id: str) -> None:
        """The plugin was told something, so its pictures are out of date."""
        for entry in self._entries:
            if entry.spec.id == plugin_id:
                self._views[entry.full_name].touched()

    # Telling.

    def press(self, name: str, key: Mapping[str, Any]) -> bool:
        """Tell a screen of a key; False when nobody is there to hear of it, and the key is lost."""
        if key["code"]["type"] in NEEDS_LATER_ABI:
            return False
        entry = self._find(name)
        return self._tell(entry.spec.id, PressKey(entry.export.name, key, self._next()))

    def mouse(self, name: str, mouse: Mapping[str, Any]) -> bool:
        """Tell a screen what the mouse did on it; what it did elsewhere, or mere moving, is not told."""
        entry = self._find(name)
        width, height = self._views[entry.full_name].size or (0xFFFF, 0xFFFF)
        if mouse["kind"]["type"] == "moved" or not (0 <= mouse["col"] < width and 0 <= mouse["row"] < height):
            return False
        return self._tell(entry.spec.id, UseMouse(entry.export.name, mouse, self._next()))

    def act(self, plugin_id: str, action: str, payload: Any = None) -> bool:
        """Tell a plugin to do something it offers under a name; False when nobody is there to hear of it."""
        return self._tell(plugin_id, PerformAction(action, payload))

    def _tell(self, plugin_id: str, op: PluginOp) -> bool:
        told = self._calls.tell(plugin_id, op)
        if told:
            self.touch(plugin_id)
        return told

    # Details.

    def _find(self, name: str) -> Entry:
        entry = self._calls.catalog.resolve(name, "screen")
        if isinstance(entry, Failure):
            raise CallFailed(entry)
        return entry

    def _looked_at(self, entry: Entry) -> _View:
        """The view of a screen; a plugin whose screen somebody looks at is not idle."""
        supervisor = self._calls.supervisors.get(entry.spec.id)
        if supervisor is not None:
            supervisor.mark_shown()
        return self._views[entry.full_name]

    def _next(self) -> int:
        self._generation += 1
        return self._generation

    def _life(self, plugin_id: str) -> _Life:
        supervisor = self._calls.supervisors.get(plugin_id)
        return (supervisor, supervisor.generation) if supervisor else (None, 0)

    def _signs(self, plugin_id: str) -> tuple[_Life, int]:
        """What changes as soon as a plugin that was silent answers after all, or another process takes its place."""
        life = self._life(plugin_id)
        return life, life[0].counters.get("late_answers", 0) if life[0] else 0
