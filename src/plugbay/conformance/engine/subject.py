"""One process of a plugin under test: its frames in both directions, its exit, and why a conversation ended early.

Keeps a record of every frame. It reports facts and never judges them: `conversation` compares them with the scenario.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from plugbay.conformance.reports.report import GOT, SENT
from plugbay.contracts.frames import Framing, Piece
from plugbay.link.stream import PipeStream
from plugbay.process import warden_main
from plugbay.process.child import Child
from plugbay.process.status import ExitStatus
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import Malformed

UNREAD = 256
"""Unread messages of a plugin; reading pauses above this limit."""

RECORDED = 64
"""Frames kept of a conversation, the newest last."""

KEPT = 2000
"""Bytes of each frame that is recorded."""

LOOK_SECONDS = 0.002
"""Poll interval for a process whose exit must be seen before its owner acts on it."""

MAX_EXTENSION = 60.0
"""Seconds by which a busy machine may extend the waits of one conversation."""

HYPERVISOR = 0
"""Stands for the hypervisor where the times of processes are kept; no process has this id."""

STATUS_SECONDS = 0.2
"""How long to wait for the exit status after the end of the output, so that a report can name it."""


class Frame(msgspec.Struct, frozen=True):
    """One message of the plugin: its bytes, and its value or why it has none."""

    line: bytes
    value: Any = None
    problem: str = ""


class Ended:
    """The end of the output: the plugin closed it, or exited."""


class Late:
    """No frame within the time limit."""


class Until:
    """A deadline, so many seconds from now; `exact` if a busy machine does not extend it."""

    def __init__(self, seconds: float, *, exact: bool = False) -> None:
        self.seconds = seconds
        self.exact = exact
        self._end = asyncio.get_running_loop().time() + seconds

    def left(self) -> float:
        return max(0.0, self._end - asyncio.get_running_loop().time())


class Subject:
    """A running plugin and the transcript of its conversation. It is the listener of its own stream."""

    def __init__(self, child: Child, framing: Framing) -> None:
        self.child = child
        self.transcript: deque[tuple[str, bytes]] = deque(maxlen=RECORDED)
        """(direction, the first bytes of the frame)."""
        self.left: ExitStatus | None = None
        """The exit status if it exited by itself; None when `close` had to end it."""
        self.framing = framing
        self._codec = MsgspecCodec()
        self._frames: deque[Frame] = deque()
        self._ended = False
        self._held = False
        self._starved = _starved_seconds(child.pid)
        self._starved_before = sum(self._starved.values())
        self._extended = 0.0
        self._changed = asyncio.Event()
        self._stream = PipeStream(asyncio.get_running_loop(), *child.take_pipes())
        self._stream.open(self)
        child.on_exit(lambda _: self._gone())

    # Callbacks of the stream.

    def data_received(self, data: bytes) -> None:
        for piece in self.framing.feed(data):
            self._take(piece)
        if len(self._frames) > UNREAD:
            self._stream.pause()
        self._changed.set()

    def eof_received(self) -> None:
        rest = self.framing.eof()
        if rest is not None:
            self._take(rest)
        self._ended = True
        self._changed.set()

    def write_drained(self) -> None:
        """Not used here."""

    def _gone(self) -> None:
        """The process has exited. Another process that holds its output open does not prolong the conversation."""
        self._stream.read_available()
        if not self._ended:
            self._stream.pause()
            self.eof_received()

    def _take(self, piece: Piece) -> None:
        frame = self._frame(piece)
        self.transcript.append((GOT, frame.line[:KEPT]))
        self._frames.append(frame)

    def _frame(self, piece: Piece) -> Frame:
        body, problem = piece
        if problem:
            return Frame(body, problem=problem)
        try:
            value = self._codec.decode(body)
        except Malformed as error:
            return Frame(body, problem=str(error) if body else self.framing.empty)
        return Frame(body, value, "" if isinstance(value, dict) else "JSON, but not an object")

    # Operations of the kit.

    def send(self, data: bytes) -> None:
        self.transcript.append((SENT, data[:KEPT]))
        self._stream.write(data)

    async def send_slowly(self, data: bytes, size: int, pause: float) -> None:
        self.transcript.append((SENT, data[:KEPT]))
        for start in range(0, len(data), size):
            self._stream.write(data[start : start + size])
            await asyncio.sleep(pause)

    def close_stdin(self) -> None:
        self._stream.close_write()

    async def next_frame(self, seconds: float, *, exact: bool = False) -> Frame | Ended | Late:
        """The next frame, as soon as there is one. Unless `exact`, time without a core does not count."""
        while not await self._until(lambda: bool(self._frames) or self._ended, seconds):
            seconds = 0.0 if exact else self._extension()
            if seconds < LOOK_SECONDS:
                return Late()
        if not self._frames:
            return Ended()
        if len(self._frames) <= UNREAD and not self._ended:
            self._stream.read_on()
        return self._frames.popleft()

    async def exited(self, seconds: float) -> ExitStatus | None:
        """The exit status; None when the process still runs after so many seconds of a machine with time for it."""
        while (status := await self.child.wait(seconds)) is None:
            seconds = self._extension()
            if seconds < LOOK_SECONDS:
                return None
        return status

    def hold(self) -> None:
        """Stop everything else in the event loop from now on.

        The owner of a process kills its group as soon as the loop learns of its exit. To see what the process left
        running, hold the loop before it can exit, and until the check is over.
        """
        self._held = True

    async def exited_with_leftovers(self, seconds: float) -> list[str] | None:
        """The programs it left running; None when it did not exit in time. Call it while the loop is held."""
        if not self._wait_held(self.child.has_ended, seconds):
            return None
        return [_program(pid) for pid in marked(self.child.token)]

    @property
    def is_over(self) -> bool:
        """Whether the output has ended and every frame was read."""
        return self._ended and not self._frames

    def unread(self) -> list[Frame]:
        """Frames that were not read."""
        if not self._ended:
            self._stream.read_available()
        return list(self._frames)

    async def close(self) -> None:
        """End the process in any state and close its pipes."""
        if self._ended and self.child.exit is None:
            await self.child.wait(STATUS_SECONDS)
        self.left = self.child.exit
        self.child.kill()
        self._stream.close()

    def _extension(self) -> float:
        """The seconds for which the plugin or this process had no core, and which extended no wait so far."""
        self._starved |= _starved_seconds(self.child.pid)
        starved = min(sum(self._starved.values()) - self._starved_before, MAX_EXTENSION)
        owed = max(0.0, starved - self._extended)
        self._extended += owed
        return owed

    async def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        if self._held:
            return self._wait_held(condition, seconds)
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return condition()
        return True

    def _wait_held(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait without the loop: read the plugin's output here."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() >= deadline:
                return False
            self._stream.read_available()
            self.child.stderr.drain_now()
            time.sleep(LOOK_SECONDS)
        return True


def _starved_seconds(pid: int) -> dict[int, float]:
    """How long each process of a plugin and this one were ready to run without a core, as far as that is known.

    Under `HYPERVISOR`: how long a hypervisor had the cores.
    """
    starved: dict[int, float] = {}
    for process in (*_family(pid), os.getpid()):
        with suppress(OSError, ValueError, IndexError):
            starved[process] = int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) / 1e9
    with suppress(OSError, ValueError, IndexError):
        stolen = int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8])
        starved[HYPERVISOR] = stolen / os.sysconf("SC_CLK_TCK") / (os.cpu_count() or 1)
    return starved


def _family(pid: int) -> Iterator[int]:
    """A process and its living descendants: a plugin in shell works in programs that it starts."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError, ValueError):
            for child in children.read_text().split():
                yield from _family(int(child))


def marked(token: str) -> list[int]:
    """Living processes that carry a child's token."""
    wanted = token.encode()
    pids = warden_main.processes() if os.path.isdir("/proc") else ()
    return [pid for pid in pids if warden_main.settled_marks(pid)[1] == wanted]


def _program(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").strip()
    except OSError:
        words = b""
    return f"{words.decode('utf-8', 'backslashreplace')[:100] or 'a process'} (pid {pid})"


class RuleBroken(Exception):
    """The plugin did not do what the step expects.

    `frame` is the frame that shows it, if there is one; `late`: the time limit passed.
    """

    def __init__(self, what: str, frame: Frame | None = None, *, late: bool = False) -> None:
        super().__init__(what)
        self.frame = frame
        self.late = late


class NoAnswer(RuleBroken):
    """No frame came."""


class NotTried(Exception):
    """The rule cannot be tried on this plugin."""
