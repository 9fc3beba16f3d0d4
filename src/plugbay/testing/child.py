"""The process of a fake plugin: `python -m plugbay.testing.child SCRIPT`.

Implements each fault: it alters the bytes of one answer, or the process. Everything else goes through the SDK.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from plugbay.sdk import Plugin, ToolError
from plugbay.sdk.io.stdio import Wire, claim, leave, note
from plugbay.sdk.serving import begin, serve_rune
from plugbay.testing.script import Script, Step
from plugbay.wire.strict_json import stdlib_codec

HUGE = 17 << 20
"""Bytes; beyond the limit of 16 MiB of every contract."""

DEATH_MESSAGE = "out of memory: this plugin fails on purpose"

HEADER = b"Content-Length:"
"""The start of a frame; any other output is a line."""


class FaultyWire(Wire):
    """A wire that can apply a fault to the next answer."""

    __slots__ = ("_armed", "_framed", "_stays")

    def __init__(self, wire: Wire, stays: bool) -> None:
        super().__init__(wire._in, wire._out)
        self._framed = False
        self._stays = stays
        self._armed: Callable[[dict[str, Any]], Iterator[bytes]] | None = None

    def arm(self, fault: str) -> None:
        """Apply this fault to the next answer."""
        self._armed = getattr(self, f"_{fault}", None)

    def write(self, data: bytes) -> None:
        self._framed = data.startswith(HEADER)
        for frame in self._frames(data) if self._armed is not None else [data]:
            self._write_frame(frame)

    def leave(self, status: int, let_go: Callable[[], None]) -> NoReturn:
        while self._stays:
            time.sleep(3600)
        super().leave(status, let_go)

    def leave_after(self, seconds: float) -> None:
        if not self._stays:
            super().leave_after(seconds)

    def _write_frame(self, frame: bytes) -> None:
        message = self._answer(frame) if self._armed is not None else None
        if message is None or self._armed is None:
            super().write(frame)
            return
        make, self._armed = self._armed, None
        for piece in make(message):
            super().write(piece)

    # Frames.

    def _frames(self, data: bytes) -> Iterator[bytes]:
        while data:
            size = self._size(data)
            yield data[:size]
            data = data[size:]

    def _size(self, data: bytes) -> int:
        if not self._framed:
            return data.index(b"\n") + 1
        head, _, _ = data.partition(b"\r\n\r\n")
        return len(head) + 4 + int(head.rpartition(b":")[2])

    def _answer(self, frame: bytes) -> dict[str, Any] | None:
        """The message, if it answers a call."""
        message: dict[str, Any] = json.loads(frame.partition(b"\r\n\r\n")[2] if self._framed else frame)
        return message if message.get("type") == "response" or message.keys() & {"result", "error"} else None

    def _frame(self, body: bytes) -> bytes:
        return b"Content-Length: %d\r\n\r\n%b" % (len(body), body) if self._framed else body + b"\n"

    def _encode(self, message: dict[str, Any]) -> bytes:
        return self._frame(json.dumps(message).encode())

    # Faults of answers.

    def _never_answers(self, message: dict[str, Any]) -> Iterator[bytes]:
        yield b""

    def _garbage_on_stdout(self, message: dict[str, Any]) -> Iterator[bytes]:
        yield b"Loading the model, please wait ...\n"
        yield self._encode(message)

    def _not_json(self, message: dict[str, Any]) -> Iterator[bytes]:
        yield self._frame(b'{"half": ')

    def _half_an_answer(self, message: dict[str, Any]) -> Iterator[bytes]:
        frame = self._encode(message)
        yield frame[: len(frame) // 2]
        leave(0)

    def _huge_answer(self, message: dict[str, Any]) -> Iterator[bytes]:
        yield self._encode({**message, "padding": "x" * HUGE})

    def _wrong_id(self, message: dict[str, Any]) -> Iterator[bytes]:
        key = "id" if "id" in message else "request_id"
        id = message[key]
        yield self._encode({**message, key: id + 1_000_000 if isinstance(id, int) else f"{id}0"})

    def _answers_twice(self, message: dict[str, Any]) -> Iterator[bytes]:
        yield self._encode(message) * 2


CONFINED = "this fake plugin is confined and cannot record its calls: host it with unconfined=True"


class Record:
    """Calls of this and earlier processes. If the file cannot be written, only those of this process count."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._asked: dict[str, int] = {}
        if not self._add({"pid": os.getpid()}):
            note(CONFINED)

    def count(self, tool: str, given: Any) -> int:
        """Record a call; returns the number of earlier calls of the tool."""
        self._asked[tool] = self._asked.get(tool, 0) + 1
        self._add({"tool": tool, "input": given, "pid": os.getpid()})
        return max(self._count_recorded(tool), self._asked[tool]) - 1

    def _add(self, entry: dict[str, Any]) -> bool:
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(entry)}\n")
        except OSError:
            return False
        return True

    def _count_recorded(self, tool: str) -> int:
        try:
            lines = self._path.read_text("utf-8").splitlines()
        except OSError:
            return 0
        return sum(json.loads(line).get("tool") == tool for line in lines)


def make_plugin(script: Script, record: Record, wire: FaultyWire) -> Plugin:
    """A plugin with the tools of the script."""
    plugin = Plugin(script.id, script.version, description="A fake, for tests.")
    for name, steps in script.tools.items():
        act = _tool(name, steps, record, wire)
        plugin.tool(name, description="Answers as a test says.", input_schema={"type": "object"})(act)
    return plugin


def _tool(name: str, steps: tuple[Step, ...], record: Record, wire: FaultyWire) -> Callable[[Any], Any]:
    def act(input: Any) -> Any:
        step = steps[min(record.count(name, input), len(steps) - 1)]
        time.sleep(step.after)
        if step.fault == "dies_mid_call":
            _die()
        if step.fault == "killed_mid_call":
            os.kill(os.getpid(), signal.SIGKILL)
        if step.fault is not None:
            wire.arm(step.fault)
        if step.error is not None:
            raise ToolError(step.error, code=step.code)
        return step.value

    return act


def _die() -> NoReturn:
    note(DEATH_MESSAGE)
    os._exit(3)


def _begin(script: Script, wire: Wire) -> None:
    """Apply faults that happen before the greeting."""
    match script.fault:
        case "dies_at_start":
            _die()
        case "slow_start":
            time.sleep(script.seconds)
        case "garbage_at_start":
            wire.write(b"Loading the model, please wait ...\n")
        case "never_greets":
            while wire.read():
                pass
            leave(0)


def main(path: Path) -> NoReturn:
    script = Script.from_json(json.loads(path.read_text("utf-8")))
    claimed = claim()
    record = Record(path.with_name("record.jsonl"))
    _begin(script, claimed)
    wire = FaultyWire(claimed, script.fault == "never_leaves")
    plugin, codec = make_plugin(script, record, wire), stdlib_codec()
    wire.leave(serve_rune(plugin, wire, codec, begin(plugin, wire, codec)), lambda: None)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
