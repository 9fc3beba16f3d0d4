"""A plugin's source as a real process, and the host's end of its pipes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import plugbay
from tests.support.patience import PATIENCE

SOURCE = Path(plugbay.__file__).parents[1]

PATHS = f"""
import os, sys
sys.path.insert(0, {str(SOURCE)!r})
"""

PROLOGUE = f"{PATHS}from plugbay.sdk import *\n"

THOUGHT_QUICK = """
import plugbay.sdk.runtime.resident as r
r.MOMENT = 60.0
for tool in plugin.tools.values():
    if not tool.is_async:
        tool.pace = -60.0
"""
"""After the tools: whoever reads does all of them by itself at first, however little time the process is given."""


class PluginProcess:
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
        """Ask without waiting; the id of the request."""
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
        return self.process.wait(PATIENCE)


class Framed(PluginProcess):
    """A running plugin that is spoken to in frames with a header, as ainb's are."""

    def send(self, **frame: Any) -> None:
        self.write(framed({"jsonrpc": "2.0", **frame}))

    def read(self) -> Any:
        assert self.process.stdout is not None
        header = self.process.stdout.readline()
        assert header, f"the plugin left instead of answering: {self.errors()}"
        assert self.process.stdout.readline() == b"\r\n"
        return json.loads(self.process.stdout.read(int(header.removeprefix(b"Content-Length: "))))

    def tell(self, method: str, **params: Any) -> None:
        self.send(method=method, params=params)

    def greet(self, *granted: str, **more: Any) -> Any:
        """Greet as a host does; what the plugin says of itself."""
        params = {"manifest_path": "", "granted_capabilities": list(granted), "abi_version": 2, **more}
        return self.ask("plugin/init", **params)

    def render(self, width: int = 20, height: int = 2, **more: Any) -> list[str]:
        """What a screen shows, line by line."""
        buffer = self.ask("plugin/render", viewport={"width": width, "height": height}, **more)["buffer"]
        lines = [[" "] * buffer["width"] for _ in range(buffer["height"])]
        for place, cell in buffer["cells"]:
            lines[place["y"]][place["x"]] = cell["symbol"]
        return ["".join(line).rstrip() for line in lines]

    def run(self, namespace: str, *argv: str) -> tuple[bytes, bytes, int]:
        """A command line: its output, its errors and its exit code."""
        answer = self.ask("plugin/cli_dispatch", namespace=namespace, argv=list(argv))
        return b64decode(answer["stdout"]), b64decode(answer["stderr"]), answer["exit_code"]

    def key(self, name: str, screen: str = "main") -> None:
        code = {"type": "char", "ch": name} if len(name) == 1 else {"type": name}
        self.tell("plugin/handle_key", screen_id=screen, key={"code": code, "mods": 0, "kind": "press"}, generation=1)

    def snapshot(self, topic: str, data: bytes) -> None:
        self.tell("plugin/handle_event", topic=topic, payload=b64encode(data).decode())


class Vai(Framed):
    """A running plugin that is spoken to as hosts of vai do."""

    def send(self, **frame: Any) -> None:
        self.write(framed({"protocol": "vai.rpc.v1", **frame}))

    def read(self) -> Any:
        """The next frame, without what all have."""
        frame = super().read()
        assert frame.pop("protocol") == "vai.rpc.v1"
        return frame

    def greet(self, *granted: str, **more: Any) -> Any:
        """Greet as a host does; what the plugin says of itself."""
        self.send(type="hello", role="host", host={"name": "test", "version": "1"}, **more)
        return self.read()

    def request(self, method: str, export_id: str = "", **params: Any) -> Any:
        self._last += 1
        id = f"req_{self._last}"
        self.send(type="request", id=id, op=method, body={"export_id": export_id, **params})
        return id

    def ask(self, method: str, export_id: str = "", **params: Any) -> Any:
        """Ask, and take the next frame for the answer: its body, or its error."""
        return self.answer(self.request(method, export_id, **params))

    def answer(self, id: Any) -> Any:
        frame = self.read()
        assert (frame["type"], frame["id"]) == ("response", id), frame
        return frame["body"] if frame["ok"] else frame["error"]

    def said_about(self, id: Any) -> Any:
        """What the plugin says about a request before its answer."""
        frame = self.read()
        assert (frame["type"], frame["request_id"]) == ("event", id), frame
        return frame["event"]

    def cancel(self, id: Any, reason: str = "user_cancelled") -> None:
        self.send(type="cancel", request_id=id, reason=reason)


class Mcp(PluginProcess):
    """A running plugin that is spoken to as clients of MCP do, with or without a handshake."""

    META = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    }

    def greet(self, **capabilities: Any) -> Any:
        """Greet as a client does; what the plugin says of itself."""
        client = {"name": "test", "version": "1"}
        said = self.ask("initialize", protocolVersion="2025-11-25", capabilities=capabilities, clientInfo=client)
        self.send(method="notifications/initialized")
        return said

    def tool(self, name: str, args: Any = None) -> Any:
        return self.ask("tools/call", name=name, arguments=args or {})

    def modern(self, method: str, **params: Any) -> Any:
        """Ask without a handshake."""
        return self.ask(method, **params, _meta=self.META)


@contextmanager
def running_mcp(tmp_path: Path, source: str, **options: Any) -> Iterator[Mcp]:
    """The same for MCP."""
    with running(tmp_path, source, **options) as plugin:
        yield Mcp(plugin.process)


@contextmanager
def running_vai(tmp_path: Path, source: str, **options: Any) -> Iterator[Vai]:
    """The same for vai."""
    with running(tmp_path, source, **options) as plugin:
        yield Vai(plugin.process)


def framed(message: Any) -> bytes:
    body = json.dumps(message).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


@contextmanager
def running_framed(tmp_path: Path, source: str, **options: Any) -> Iterator[Framed]:
    with running(tmp_path, source, **options) as plugin:
        yield Framed(plugin.process)


@contextmanager
def running(tmp_path: Path, source: str, prologue: str = PROLOGUE, **options: Any) -> Iterator[PluginProcess]:
    """The plugin in `source`, which begins with everything the SDK exports and ends with `plugin.run()`."""
    (tmp_path / "plugin.py").write_text(f"{prologue}\n{source}\nplugin.run()\n")
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
                yield PluginProcess(process)
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
