"""One process of a plugin under test: its frames in both directions, its exit, and why a conversation ended early.

Keeps a record of every frame. It reports facts and never judges them: `conversation` compares them with the scenario.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plugbay.conformance.reports.report import GOT, SENT
from plugbay.link.framings import Framing, Piece
from plugbay.link.stream import PipeStream
from plugbay.process import warden_main
from plugbay.process.child import Child
from plugbay.process.status import ExitStatus
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import Malformed

UNREAD = 256
"""Messages of a plugin that wait to be looked at; one that writes more waits until they have been."""

RECORDED = 64
"""Frames kept of a conversation, the newest last."""

KEPT = 2000
"""Bytes of each frame that is recorded."""

LOOK_SECONDS = 0.002
"""Between two looks at a process whose end must be noticed before anybody else acts on it."""

STATUS_SECONDS = 0.2
"""For the exit status to follow the end of the output, so that a report can name it."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One message of the plugin: its bytes, and its value or why it has none."""

    line: bytes
    value: Any = None
    problem: str = ""


class Ended:
    """Nothing more will come: the plugin closed its output, or left."""


class Late:
    """Nothing came in time."""


class Until:
    """A moment, so many seconds from now."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = asyncio.get_running_loop().time() + seconds

    def left(self) -> float:
        return max(0.0, self._end - asyncio.get_running_loop().time())


class Subject:
    """A running plugin and everything said so far. A listener of its own stream."""

    def __init__(self, child: Child, framing: Framing) -> None:
        self.child = child
        self.transcript: deque[tuple[str, bytes]] = deque(maxlen=RECORDED)
        """(direction, the first bytes of the frame)."""
        self.left: ExitStatus | None = None
        """How it left by itself; None when `close` had to end it."""
        self.framing = framing
        self._codec = MsgspecCodec()
        self._frames: deque[Frame] = deque()
        self._ended = False
        self._held = False
        self._changed = asyncio.Event()
        self._stream = PipeStream(asyncio.get_running_loop(), *child.take_pipes())
        self._stream.open(self)
        child.on_exit(lambda _: self._gone())

    # What the plugin does: the stream calls these.

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
        """Nobody here waits for that."""

    def _gone(self) -> None:
        """The process has left; whoever else holds its output open has no say in this conversation."""
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

    # What we do.

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

    async def next_frame(self, seconds: float) -> Frame | Ended | Late:
        """The next line, as soon as there is one."""
        if not await self._until(lambda: bool(self._frames) or self._ended, seconds):
            return Late()
        if not self._frames:
            return Ended()
        if len(self._frames) <= UNREAD and not self._ended:
            self._stream.read_on()
        return self._frames.popleft()

    async def exited(self, seconds: float) -> ExitStatus | None:
        """How the process left; None when it is still there after so many seconds."""
        return await self.child.wait(seconds)

    def hold(self) -> None:
        """From now on nothing but this conversation happens in the loop.

        The owner of a process kills its group the moment the loop learns of its end. So whoever wants to see what it
        left running holds the loop before it can leave, until the look is over.
        """
        self._held = True

    async def exited_with_leftovers(self, seconds: float) -> list[str] | None:
        """The programs it left running; None when it did not leave in time. To be asked while the loop is held."""
        if not self._wait_held(self.child.has_ended, seconds):
            return None
        return [_program(pid) for pid in marked(self.child.token)]

    @property
    def is_over(self) -> bool:
        """Whether everything that it will ever say has been looked at."""
        return self._ended and not self._frames

    def unread(self) -> list[Frame]:
        """Lines that nobody has looked at."""
        if not self._ended:
            self._stream.read_available()
        return list(self._frames)

    async def close(self) -> None:
        """End it, whatever state it is in, and let go of its pipes."""
        if self._ended and self.child.exit is None:
            await self.child.wait(STATUS_SECONDS)
        self.left = self.child.exit
        self.child.kill()
        self._stream.close()

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
        """What the loop would do meanwhile is done here: whatever the plugin writes is read."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() >= deadline:
                return False
            self._stream.read_available()
            self.child.stderr.drain_now()
            time.sleep(LOOK_SECONDS)
        return True


def marked(token: str) -> list[int]:
    """Living processes that carry a child's token."""
    wanted = token.encode()
    pids = map(int, filter(str.isdigit, os.listdir("/proc"))) if os.path.isdir("/proc") else ()
    return [pid for pid in pids if warden_main.marks(warden_main.environ_of(pid))[1] == wanted]


def _program(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").strip()
    except OSError:
        words = b""
    return f"{words.decode('utf-8', 'backslashreplace')[:100] or 'a process'} (pid {pid})"


class RuleBroken(Exception):
    """The plugin did not do what the step expects.

    `frame` is the line that shows it, if one does; `late` says that it was waited for as long as it may take.
    """

    def __init__(self, what: str, frame: Frame | None = None, *, late: bool = False) -> None:
        super().__init__(what)
        self.frame = frame
        self.late = late


class NoAnswer(RuleBroken):
    """No line came."""


class NotTried(Exception):
    """The rule cannot be tried on this plugin."""
