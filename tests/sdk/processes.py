"""A plugin's source as a real process, and the host's end of its pipes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import plugbay

SOURCE = Path(plugbay.__file__).parents[1]

PROLOGUE = f"""
import os, sys
sys.path.insert(0, {str(SOURCE)!r})
from plugbay.sdk import *
"""


class Plugin:
    """A running plugin. Frames are read as they come; nothing here waits for a time."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._last = 0

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, **frame: Any) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n")

    def read(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the plugin left instead of answering: {self.errors()}"
        return json.loads(line)

    def request(self, method: str, **params: Any) -> int:
        """Ask without waiting."""
        self._last += 1
        self.send(id=self._last, method=method, params=params)
        return self._last

    def ask(self, method: str, **params: Any) -> Any:
        """Ask, and take the next frame for the answer: its result, or its error."""
        id = self.request(method, **params)
        frame = self.read()
        assert frame["id"] == id, frame
        return frame.get("result", frame.get("error"))

    def tool(self, name: str, args: Any = None) -> Any:
        return self.ask("tool.invoke", plugin_id="p", tool_name=f"p_{name}", args=args, agent_id="a")

    def event(self, topic: str, payload: Any = None, **more: Any) -> None:
        event = {"topic": topic, "source": "host", "payload": payload, **more}
        self.send(method="broker.event", params={"topic": topic, "event": event})

    def stderr_line(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.readline().decode()

    def errors(self) -> str:
        """Everything on stderr, when the plugin has left."""
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.stdin = None

    def status(self) -> int:
        """The exit status; the host does not close its end first."""
        return self.process.wait(30)


@contextmanager
def running(tmp_path: Path, source: str, **options: Any) -> Iterator[Plugin]:
    """The plugin in `source`, which begins with everything the SDK exports and ends with `plugin.run()`."""
    (tmp_path / "plugin.py").write_text(f"{PROLOGUE}\n{source}\nplugin.run()\n")
    process = subprocess.Popen(
        [sys.executable, "-S", "plugin.py"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )
    try:
        with process:
            try:
                yield Plugin(process)
            finally:
                process.kill()
    finally:
        process.kill()


def gate(tmp_path: Path, name: str = "gate") -> Path:
    """A named pipe: reading it holds a handler until the test has opened it."""
    path = tmp_path / name
    os.mkfifo(path)
    return path


def open_gate(path: Path) -> None:
    path.write_bytes(b"go")
