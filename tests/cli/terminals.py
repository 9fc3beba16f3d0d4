"""Commands that keep running during a test: on their own terminal, or as a stream of JSON events."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.cli.conftest import environment, wait_until
from tests.support.commands import Command
from tests.support.patience import PATIENCE

ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|.)")

Event = dict[str, Any]


class Terminal:
    """A program on a terminal of 120 columns; `plugbay` is forked, and the terminal is its controlling one."""

    def __init__(self, argv: Sequence[str | Path], cwd: Path, home: Path, **more: str) -> None:
        self._ours, self._theirs = pty.openpty()
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        env = environment(home, TERM="xterm-256color", **more)
        program, *words = map(str, argv)
        streams = (self._theirs,) * 3
        self.process: Command | subprocess.Popen[bytes]
        if program == "plugbay":
            self.process = Command(words, streams, cwd, env, controlled=True)
        else:
            self.process = subprocess.Popen(
                [program, *words], stdin=streams[0], stdout=streams[1], stderr=streams[2], cwd=cwd, env=env
            )
        self._written = b""

    @property
    def modes(self) -> list[Any]:
        """How the terminal behaves now; its other end is kept open for this."""
        return termios.tcgetattr(self._theirs)

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    @property
    def seen(self) -> str:
        """Everything that was written to the terminal so far, without what moves its cursor."""
        while select.select([self._ours], [], [], 0)[0]:
            self._written += os.read(self._ours, 65536)
        return ESCAPES.sub("", self._written.decode("utf-8", "replace")).replace("\r\n", "\n")

    def shows(self, text: str, times: int = 1) -> None:
        def enough() -> bool:
            return self.seen.count(text) >= times

        wait_until(lambda: enough() or self.process.poll() is not None, f"{times}x {text!r} on the terminal")
        assert enough(), self.seen

    def left(self) -> int:
        """The status it left with."""
        wait_until(lambda: (self.seen, self.process.poll())[1] is not None, "the end of the program")
        return self.process.wait(PATIENCE)

    def hang_up(self) -> None:
        """Close the terminal under the program."""
        os.close(self._theirs)
        os.close(self._ours)
        self._ours = self._theirs = -1

    def close(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        if self._ours >= 0:
            self.hang_up()


class EventStream:
    """A plugbay command with --json, and what it has told so far."""

    def __init__(self, cwd: Path, home: Path, *arguments: str | Path, **more: str) -> None:
        (out, say), (err, complain) = os.pipe(), os.pipe()
        with open(os.devnull, "rb") as nothing, open(say, "wb") as said, open(complain, "wb") as complained:
            streams = [stream.fileno() for stream in (nothing, said, complained)]
            self.process = Command([*map(str, arguments), "--json"], streams, cwd, environment(home, **more))
        self._out, self._err = open(out, "rb"), open(err, "rb")  # noqa: SIM115 - until it is closed
        self.told: list[Event] = []
        self._taken = 0
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        for line in self._out:
            self.told.append(json.loads(line))

    def next(self, kind: str) -> Event:
        """The next event of this kind; those before it are passed over."""
        while True:
            wait_until(
                lambda: len(self.told) > self._taken or self.process.poll() is not None, f"{kind} after {self.told}"
            )
            assert len(self.told) > self._taken, f"it left before {kind}: {self.told}\n{self.errors()}"
            event = self.told[self._taken]
            self._taken += 1
            if event["event"] == kind:
                return event

    def errors(self) -> str:
        return self._err.read().decode() if self.process.poll() is not None else ""

    def left(self) -> int:
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        for pipe in (self._out, self._err):
            pipe.close()
