"""The real command line in real processes, and small plugins for it to call.

Owns the fixtures of this folder. Plugins are POSIX shell, which starts fastest, and speak just enough rune: they
answer the handshake, read one request, and then do what their `answer` says.
"""

from __future__ import annotations

import json
import os
import pty
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

import plugbay as package
from plugbay.host.config.time_factor import TIME_FACTOR
from tests.support.commands import Command, command, plugbay, started
from tests.support.loops import LOOPS, run_on
from tests.support.loops import Run as RunOnLoop
from tests.support.patience import PATIENCE, pauses
from tests.support.tiers import first_alone

__all__ = ["command"]


SHELL = """\
#!/bin/sh
read -r _
printf '%s\\n' '{handshake}'
read -r request || exit 0
id=${{request#*'"request_id":"'}}; id=${{id%%'"'*}}
input=${{request#*'"input":'}}; input=${{input%?}}
reply() {{ printf '{{"type":"response","request_id":"%s",%s}}\\n' "$id" "$1"; }}
{answer}
read -r _
exit 0
"""

ECHO = """reply '"status":"ok","output":'"$input" """
REFUSE = """reply '"status":"error","error":{"code":"%s","message":"there is no city called Limbo"}' """

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}

JSON = dict[str, Any]


class Done(NamedTuple):
    """A finished command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Run(Protocol):
    """Run `plugbay` with arguments."""

    def __call__(self, *arguments: str | Path, stdin: str | bytes = b"", **env: str) -> Done: ...


class MakePlugin(Protocol):
    """Write a plugin's folder."""

    def __call__(
        self, name: str = "echo", answer: str = ECHO, *, handshake: str | None = None, **manifest: Any
    ) -> Path: ...


DROPPED = ("PLUGBAY", "XDG_", "FORCE_COLOR", "NO_COLOR", "GITHUB_", "COLUMNS", "PYTHONDONTWRITEBYTECODE")
"""Variables, by their beginnings, that change how the command line looks, where it writes or how fast it is."""


def environment(home: Path, **more: str) -> dict[str, str]:
    """Ours, without surprises."""
    kept = {name: value for name, value in os.environ.items() if name == TIME_FACTOR or not name.startswith(DROPPED)}
    source = str(Path(package.__file__).parents[1])
    path = os.pathsep.join(filter(None, (source, kept.get("PYTHONPATH", ""))))
    return {**kept, "HOME": str(home), "LC_ALL": "C.UTF-8", "PYTHONPATH": path, **more}


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    """Where commands run: an empty folder."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def run(cwd: Path, tmp_path: Path) -> Run:
    def run(*arguments: str | Path, stdin: str | bytes = b"", **env: str) -> Done:
        # Variables of Python's own are read when it starts, so for those it does.
        start = started if any(name.startswith("PYTHON") for name in env) else plugbay
        given = stdin.encode() if isinstance(stdin, str) else stdin
        done = start(*arguments, stdin=given, cwd=cwd, env=environment(tmp_path, **env), timeout=PATIENCE * 2)
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture(params=first_alone(LOOPS))
def on_loop(request: pytest.FixtureRequest) -> RunOnLoop:
    """Run one coroutine function; `run` is the command line's here."""
    return run_on(request.param)


@pytest.fixture
def on_terminal(cwd: Path, tmp_path: Path) -> Callable[..., str]:
    """Run `plugbay` on a terminal of 80 columns; what appeared on it."""

    def on_terminal(*arguments: str | Path, **env: str) -> str:
        ours, theirs = pty.openpty()
        settings = environment(tmp_path, **{"TERM": "xterm-256color", "COLUMNS": "80", **env})
        process = Command([str(word) for word in arguments], [theirs, theirs, theirs], cwd, settings)
        os.close(theirs)
        shown = b""
        try:
            while data := os.read(ours, 65536):
                shown += data
        except OSError:  # how Linux says that nobody has the other end open any more
            pass
        process.wait(PATIENCE)
        os.close(ours)
        return shown.decode().replace("\r\n", "\n")

    return on_terminal


@pytest.fixture
def make_plugin(cwd: Path) -> MakePlugin:
    def make_plugin(name: str = "echo", answer: str = ECHO, *, handshake: str | None = None, **manifest: Any) -> Path:
        folder = cwd / "plugins" / name
        folder.mkdir(parents=True)
        document: JSON = {
            "plugin_id": f"example.{name}",
            "plugin_version": "1.0.0",
            "protocol_version": "rterm.plugin.v1",
            "display_name": name.capitalize(),
            "description": f"The {name} plugin.",
            "process": {"command": "./run.sh"},
            "tools": [{"name": name, "description": "Says it again.", "input_schema": SCHEMA}],
            **manifest,
        }
        greeting = {
            "plugin_id": document["plugin_id"],
            "plugin_version": "1.0.0",
            "protocol_version": "rterm.plugin.v1",
            "exposed_tools": [tool["name"] for tool in document["tools"]],
            "capabilities": document.get("capabilities", []),
        }
        words = handshake or json.dumps({"type": "handshake", "manifest": greeting})
        write_manifest(folder, document)
        script = folder / "run.sh"
        script.write_text(SHELL.format(handshake=words, answer=answer))
        script.chmod(0o755)
        return Path("plugins", name)

    return make_plugin


GREETER = """\
from plugbay.sdk import Plugin

plugin = Plugin("example.greeter", version="1.0.0")
print("loading")

@plugin.tool()
def greet(name="world"):
    print("called")
    return {"text": f"Hello, {name}."}

plugin.run()
"""


@pytest.fixture
def sdk_plugin(cwd: Path) -> Path:
    """A plugin written with the SDK; it prints, which must harm nobody."""
    write_manifest(
        cwd / "greeter",
        {
            "plugin_id": "example.greeter",
            "plugin_version": "1.0.0",
            "protocol_version": "rterm.plugin.v1",
            "process": {
                "command": sys.executable,
                "args": ["main.py"],
                "env": [f"PYTHONPATH={Path(package.__file__).parents[1]}"],
            },
            "tools": [
                {
                    "name": "greet",
                    "input_schema": {"type": "object", "properties": {"name": {"type": "string"}}},
                }
            ],
        },
    )
    (cwd / "greeter" / "main.py").write_text(GREETER)
    return Path("greeter")


def write_manifest(folder: Path, document: Any) -> None:
    text = document if isinstance(document, str) else json.dumps(document, indent=2)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rterm-plugin.json").write_text(text)


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Wait on a condition, never on a guess."""
    for pause in pauses(PATIENCE, f"waited {PATIENCE:g} s for {what}"):
        if condition():
            return
        time.sleep(pause)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def descendants_of(host: int) -> list[int]:
    """Living processes that a host with this pid has started, at whatever remove."""
    mark = f"PLUGBAY_HOST={host}.".encode()
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if mark in _environ(pid)]


def _environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
