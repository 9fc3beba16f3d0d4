"""Text of a hostile plugin is harmless wherever an operator reads it: tables, notes and logs of commands, the app."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run, environment, on_terminal, run, wait_until
from tests.cli.test_screens import ESCAPES, Window
from tests.server.test_server import served
from tests.support.commands import Piped
from tests.support.nexo import write_nexo_plugin
from tests.support.patience import PATIENCE
from tests.support.plugins import write_plugin
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive

__all__ = ["on_terminal", "run"]

EVIL = "\x1b[2J\x1b]0;owned\x07[bold]x[/]\r\u202e\u2066\x9b31mforged\x85line"
"""It clears a screen, sets a title, is markup, goes back on its line, turns text around and begins a line."""

FORBIDDEN = ("\x1b[2J", "\x1b]", "\x07", "\u202e", "\u2066", "\x9b", "\x85", "\rforged")

SPEAKS = f"""
EVIL = {json.dumps(EVIL)}

def tool_invoke(m):
    sys.stderr.write(EVIL + "\\n")
    sys.stderr.flush()
    if m["params"]["args"].get("crash"):
        os._exit(3)
    fail(m, -32000, EVIL)
"""


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    """A folder with hostile plugins: texts of a manifest, texts at run time, an invalid manifest, a folder's name."""
    folder = tmp_path / "work"
    texts = {"display_name": EVIL, "description": EVIL, EVIL: EVIL}
    tools = [{"name": "t", "description": EVIL, "input_schema": {"type": "object", "properties": {EVIL: {}}}}]
    write_plugin(folder / "plugins", "words", capabilities=["evil\u202ecap"], tools=tools, **texts)
    write_nexo_plugin(folder / "plugins", "p", SPEAKS, tools=["do"])
    wrong: dict[str, Any] = {EVIL: 1, "plugin_version": 7, "protocol_version": EVIL}
    broken = write_plugin(folder / "plugins", "broken", **wrong)
    broken.rename(broken.with_name("broken" + EVIL.replace("/", "")))
    return folder


def harmless(shown: str) -> None:
    assert not [text for text in FORBIDDEN if text in shown]
    assert "[bold]x[" in "".join(ESCAPES.sub("", shown).split()), "it is there, as text"


@pytest.fixture
def window(cwd: Path, tmp_path: Path) -> Iterator[Callable[..., Window]]:
    opened: list[Window] = []

    def window(*arguments: str) -> Window:
        opened.append(Window(cwd, tmp_path, *arguments))
        return opened[-1]

    yield window
    for each in opened:
        each.close()


@requirement("host:hostile-text")
def test_no_command_lets_a_plugin_paint(run: Run, on_terminal: Callable[..., str], cwd: Path) -> None:
    with served(cwd, "plugins") as server:
        there = ("--server", server.facts["url"], "--token-file", server.facts["token_file"])
        for command in (
            ("inspect", "plugins/words"),
            ("call", "p", "p_do", "{}", *there),
            ("call", "p", "p_do", "crash=true", *there),
            ("logs", "p", *there),
            ("ps", *there),
            ("ps", "--plugins", "plugins"),
            ("dev", "plugins/p", "--once", "--call", "p_do", "{}"),
            ("tap", "plugins/p", "--call", "p_do", "{}"),
        ):
            done = run(*command)
            harmless(done.out + done.err)
            assert "\x1b" not in done.out + done.err, command
            harmless(on_terminal(*command))
        assert server.end() == 0


@requirement("host:hostile-text")
def test_the_terminal_app_shows_text_and_nothing_else(cwd: Path, window: Callable[..., Window]) -> None:
    terminal = window("plugins", "--grant-all")
    terminal.shows("3 plugins")
    terminal.type(b"l")
    terminal.type(b"c")
    terminal.shows("call a tool of p")
    terminal.type(b"\r")
    terminal.shows("✗ plugin_error")
    terminal.type_until(b"\x1b", "l logs")
    terminal.type(b"\x1b[B")
    terminal.shows("[bold]x[/]")
    terminal.type(b"\x1b[B")
    terminal.shows("This plugin cannot")
    written = terminal._written.decode("utf-8", "replace")
    assert "owned" in written
    assert [text for text in ("\x1b]0;owned", "owned\x07", "\u202e", "\u2066", "\x9b", "\x85") if text in written] == []
    terminal.type(b"\x11")
    assert terminal.left() == 0


FLOOD = """
import threading, time

def flood():
    number = 0
    while True:
        began = time.monotonic()
        sys.stderr.write("".join("line %d\\n" % (number + each) for each in range(1000)))
        sys.stderr.flush()
        number += 1000
        time.sleep(max(0.0, 0.1 - (time.monotonic() - began)))

def tool_invoke(m):
    threading.Thread(target=flood, daemon=True).start()
    reply(m, {})
"""


@exhaustive
@requirement("host:log-flood")
def test_a_log_is_followed_through_a_flood_and_says_how_many_lines_it_left_out(run: Run, cwd: Path) -> None:
    shutil.rmtree(cwd / "plugins")
    write_nexo_plugin(cwd / "plugins", "p", FLOOD, tools=["do"])
    with served(cwd, "plugins") as server:
        there = ("--server", server.facts["url"], "--token-file", server.facts["token_file"])
        follower = Piped("logs", "p", "-f", "--tail", "0", *there, cwd=cwd, env=environment(cwd))
        assert run("call", "p", "p_do", "{}", *there).code == 0
        assert follower.stdout is not None
        shown = b""
        while not re.search(rb"\[plugbay\] \d+ lines dropped", shown):
            shown += os.read(follower.stdout.fileno(), 65536)
        assert run("ps", *there).code == 0, "the server answers beside it"
        assert run("stop", "p", *there).code == 0
        follower.terminate()
        follower.communicate(timeout=PATIENCE)
        assert server.end() == 0


@exhaustive
@requirement("host:log-flood")
def test_the_app_is_used_through_a_flood(cwd: Path, window: Callable[..., Window]) -> None:
    shutil.rmtree(cwd / "plugins")
    write_nexo_plugin(cwd / "plugins", "p", FLOOD, tools=["do"])
    write_plugin(cwd / "plugins", "quiet")
    terminal = window("plugins")
    terminal.shows("running")
    terminal.type(b"l")
    terminal.type(b"c")
    terminal.shows("call a tool of p")
    terminal.type(b"\r")
    terminal.shows("✓ succeeded")
    terminal.type_until(b"\x1b", "l logs")
    wait_until(lambda: "lines dropped" in terminal.seen, "the number of lines that are left out")
    terminal.type_until(b"\x1b[B", "─ quiet ─")
    terminal.type(b"\x11")
    assert terminal.left() == 0
