"""`plugbay render` and `plugbay tui`: text in a pipe, colours on a terminal, SVG in a file, cells as JSON."""

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
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import plugbay
from tests.cli.conftest import Run, command, descendants_of, environment, is_alive, wait_until, write_manifest
from tests.server.test_server import Served, served
from tests.support import commands
from tests.support.ainb import write_ainb_plugin
from tests.support.commands import Command, Piped
from tests.support.machine import without_limits_notes
from tests.support.nexo import write_nexo_plugin
from tests.support.patience import PATIENCE, until_blocking
from tests.support.plugins import write_plugin
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive, few, first_alone

RED = """
def render(params, m):
    cell = {"symbol": "R", "fg": {"r": 250, "g": 1, "b": 2}, "bg": {"r": 0, "g": 0, "b": 9}, "modifier": 1}
    cells = [[{"x": 1, "y": 0}, cell], [{"x": 2, "y": 1}, {"symbol": "漢"}], [{"x": 9, "y": 9}, {"symbol": "x"}]]
    reply(m, {"buffer": {"width": 10, "height": 3, "cells": cells}, "captures_text": True})
"""


@requirement("ainb:host-render")
def test_a_picture_in_a_pipe_is_text_of_the_size_asked_for(run: Run, cwd: Path) -> None:
    write_ainb_plugin(cwd, screens=["main"])
    done = run("render", "p", "main", "--size", "20x3")
    assert (done.code, done.out, without_limits_notes(done.err)) == (0, "p 20x3\nkeys\n\n", "")
    assert run("render", "p").out.splitlines()[0] == "p 80x24", "the usual size, and the only screen"
    assert len(run("render", "p").out.splitlines()) == 24


def test_a_plugin_is_named_by_its_folder_its_manifest_or_its_id(run: Run, cwd: Path) -> None:
    write_ainb_plugin(cwd / "all", screens=["main"])
    write_ainb_plugin(cwd / "all", "q", screens=["one", "two"])
    for arguments in (
        ["all/p"],
        ["all/p/manifest.toml"],
        ["p", "--plugins", "all"],
        ["all", "main"],
        ["all", "p/main"],
    ):
        assert run("render", *arguments, "--size", "20x1").out == "p 20x1\n", arguments
    assert run("render", "q", "two", "--plugins", "all", "--size", "20x1").out == "q 20x1\n"
    assert run("render", "q", "q/two", "--plugins", "all", "--size", "20x1").out == "q 20x1\n"


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["nowhere"], 4, "there is no folder nowhere"),
        (["nowhere"], 4, "--plugins DIR"),
        (["pp", "--plugins", "all"], 4, "no plugin has the id 'pp'; did you mean 'p'?"),
        (["p", "--plugins", "nowhere"], 4, "there is no folder nowhere"),
        (["all/p", "mian"], 4, "this plugin has no screen 'mian'; its screens: p/main"),
        (["q", "main", "--plugins", "all"], 4, "q has no screen 'main'; its screens: q/one, q/two"),
        (["all/q"], 4, "name one of these screens: q/one, q/two"),
        (["all/none"], 4, "has no screen"),
        (["all/broken"], 3, "its manifest has 1 error"),
        (["all/p", "--size", "80"], 2, "'80' is not a size; write WIDTHxHEIGHT"),
        (["all/p", "--size", "0x5"], 2, "a screen of 0 by 5 cells cannot be drawn"),
        (["all/p", "--size", "-1x5"], 2, "'-1x5' is not a size"),
        (["all/p", "--size", "60000x60000"], 2, "cannot be drawn"),
        (["all/p", "--key", "hyper+x"], 2, "'hyper' in 'hyper+x' is not a modifier"),
        (["all/p", "--key", "insert"], 1, "the key insert was not delivered"),
        (["all/wants"], 5, "--grant event_bus"),
        (["all/stuck", "--timeout", "0.3"], 8, "timeout"),
        (
            ["all/odd"],
            1,
            "the frame cannot be decoded: Expected `object`, got `str` - at `$.buffer` (malformed_response)",
        ),
    ],
)
def test_what_cannot_be_drawn_is_reported(run: Run, cwd: Path, arguments: list[str], status: int, words: str) -> None:
    folder = cwd / "all"
    write_ainb_plugin(folder, screens=["main"])
    write_ainb_plugin(folder, "q", screens=["one", "two"])
    write_ainb_plugin(folder, "none", namespaces=["n"])
    write_ainb_plugin(folder, "broken", abi_version=9)
    write_ainb_plugin(folder, "wants", screens=["w"], capabilities={"event_bus": True})
    write_ainb_plugin(folder, "stuck", body="def render(params, m):\n    pass\n", screens=["s"])
    write_ainb_plugin(folder, "odd", body='def render(params, m):\n    reply(m, {"buffer": "x"})\n', screens=["o"])
    done = run("render", *arguments)
    assert done.code == status
    assert done.out == ""
    assert words in done.err
    assert "Traceback" not in done.err


def test_keys_are_pressed_in_order_before_the_picture_is_taken(run: Run, cwd: Path) -> None:
    write_ainb_plugin(cwd, screens=["main"])
    keys = [word for key in ("a", "enter", "shift+tab", "ctrl+é") for word in ("--key", key)]
    assert run("render", "p", "--size", "40x2", *keys).out == "p 40x2\nkeys a enter back_tab é\n"


def test_the_picture_is_the_one_the_plugin_is_content_with(run: Run, cwd: Path) -> None:
    body = """
    drawn = []
    def render(params, m):
        drawn.append(1)
        reply(m, picture(params, str(len(drawn)), redraw=len(drawn) < 4))
    """
    write_ainb_plugin(cwd, body=body, screens=["main"])
    assert run("render", "p", "--size", "9x1").out == "4\n"


def test_a_plugin_that_is_never_content_is_drawn_anyway(run: Run, cwd: Path) -> None:
    body = 'def render(params, m):\n    reply(m, picture(params, "busy", redraw=True))\n'
    write_ainb_plugin(cwd, body=body, screens=["main"])
    assert run("render", "p", "--size", "9x1").out == "busy\n"


def test_a_screen_shows_data_that_another_plugin_publishes_at_its_start(run: Run, cwd: Path) -> None:
    publisher = 'def init(m):\n    publish("news", b"hello")\n    reply(m, {"name": NAME, "version": "1.0.0"})\n'
    reader = """
    waiting = []
    def render(params, m):
        waiting.append((m, params))
        request(7, "host/snapshot/get", topic="news")
    def answered(m):
        asked, params = waiting.pop()
        reply(asked, picture(params, unb64(m["result"]["payload"]).decode()))
    """
    bus = {"event_bus": True}
    write_ainb_plugin(cwd / "all", "a", publisher, capabilities=bus, lifecycle={"spawn": "eager"})
    write_ainb_plugin(cwd / "all", "b", reader, capabilities=bus, screens=["news"])
    assert run("render", "all", "--grant", "event_bus", "--size", "9x1").out == "hello\n"


def test_a_terminal_gets_colours_unless_it_wants_none(on_terminal: Callable[..., str], cwd: Path) -> None:
    write_ainb_plugin(cwd, body=RED, screens=["main"])
    shown = on_terminal("render", "p", "--size", "10x3", COLORTERM="truecolor")
    assert "\x1b[1;38;2;250;1;2;48;2;0;0;9mR\x1b[0m" in shown
    assert "漢" in shown
    for words, variables in ((("--text", "--size", "10x3"), {}), ((), {"NO_COLOR": "1"})):
        plain = without_limits_notes(on_terminal("render", "p", *words, COLUMNS="200", **variables))
        assert "\x1b" not in plain
        assert plain.startswith(" R")


def test_a_picture_is_saved_as_svg(run: Run, cwd: Path) -> None:
    write_ainb_plugin(cwd, body=RED, screens=["main"])
    done = run("render", "p", "--size", "10x3", "--svg", "out.svg")
    assert (done.code, done.out) == (0, "")
    assert "saved p/main, 10 by 3 cells, in out.svg" in done.err
    drawing = ET.fromstring((cwd / "out.svg").read_text())
    assert drawing.tag.endswith("svg")
    assert "R" in "".join(drawing.itertext()) and "漢" in "".join(drawing.itertext())
    both = run("render", "p", "--size", "10x3", "--svg", "out.svg", "--text")
    assert both.out == " R\n  漢\n\n"
    nowhere = run("render", "p", "--svg", "no/such/out.svg")
    assert nowhere.code == 1
    assert "no/such/out.svg: No such file or directory" in nowhere.err


def test_every_cell_is_in_the_json(run: Run, cwd: Path) -> None:
    write_ainb_plugin(cwd, body=RED, screens=["main"])
    done = run("render", "p", "--size", "10x3", "--json")
    assert done.json == {
        "plugin": "p",
        "screen": "main",
        "width": 10,
        "height": 3,
        "lines": [" R", "  漢", ""],
        "cells": [
            {"x": 1, "y": 0, "symbol": "R", "fg": [250, 1, 2], "bg": [0, 0, 9], "modifier": 1},
            {"x": 2, "y": 1, "symbol": "漢", "fg": None, "bg": None, "modifier": 0},
        ],
        "redraw": False,
        "captures_text": True,
    }


def test_a_signal_ends_the_drawing_and_the_plugin(cwd: Path) -> None:
    root = write_ainb_plugin(cwd, body='def render(params, m):\n    open("asked", "w").close()\n', screens=["main"])
    (cwd / "plugbay.toml").write_text('[plugins.p.sandbox]\noff = "it writes beside itself"\n')
    process = Piped("render", "p", "--timeout", "50", cwd=cwd, env=environment(cwd))
    wait_until(lambda: (root / "asked").exists(), "the plugin to be asked")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, b"")
    assert b"Traceback" not in err
    assert descendants_of(process.pid) == []


ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[PX^_][^\x1b]*\x1b\\|.)")


class Window:
    """`plugbay tui` in a terminal of its own."""

    def __init__(
        self,
        cwd: Path,
        home: Path,
        *arguments: str | Path,
        before: tuple[str, ...] = (),
        size: tuple[int, int] = (80, 24),
        **more: str,
    ) -> None:
        """`before`: a program, with its arguments, that becomes `plugbay tui`."""
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        env = environment(home, TERM="xterm-256color", **more)
        self.process: Command | subprocess.Popen[bytes]
        if before:
            words = [*before, *command("tui", *arguments)]
            self.process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, cwd=cwd, env=env)
        else:
            self.process = Command(["tui", *map(str, arguments)], (theirs,) * 3, cwd, env)
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

    def type_until(self, keys: bytes, text: str) -> None:
        """Type keys, and wait until this text is written after them."""
        before = len(self.seen)
        self.type(keys)
        wait_until(lambda: text in self.seen[before:], f"{text!r} after {keys!r}")

    def left(self) -> int:
        """The status it left with."""
        wait_until(lambda: (self.seen, self.process.poll())[1] is not None, "the end of plugbay tui")
        return self.process.wait(PATIENCE)

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


KINDS = """
def handle_key(params):
    key = params["key"]
    code = key["code"]
    keys.append("%s/%d/%s" % (code.get("ch") or code.get("n") or code["type"], key["mods"], key["kind"]))
"""


@requirement("ainb:tui-alt", "ainb:tui-key-kinds")
def test_alt_the_question_mark_and_f10_reach_the_plugin_and_so_do_repeats_and_releases(
    cwd: Path, window: Callable[..., Window]
) -> None:
    write_ainb_plugin(cwd / "plugins", "echo", KINDS, screens=["main"])
    terminal = window("plugins")
    terminal.shows("echo 42x20")
    terminal.type(b"\r")
    terminal.shows("echo 78x20")
    for keys, shown in (
        (b"\x1bb", "b/4/press"),
        (b"?", "?/0/press"),
        (b"\x1b[21~", "10/0/press"),
        (b"\x1b[120;1:2;120u", "x/0/repeat"),
        (b"\x1b[120;1:3u", "x/0/release"),
    ):
        terminal.type(keys)
        terminal.shows(shown)


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
    "before",
    few([("setsid",), (*DEAF, "setsid", "--ctty"), ("setsid", "--ctty")]),
    ids=["of others", "ignored", "its own"],
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
def test_without_a_terminal_the_hint_names_another_command(run: Run) -> None:
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
    # A real start: the server that forks commands has Textual loaded.
    terminal = window(before=("env",), PYTHONPATH=os.pathsep.join(map(str, (missing, source))))
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


DISPATCH = "def cli_dispatch(params, m):\n    "
ANSWER = DISPATCH + 'reply(m, {"stdout": b64(%s), "stderr": b64(%s), "exit_code": %s})\n'


def run_bytes(cwd: Path, *arguments: str | Path | bytes) -> subprocess.CompletedProcess[bytes]:
    return commands.plugbay(*arguments, cwd=cwd, env=environment(cwd))


@requirement("ainb:host-cli")
def test_output_and_status_are_exactly_the_plugins(cwd: Path) -> None:
    write_ainb_plugin(cwd, body=ANSWER % ("bytes(range(256))", 'b"\\xff\\x1b[31mred\\r\\n"', 3), namespaces=["notes"])
    done = run_bytes(cwd, "run", "--plugins", ".", "notes")
    assert done.stdout == bytes(range(256))
    assert done.stderr == b"\xff\x1b[31mred\r\n"
    assert done.returncode == 3


@requirement("ainb:host-cli")
@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["-h"],
        ["--json", "--plugins", "elsewhere", "--timeout", "0"],
        ["--", "-x", "--"],
        ["add", "buy milk", "", "漢", "*", "$HOME"],
        [],
    ],
)
def test_every_word_after_the_namespace_is_the_plugins(run: Run, cwd: Path, words: list[str]) -> None:
    write_ainb_plugin(cwd, body=ANSWER % ('json.dumps(params["argv"]).encode()', 'b""', 0), namespaces=["notes"])
    done = run("run", "--plugins", ".", "--timeout", "20", "notes", *words)
    assert (done.code, done.json, done.err) == (0, words, "")


def test_a_plugin_of_several_contracts_is_run_under_the_one_that_has_command_lines(run: Run, cwd: Path) -> None:
    root = write_ainb_plugin(cwd, body=ANSWER % ('b"out"', 'b""', 0), namespaces=["notes"])
    write_manifest(root, {"plugin_id": "p", "plugin_version": "1", "protocol_version": "rterm.plugin.v1"})
    done = run("run", "--no-sandbox", "--plugins", ".", "notes")
    assert (done.code, done.out) == (0, "out")


@pytest.mark.parametrize(("status", "seen"), [(0, 0), (255, 255), (256, 0), (300, 44), (-1, 255)])
def test_a_status_of_more_than_eight_bits_is_cut_as_a_shell_would(run: Run, cwd: Path, status: int, seen: int) -> None:
    write_ainb_plugin(cwd, body=ANSWER % ('b""', 'b""', status), namespaces=["n"])
    assert run("run", "--plugins", ".", "n").code == seen


def test_nothing_of_the_hosts_is_on_stderr_when_all_went_well(run: Run, cwd: Path) -> None:
    body = 'def init(m):\n    reply(m, {"name": "somebody else", "version": "9.9.9"})\n    send(id=99, result=1)\n'
    write_ainb_plugin(cwd, body=body + ANSWER % ('b"out"', 'b"err"', 0), namespaces=["n"])
    write_ainb_plugin(cwd, "broken", abi_version=9)
    done = run("run", "--plugins", ".", "n")
    assert (done.code, done.out, done.err) == (0, "out", "err")


LOGS = """
def cli_dispatch(params, m):
    for level, message in (("info", "began"), ("debug", "hidden"), ("info", "went on"), ("error", "failed")):
        notify("host/log", level=level, message=message, fields={"n": 1})
    reply(m, {"stdout": b64(b"out"), "stderr": b64(b"err"), "exit_code": 0})
"""


@requirement("ainb:cli-run-shows-logs")
def test_lines_that_a_plugin_logs_are_on_stderr_marked_as_not_its_output(run: Run, cwd: Path) -> None:
    write_ainb_plugin(cwd, body=LOGS, namespaces=["n"])
    done = run("run", "--plugins", ".", "n")
    logged = [f'plugbay: p: {text} {{"n":1}}' for text in ("info: began", "info: went on", "error: failed")]
    assert (done.code, done.out, done.err.split("\n")) == (0, "out", [*logged, "err"])


@requirement("host:stderr-visible")
def test_lines_that_the_process_writes_to_its_stderr_are_shown_and_marked(run: Run, cwd: Path) -> None:
    body = DISPATCH + 'print("a warning", file=sys.stderr, flush=True); '
    write_ainb_plugin(cwd, body=body + ANSWER.removeprefix(DISPATCH) % ('b"out"', 'b"err"', 0), namespaces=["n"])
    for _ in range(2):
        done = run("run", "--plugins", ".", "n")
        assert (done.code, done.out, done.err) == (0, "out", "plugbay: stderr: a warning\nerr"), "only of this run"


@requirement("host:stderr-visible")
def test_a_crash_shows_cause_exit_and_stderr(run: Run, cwd: Path) -> None:
    last = 'print("my last words", file=sys.stderr); sys.exit(5)\n'
    write_ainb_plugin(cwd, "dies", body=DISPATCH + last, namespaces=["dies"])
    lines = run("run", "--plugins", ".", "dies").err
    for words in ("plugbay: cause: ", "plugbay: exit: exit code 5", "plugbay: stderr: my last words"):
        assert words in lines


def test_only_the_plugin_that_is_asked_is_started(run: Run, cwd: Path) -> None:
    write_ainb_plugin(cwd, namespaces=["n"])
    body, eager = 'open("started", "w").close()\n', {"spawn": "eager"}
    other = write_ainb_plugin(cwd, "other", body=body, namespaces=["o"], lifecycle=eager)
    (cwd / "plugbay.toml").write_text('[plugins.other.sandbox]\noff = "it writes beside itself"\n')
    assert run("run", "--plugins", ".", "n", "x").out == "n x\n"
    assert not (other / "started").exists()
    assert run("run", "--plugins", ".", "other/o").out == "o\n"
    assert (other / "started").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--plugins", ".", "nots"], 4, "plugbay: not_found: no cli namespace is called 'nots'; did you mean notes"),
        (["--plugins", "nowhere", "notes"], 4, "plugbay: not_found: there is no folder nowhere"),
        (["--plugins", "empty", "notes"], 4, "plugbay: not_found: there is no plugin in empty"),
        (["--plugins", ".", "--config", "bad.toml", "notes"], 3, "plugbay: unavailable: bad.toml cannot be used"),
        (["--plugins", ".", "--timeout", "0.3", "slow"], 8, "plugbay: slow: timeout: "),
        (["--plugins", ".", "refuses"], 10, "plugbay: refuses: plugin_error: not today"),
        (["--plugins", ".", "wants"], 5, "plugbay: wants: capability_not_allowed: pending: it requests event_bus"),
        (["--plugins", ".", "dies"], 1, "plugbay: stderr: my last words"),
        (["notes"], 4, "--plugins DIR names a folder of plugins"),
        (["--plugins", "."], 2, "Missing argument 'NAMESPACE'"),
        (["--plugins", ".", "--timeout", "-1", "notes"], 2, "more than 0 and at most 3600"),
    ],
)
def test_a_failure_of_plugbays_own_has_its_status_and_says_whose_it_is(
    run: Run, cwd: Path, arguments: list[str], status: int, words: str
) -> None:
    (cwd / "empty").mkdir()
    (cwd / "bad.toml").write_text("= 1")
    write_ainb_plugin(cwd, "notes", namespaces=["notes"])
    write_ainb_plugin(cwd, "slow", body=DISPATCH + "pass\n", namespaces=["slow"])
    write_ainb_plugin(cwd, "refuses", body=DISPATCH + 'fail(m, -32000, "not today")\n', namespaces=["refuses"])
    write_ainb_plugin(cwd, "wants", namespaces=["wants"], capabilities={"event_bus": True})
    last = 'print("my last words", file=sys.stderr); sys.exit(5)\n'
    write_ainb_plugin(cwd, "dies", body=DISPATCH + last, namespaces=["dies"])
    done = run("run", *arguments)
    assert done.code == status
    assert done.out == ""
    assert words in done.err


def test_a_message_of_several_lines_is_marked_on_each_of_them(run: Run, cwd: Path) -> None:
    write_ainb_plugin(cwd, body=DISPATCH + 'fail(m, -32000, "one\\nplugbay: two")\n', namespaces=["n"])
    lines = run("run", "--plugins", ".", "n").err.splitlines()
    assert lines and all(line.startswith("plugbay: ") for line in lines)
    assert any("two" in line for line in lines)


def test_a_grant_lets_a_plugin_answer(run: Run, cwd: Path) -> None:
    write_ainb_plugin(cwd, namespaces=["n"], capabilities={"event_bus": True})
    assert run("run", "--plugins", ".", "n").code == 5
    assert run("run", "--plugins", ".", "--grant", "event_bus", "n").out == "n\n"
    assert run("run", "--plugins", "p", "--grant-all", "p/n").out == "n\n"


def test_a_plugin_that_is_left_out_is_named_when_nothing_is_found(run: Run, cwd: Path) -> None:
    write_ainb_plugin(cwd, namespaces=["n"])
    write_ainb_plugin(cwd, "broken", abi_version=9, namespaces=["b"])
    done = run("run", "--plugins", ".", "b")
    assert done.code == 4
    assert "plugbay: broken is left out: its manifest has 1 error" in done.err


def test_a_word_that_is_no_utf_8_is_reported(cwd: Path) -> None:
    write_ainb_plugin(cwd, namespaces=["n"])
    done = run_bytes(cwd, "run", "--plugins", ".", "n", b"\xff")
    assert done.returncode == 2
    assert b"argument 1 is not UTF-8" in done.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_command_line_and_its_plugin(cwd: Path, number: int, status: int) -> None:
    root = write_ainb_plugin(cwd, body=DISPATCH + 'open("asked", "w").close()\n', namespaces=["n"])
    (cwd / "plugbay.toml").write_text('[plugins.p.sandbox]\noff = "it writes beside itself"\n')
    process = Piped("run", "--plugins", ".", "n", cwd=cwd, env=environment(cwd))
    wait_until(lambda: (root / "asked").exists(), "the plugin to be asked")
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (status, b"")
    assert b"Traceback" not in err
    assert descendants_of(process.pid) == []


def test_a_reader_that_leaves_early_is_no_error_to_talk_about(cwd: Path) -> None:
    write_ainb_plugin(cwd, body=ANSWER % ('b"x" * 300_000', 'b""', 0), namespaces=["n"])
    reader, writer = os.pipe()
    process = Piped("run", "--plugins", ".", "n", stdout=writer, cwd=cwd, env=environment(cwd))
    os.close(writer)
    os.close(reader)
    _, said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (1, b"")


def test_output_for_a_stream_that_is_closed_is_reported(cwd: Path) -> None:
    write_ainb_plugin(cwd, namespaces=["n"])
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *command("run", "--plugins", ".", "n")],
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=environment(cwd),
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 1
    assert b"the stream is closed" in done.stderr


def test_help_before_the_namespace_is_plugbays(run: Run) -> None:
    done = run("run", "--help")
    assert done.code == 0
    assert "Write options before NAMESPACE" in done.out


@requirement("ainb:cli-server")
def test_a_screen_and_a_command_line_of_the_running_server_are_used_in_its_process(run: Run, cwd: Path) -> None:
    body = ANSWER % ('b"%d" % os.getpid()', 'b"err"', 3)
    write_ainb_plugin(cwd / "plugins", "shown", body, screens=["main"], namespaces=["n"])
    with served(cwd, "plugins") as server:
        there = ("--server", server.facts["url"], "--token-file", server.facts["token_file"])
        drawn = run("render", "shown", "--size", "30x3", "--key", "a", *there)
        assert (drawn.code, drawn.out.split("\n")[:2]) == (0, ["shown 30x3", "keys a"])
        again = run("render", "shown", "--json", "--key", "b", XDG_STATE_HOME=str(cwd / "state"))
        assert again.json["lines"][1] == "keys a b", "the same process"
        assert (again.json["plugin"], again.json["screen"], again.json["width"]) == ("shown", "main", 80)
        first, second = run("run", *there, "n"), run("run", "n", XDG_STATE_HOME=str(cwd / "state"))
        assert (first.code, first.err, second.out) == (3, "err", first.out)
        assert run("render", "shown", "other", *there).code == 4
        assert run("render", "nowhere", *there).code == 4
        lost = run("run", *there, "nothing")
        assert lost.code == 4 and lost.err.startswith("plugbay: not_found: ")
        for refused in (run("render", "shown", "--grant-all", *there), run("run", "--grant-all", *there, "n")):
            assert refused.code == 2 and "do not work with a server" in " ".join(refused.err.split())
        assert server.end() == 0


@requirement("ainb:cli-server")
def test_without_a_folder_and_without_a_server_the_hint_names_both(run: Run, cwd: Path) -> None:
    done = run("run", "n")
    assert done.code == 4
    assert "plugbay: hint: --plugins DIR names a folder of plugins; plugbay serve DIR starts one" in done.err


WRITES = """
def handle_key(params):
    code = params["key"]["code"]
    keys.append(code.get("ch") or code["type"])
    sys.stderr.write("typed %s\\n" % keys[-1])
    sys.stderr.flush()
"""


def process_of(server: Served, plugin_id: str) -> int:
    with server.client() as client:
        pid: int | None = client.get(f"/api/v1/plugins/{plugin_id}").json()["pid"]
    assert pid is not None
    return pid


@requirement("ainb:tui-server")
def test_the_terminal_shows_the_running_server_and_leaves_its_plugins_running(
    cwd: Path, window: Callable[..., Window]
) -> None:
    write_ainb_plugin(cwd / "plugins", "echo", WRITES, screens=["main"])
    with served(cwd, "plugins") as server:
        terminal = window(XDG_STATE_HOME=str(cwd / "state"))
        terminal.shows(f"server {server.facts['url']}")
        terminal.shows("echo 42x20")
        terminal.type(b"l")
        terminal.shows("echo 42x12")
        terminal.type(b"\r")
        terminal.shows("echo 78x12")
        terminal.type(b"abc\x1b[A")
        terminal.shows("keys a b c up")
        terminal.shows("typed up")
        pid = process_of(server, "echo")
        assert pid not in descendants_of(terminal.process.pid), "it is a process of the server"
        terminal.type(b"\x11")
        assert terminal.left() == 0
        assert process_of(server, "echo") == pid and is_alive(pid)
        named = window("--server", server.facts["url"], "--token-file", server.facts["token_file"])
        named.shows("keys a b c up")
        assert server.end() == 0
        named.shows("does not respond")
        named.shows("(not connected)")
        assert named.process.poll() is None and "Traceback" not in named.seen
        named.hang_up()
        wait_until(lambda: named.process.poll() is not None, "the end of plugbay tui")


@requirement("ainb:tui-server")
def test_a_folder_makes_a_host_of_its_own_beside_a_server(cwd: Path, window: Callable[..., Window]) -> None:
    write_ainb_plugin(cwd / "plugins", "echo", screens=["main"])
    write_ainb_plugin(cwd / "others", "other", screens=["main"])
    with served(cwd, "plugins") as server:
        here = {"XDG_STATE_HOME": str(cwd / "state")}
        there = ("--server", server.facts["url"])
        terminal = window("others", **here)
        terminal.shows("other 42x20")
        assert descendants_of(terminal.process.pid)
        assert "server http" not in terminal.seen
        for arguments, words in (
            (("--grant", "event_bus"), "do not work with a server"),
            (("--grant-all", *there), "do not work with a server"),
            (("others", *there), "DIR and --plugins do not work with --server"),
            (("--server", "http://127.0.0.1:9", "--token-file", server.facts["token_file"]), "does not respond"),
        ):
            refused = window(*arguments, **here)
            assert refused.left() in (2, 4), arguments
            assert words in " ".join(re.sub("[│╭╮╰╯─]", " ", refused.seen).split()), arguments
        assert server.end() == 0


TALKS = """
def tool_invoke(m):
    sys.stderr.write("doing %s\\n" % m["params"]["args"]["word"])
    sys.stderr.flush()
    reply(m, {"did": m["params"]["args"]["word"]})
"""


@pytest.mark.parametrize("size", first_alone([(80, 24), (200, 60)]), ids=["small", "large"])
@requirement("ainb:tui-server", "ainb:tui-operate")
def test_a_plugin_of_a_server_is_granted_called_stopped_and_started_in_a_terminal(
    cwd: Path, window: Callable[..., Window], size: tuple[int, int]
) -> None:
    write_nexo_plugin(cwd / "plugins", "p", TALKS, tools=["do"])
    write_plugin(cwd / "plugins", "shy", capabilities=["net"])
    with served(cwd, "plugins") as server:
        terminal = window(size=size, XDG_STATE_HOME=str(cwd / "state"))
        terminal.shows(f"server {server.facts['url']}")
        terminal.shows("running")
        terminal.type(b"c")
        terminal.shows("call a tool of p")
        terminal.type(b'{"word":"tea"}')
        terminal.shows('"tea"}')
        terminal.type(b"\r")
        terminal.shows('"did": "tea"')
        terminal.type_until(b"\x1b", "l logs")
        if size[1] < 45:
            terminal.type(b"l")
        terminal.shows("doing")
        terminal.type_until(b"s", "stopped")
        start_again(terminal, server)
        terminal.type(b"\x1b[B")
        terminal.type(b"g")
        terminal.shows("grant to shy")
        terminal.shows("plugbay.toml of the server")
        terminal.type(b"\r")
        wait_until(lambda: state_of(server, "shy") == "idle", "the grant")
        assert '"net"' in (cwd / "plugbay.toml").read_text()
        pid = process_of(server, "p")
        terminal.hang_up()
        wait_until(lambda: terminal.process.poll() is not None, "the end of plugbay tui")
        assert process_of(server, "p") == pid and is_alive(pid), "it is a process of the server"
        assert server.end() == 0


def start_again(terminal: Window, server: Served) -> None:
    """Start `p`. The key does nothing while the stop is not confirmed, although the plugin is shown as stopped."""
    while state_of(server, "p") == "stopped":
        terminal.type(b"s")
        with suppress(AssertionError):
            until_blocking(lambda: state_of(server, "p") != "stopped", 5)
    wait_until(lambda: state_of(server, "p") == "running", "the start of p")


def state_of(server: Served, plugin_id: str) -> str:
    with server.client() as client:
        return str(client.get(f"/api/v1/plugins/{plugin_id}").json()["state"])
