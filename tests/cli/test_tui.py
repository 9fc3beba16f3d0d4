"""`plugbay tui` on a real terminal: it starts, takes keys, leaves, and leaves nothing behind."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import plugbay
from tests.cli.conftest import Run, command, descendants_of, environment, is_alive, wait_until
from tests.support.ainb import write_ainb_plugin
from tests.support.patience import PATIENCE
from tests.support.tiers import exhaustive

ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[PX^_][^\x1b]*\x1b\\|.)")


class Window:
    """`plugbay tui` in a terminal of its own."""

    def __init__(
        self, cwd: Path, home: Path, *arguments: str | Path, before: tuple[str, ...] = (), **more: str
    ) -> None:
        """`before`: a program, with its arguments, that becomes `plugbay tui`."""
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        env = environment(home, TERM="xterm-256color", **more)
        self.process = subprocess.Popen(
            [*before, *command("tui", *arguments)], stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd, env=env
        )
        os.close(theirs)
        self._written = b""

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    @property
    def seen(self) -> str:
        """Everything that was written to the terminal so far, without what moves its cursor."""
        while select.select([self._ours], [], [], 0)[0]:
            try:
                data = os.read(self._ours, 65536)
            except OSError:  # how Linux says that nobody has the other end open any more
                break
            if not data:
                break
            self._written += data
        return ESCAPES.sub("", self._written.decode("utf-8", "replace"))

    def shows(self, text: str) -> None:
        wait_until(lambda: text in self.seen or self.process.poll() is not None, f"{text!r} on the terminal")
        assert text in self.seen

    def left(self) -> int:
        """The status it left with."""
        wait_until(lambda: (self.seen, self.process.poll())[1] is not None, "the end of plugbay tui")
        return self.process.returncode

    def hang_up(self) -> None:
        """Close the terminal under the program."""
        os.close(self._ours)
        self._ours = -1

    def close(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        if self._ours >= 0:
            self.hang_up()


@pytest.fixture
def window(cwd: Path, tmp_path: Path) -> Iterator[Callable[..., Window]]:
    opened: list[Window] = []

    def window(*arguments: str | Path, **env: Any) -> Window:
        opened.append(Window(cwd, tmp_path, *arguments, **env))
        return opened[-1]

    yield window
    for each in opened:
        each.close()


def test_a_screen_is_used_and_nothing_stays_behind(cwd: Path, window: Callable[..., Window]) -> None:
    write_ainb_plugin(cwd / "plugins", "echo", screens=["main"])
    terminal = window("plugins")
    terminal.shows("echo 42x20")
    terminal.type(b"\r")
    terminal.shows("echo 78x20")
    terminal.type(b"\x1b[A")
    terminal.shows("keys up")
    children = descendants_of(terminal.process.pid)
    assert children
    terminal.type(b"\x11")
    assert terminal.left() == 0
    wait_until(lambda: not descendants_of(terminal.process.pid), "the end of every child")


@exhaustive
def test_a_signal_ends_it_in_good_order(cwd: Path, window: Callable[..., Window]) -> None:
    write_ainb_plugin(cwd / "plugins", "echo", screens=["main"])
    terminal = window("plugins/echo")
    terminal.shows("echo 42x20")
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.left() == 128 + signal.SIGTERM
    wait_until(lambda: not descendants_of(terminal.process.pid), "the end of every child")


DEAF = ("sh", "-c", "trap '' HUP; exec \"$@\"", "sh")


@pytest.mark.parametrize(
    "before", [("setsid", "--ctty"), ("setsid",), (*DEAF, "setsid", "--ctty")], ids=["its own", "of others", "ignored"]
)
def test_it_ends_with_its_terminal_also_where_no_signal_says_so(
    before: tuple[str, ...], cwd: Path, window: Callable[..., Window]
) -> None:
    write_ainb_plugin(cwd / "plugins", "echo", screens=["main"])
    terminal = window("plugins/echo", before=before)
    terminal.shows("echo 42x20")
    children = descendants_of(terminal.process.pid)
    assert children
    terminal.hang_up()
    wait_until(lambda: terminal.process.poll() is not None, "the end of plugbay tui")
    wait_until(lambda: not any(map(is_alive, children)), "the end of every child")


@exhaustive
def test_grants_and_folders_are_those_of_the_command_line(cwd: Path, window: Callable[..., Window]) -> None:
    write_ainb_plugin(cwd / "one", "shy", screens=["main"], capabilities={"event_bus": True})
    write_ainb_plugin(cwd / "two", "other", namespaces=["notes"])
    refused = window("one", "--plugins", "two")
    refused.shows("2 plugins")
    refused.shows("--grant event_bus")
    granted = window("one/shy", "--grant", "event_bus")
    granted.shows("shy 42x20")


@exhaustive
def test_without_a_folder_it_is_this_one(cwd: Path, window: Callable[..., Window]) -> None:
    write_ainb_plugin(cwd, "echo", screens=["main"])
    window().shows("echo 42x20")


def test_no_plugin_at_all_is_not_found(cwd: Path, window: Callable[..., Window]) -> None:
    terminal = window("nowhere")
    terminal.shows("there is no plugin in nowhere")
    assert terminal.left() == 4


@exhaustive
def test_a_config_that_cannot_be_used_is_status_3(cwd: Path, window: Callable[..., Window]) -> None:
    write_ainb_plugin(cwd, "echo", screens=["main"])
    (cwd / "odd.toml").write_text("plugins = 3")
    terminal = window("--config", "odd.toml")
    terminal.shows("odd.toml")
    assert terminal.left() == 3


@exhaustive
def test_without_a_terminal_it_says_what_to_use_instead(run: Run) -> None:
    done = run("tui")
    assert done.code == 2
    assert "needs a terminal" in done.err
    assert "plugbay render" in done.err


@exhaustive
def test_without_textual_it_says_how_to_get_it(window: Callable[..., Window], tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    missing.mkdir()
    (missing / "textual.py").write_text("raise ModuleNotFoundError('no textual', name='textual')")
    source = Path(plugbay.__file__).parents[1]
    terminal = window(PYTHONPATH=os.pathsep.join(map(str, (missing, source))))
    terminal.shows("pip install 'plugbay[tui]'")
    assert terminal.left() == 1


@exhaustive
@pytest.mark.parametrize("module", ["plugbay.cli.main", "plugbay.tui.picture"])
def test_textual_is_loaded_by_the_terminal_alone(module: str) -> None:
    code = f"import sys, {module}; print('textual' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert shown.stdout == "False\n"


@exhaustive
def test_the_terminal_itself_loads_textual() -> None:
    code = "import sys, plugbay.tui.app; print('textual' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert shown.stdout == "True\n"
