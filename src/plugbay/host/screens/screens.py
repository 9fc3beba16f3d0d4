"""`Screens`: frames of plugins' screens, and the input sent to them. `CommandLines`: command lines of plugins.

Owns when a frame is out of date, how long a render may take, how often a plugin may request a redraw, and the numbers
of input events. Every render is a call of its own, so it reaches the current process after a restart. `frames` checks
the contents. Runs on the host's loop.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from plugbay.host.calls.calls import Calls
from plugbay.host.catalog.catalog import Entry
from plugbay.host.request import CallRequest, CallResult
from plugbay.host.screens import frames
from plugbay.host.screens.frames import MAX_CELLS, Cell, Frame
from plugbay.host.screens.keys import key_name
from plugbay.host.supervision.instance import Deadline
from plugbay.host.supervision.supervisor import Supervisor
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.operations import DispatchCli, PerformAction, PressKey, Render, UseMouse

if TYPE_CHECKING:
    from plugbay.model.operations import PluginOp


__all__ = ["Cell", "CliOutput", "CommandLines", "Frame", "Screen", "Screens"]

MAX_REDRAWS = 600
"""Redraws in a row that a plugin may request without input: 20 s of an animation."""

REDRAW_SECONDS = 5.0
"""Seconds between further redraws, until the plugin stops requesting them or there is input. Also the delay after a
render that timed out."""

SETTLING_FRAMES = 20
"""Maximum number of frames until the plugin requests no redraw; the contract's own test suite uses the same."""

FRAME_SECONDS = 1 / 30
"""Time between two frames, as on a terminal."""

NEEDS_LATER_ABI = frozenset({"insert"})
"""Keys of a later version of the contract; plugins of this version cannot decode them."""


class Screen(msgspec.Struct, frozen=True):
    """One screen of one plugin."""

    name: str
    """`plugin/screen`, which is unique."""
    plugin_id: str
    screen: str


class _View:
    """The state of one screen's last frame."""

    __slots__ = ("due", "process", "redraws", "revision", "seen", "size")

    def __init__(self) -> None:
        self.due = -math.inf
        """The time of our clock from which the frame is out of date."""
        self.process: _Process = (None, 0)
        """The process that rendered it."""
        self.revision = 0
        self.seen: _Process = (None, 0)
        """The process that `revision` counts."""
        self.redraws = 0
        self.size: tuple[int, int] | None = None

    def invalidate(self) -> None:
        """The frame is out of date now."""
        self.due = -math.inf
        self.redraws = 0
        self.revision += 1

    def record(self, frame: Frame | Failure, now: float) -> None:
        """Note the end of a render; an invalidation during the render stays in effect."""
        if isinstance(frame, Failure):
            wanted, at = frame.code == Code.TIMEOUT, now + REDRAW_SECONDS
        else:
            self.redraws = self.redraws + 1 if frame.redraw else 0
            wanted, at = frame.redraw, now if self.redraws <= MAX_REDRAWS else now + REDRAW_SECONDS
        if wanted:
            self.due = min(self.due, at)


_Process = tuple[Supervisor | None, int]
"""One process of a plugin: its supervisor and its generation."""


class Screens:
    """Every screen of every plugin."""

    def __init__(self, calls: Calls, clock: Callable[[], float] = time.monotonic) -> None:
        self._calls = calls
        self._clock = clock
        self._entries = calls.catalog.of_kind("screen")
        self._views = {entry.full_name: _View() for entry in self._entries}
        self._overdue: dict[str, tuple[_Process, int]] = {}
        """By plugin whose render timed out: the process, and its count of late answers at that time."""
        self._generation = 0
        """The number of the last key or mouse event, over all plugins."""

    def all(self) -> list[Screen]:
        return [_screen(entry) for entry in self._entries]

    def find(self, name: str) -> Screen:
        """The screen of this name, which may be without its plugin if it is unique; raises `CallFailed`."""
        return _screen(self._find(name))

    # Frames.

    async def render(self, name: str, width: int, height: int, *, timeout: float | None = None) -> Frame:
        """Render a screen; raises `CallFailed`.

        A plugin that does not run is started first. A given `timeout` includes the start; the contract's own timeout
        begins after it.
        """
        entry = self._find(name)
        if not (0 < width <= 0xFFFF and 0 < height <= 0xFFFF and width * height <= MAX_CELLS):
            text = f"a screen of {width} by {height} cells cannot be drawn; the limit is {MAX_CELLS:,} cells"
            raise CallFailed(Failure(Code.INVALID_INPUT, text, plugin=entry.spec.id))
        view = self._views[entry.full_name]
        view.due = math.inf
        if view.size != (width, height):
            view.size, view.redraws = (width, height), 0
        op = Render(entry.export.name, width, height, self._generation)
        try:
            if timeout is None:
                await self._start(entry)
            result = await self._calls.run(
                CallRequest(entry.full_name, kind="screen", timeout=timeout, make_operation=lambda _: op)
            )
        except asyncio.CancelledError:
            view.due = -math.inf
            raise
        self._view(entry)
        view.process = self._process(entry.spec.id)
        frame = self._failure(entry, result, timeout) or frames.decode(result.output, width, height)
        view.record(frame, self._clock())
        if isinstance(frame, Failure):
            raise CallFailed(frame.with_detail(entry.spec.id), result.record.call_id)
        return frame

    async def draw(
        self,
        name: str,
        width: int,
        height: int,
        keys: Sequence[Mapping[str, Any]] = (),
        timeout: float | None = None,
        *,
        settle: bool = True,
    ) -> Frame:
        """Press the keys, then render: with `settle` until the plugin requests no redraw or `SETTLING_FRAMES` are
        reached, else once."""
        frame = await self.render(name, width, height, timeout=timeout)
        for key in keys:
            if not self.press(name, key):
                text = f"the key {key_name(key)} was not delivered: the plugin has exited, or does not accept this key"
                raise CallFailed(Failure(Code.UNAVAILABLE, text, plugin=self._find(name).spec.id))
            frame = await self.render(name, width, height, timeout=timeout)
        for _ in range(SETTLING_FRAMES if settle else 0):
            if not self.dirty(name):
                break
            await asyncio.sleep(FRAME_SECONDS)
            frame = await self.render(name, width, height, timeout=timeout)
        return frame

    async def _start(self, entry: Entry) -> None:
        """Start the plugin before the call, so that a slow start does not count as a slow render."""
        supervisor = self._calls.supervisor(entry.spec.id)
        if supervisor is None or supervisor.ready or not self._calls.admits(entry):
            return
        times = supervisor.binding.spec.timeouts
        lease = await supervisor.lease(Deadline(times.launch + times.handshake))
        if isinstance(lease, Failure):
            raise CallFailed(lease)
        lease.release()

    def _failure(self, entry: Entry, result: CallResult, timeout: float | None) -> Failure | None:
        """The failure of a render. A running plugin that did not answer is noted as overdue, not stopped."""
        failure, plugin_id = result.failure, entry.spec.id
        supervisor = self._calls.supervisor(plugin_id)
        if failure is None:
            self.answered(plugin_id)
        if failure is None or failure.code != Code.TIMEOUT or supervisor is None or not supervisor.ready:
            return failure
        self._overdue[plugin_id] = self._progress_of(plugin_id)
        spec = supervisor.binding.spec
        seconds = timeout if timeout is not None else spec.patience.get(Render.__name__, spec.timeouts.call)
        return Failure(Code.TIMEOUT, f"render exceeded {seconds:g} s", plugin=plugin_id, detail=failure.detail)

    def wedged(self, plugin_id: str) -> bool:
        """Whether a render timed out and the same process has not answered anything since."""
        return plugin_id in self._overdue and self._overdue[plugin_id] == self._progress_of(plugin_id)

    def answered(self, plugin_id: str) -> None:
        """The plugin has answered a call, so it is not overdue."""
        self._overdue.pop(plugin_id, None)

    def dirty(self, name: str, *, shown: bool = True) -> bool:
        """Whether the last frame of a screen is out of date, or there is none. A plugin whose screen is not `shown`
        may become idle."""
        entry = self._find(name)
        view = self._view(entry) if shown else self._views[entry.full_name]
        return view.due <= self._clock() or view.process != self._process(entry.spec.id)

    def revision(self, name: str) -> int:
        """A number that grows with input, with notifications and with each new process of the plugin.

        For several viewers of a screen: `dirty` is about the last frame, which another viewer may have requested.
        """
        entry = self._find(name)
        view, process = self._views[entry.full_name], self._process(entry.spec.id)
        if process != view.seen:
            view.seen = process
            view.revision += 1
        return view.revision

    def touch(self, plugin_id: str) -> None:
        """The plugin got a notification, so its frames are out of date."""
        for entry in self._entries:
            if entry.spec.id == plugin_id:
                self._views[entry.full_name].invalidate()

    # Input.

    def press(self, name: str, key: Mapping[str, Any]) -> bool:
        """Send a key to a screen; False when the plugin does not run, and the key is lost."""
        if key["code"]["type"] in NEEDS_LATER_ABI:
            return False
        entry = self._find(name)
        return self._tell(entry.spec.id, PressKey(entry.export.name, key, self._next()))

    def mouse(self, name: str, mouse: Mapping[str, Any]) -> bool:
        """Send a mouse event to a screen; moves and events outside the screen are not sent."""
        entry = self._find(name)
        width, height = self._views[entry.full_name].size or (0xFFFF, 0xFFFF)
        if mouse["kind"]["type"] == "moved" or not (0 <= mouse["col"] < width and 0 <= mouse["row"] < height):
            return False
        return self._tell(entry.spec.id, UseMouse(entry.export.name, mouse, self._next()))

    def act(self, plugin_id: str, action: str, payload: Any = None) -> bool:
        """Send a named action to a plugin; False when the plugin does not run."""
        return self._tell(plugin_id, PerformAction(action, payload))

    def _tell(self, plugin_id: str, op: PluginOp) -> bool:
        sent = self._calls.tell(plugin_id, op)
        if sent:
            self.touch(plugin_id)
        return sent

    # Details.

    def _find(self, name: str) -> Entry:
        entry = self._calls.catalog.resolve(name, "screen")
        if isinstance(entry, Failure):
            raise CallFailed(entry)
        return entry

    def _view(self, entry: Entry) -> _View:
        """The view of a screen. Marks its plugin as in use: a plugin with a visible screen is not idle."""
        supervisor = self._calls.supervisor(entry.spec.id)
        if supervisor is not None:
            supervisor.mark_shown()
        return self._views[entry.full_name]

    def _next(self) -> int:
        self._generation += 1
        return self._generation

    def _process(self, plugin_id: str) -> _Process:
        supervisor = self._calls.supervisor(plugin_id)
        return (supervisor, supervisor.generation) if supervisor else (None, 0)

    def _progress_of(self, plugin_id: str) -> tuple[_Process, int]:
        """A value that changes when an overdue plugin answers after all, or is replaced by another process."""
        process = self._process(plugin_id)
        return process, process[0].counters.get("late_answers", 0) if process[0] else 0


def _screen(entry: Entry) -> Screen:
    return Screen(entry.full_name, entry.spec.id, entry.export.name)


# Command lines.


class CliOutput(msgspec.Struct, frozen=True):
    """The output of a plugin's command line, byte for byte, and its exit status."""

    stdout: bytes
    stderr: bytes
    exit_code: int


class _Answer(msgspec.Struct, gc=False):
    stdout: bytes
    stderr: bytes
    exit_code: Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]


_decode = msgspec.json.Decoder(_Answer).decode


class CommandLines:
    """The command lines of all plugins, by namespace."""

    def __init__(self, calls: Calls, answered: Callable[[str], None]) -> None:
        """`answered` is called with the id of each plugin that has answered."""
        self._calls = calls
        self._answered = answered

    async def run(self, name: str, argv: Sequence[str], timeout: float | None = None) -> CliOutput:
        """Run a command line of a plugin; raises `CallFailed` when it does not exit by itself."""
        refusal = encoding_problem(argv)
        if refusal is not None:
            raise CallFailed(refusal)
        words = list(argv)
        request = CallRequest(
            name,
            kind="cli_namespace",
            timeout=timeout,
            make_operation=lambda entry: DispatchCli(entry.export.name, words),
        )
        result = await self._calls.run(request)
        if result.failure is not None:
            raise CallFailed(result.failure, result.record.call_id)
        self._answered(result.record.plugin)
        answer = _decode(result.output)
        return CliOutput(answer.stdout, answer.stderr, answer.exit_code)


def encoding_problem(argv: Sequence[str]) -> Failure | None:
    """Why an argument cannot be sent: a shell passes any bytes, a message holds text."""
    for place, word in enumerate(argv, start=1):
        try:
            word.encode()
        except UnicodeEncodeError:
            return Failure(Code.INVALID_INPUT, f"argument {place} is not UTF-8 and cannot be sent: {word!r}")
    return None
