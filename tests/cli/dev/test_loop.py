"""`plugbay dev --attach`: the author's own processes come, go, come back and stop at breakpoints.

What saves and typed lines lead to is tested with the whole command, in `test_dev.py`.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plugbay.cli.dev.loop import PluginWrites, is_watched, watch_saves
from tests.cli.conftest import GREETER, command, environment
from tests.cli.terminals import EventStream, Terminal
from tests.support.loops import run_on
from tests.support.patience import PATIENCE, until

Window = Callable[..., Terminal]

BOT = """\
import sys
from plugbay.sdk import Plugin

plugin = Plugin("bot", version="1.0.0")

@plugin.tool(description="Twice as much.")
def double(n: int) -> dict:
    twice = 2 * n
    return {"twice": twice}

@plugin.tool(description="Half of it.")
async def halve(n: int) -> dict:
    breakpoint()
    return {"half": n / 2}

plugin.run()
"""
MANIFEST = """\
[plugin]
id = "bot"
version = "1.0.0"
name = "Bot"
description = "A test."
min_nexo_version = ">=0.1.0"

[plugin.entrypoint]
command = "python3"
args = ["plugin.py"]

[plugin.extends]
tools = ["bot_double", "bot_halve"]
"""


@pytest.fixture
def window(cwd: Path, tmp_path: Path) -> Iterator[Window]:
    opened: list[Terminal] = []

    def window(line: str) -> Terminal:
        opened.append(Terminal(["bash", "-c", f"exec env {line}"], cwd, tmp_path))
        return opened[-1]

    yield window
    for terminal in opened:
        terminal.close()


@pytest.fixture
def dev(cwd: Path, tmp_path: Path) -> Iterator[Callable[..., EventStream]]:
    opened: list[EventStream] = []

    def dev(*arguments: str | Path) -> EventStream:
        opened.append(EventStream(cwd, tmp_path, "dev", *arguments, "--attach"))
        return opened[-1]

    yield dev
    for stream in opened:
        stream.close()


@pytest.fixture
def bot(cwd: Path) -> Path:
    folder = cwd / "bot"
    folder.mkdir()
    (folder / "plugin.py").write_text(BOT)
    (folder / "nexo-plugin.toml").write_text(MANIFEST)
    return folder


def test_a_debugger_stops_in_a_handler_and_no_deadline_runs_out(
    dev: Callable[..., EventStream], window: Window, bot: Path
) -> None:
    stream = dev(bot, "--call", "bot_double", '{"n": 21}')
    invited = stream.next("attach")
    assert invited["interactive"]
    debugger = window(invited["line"])
    debugger.shows("(Pdb) ")
    debugger.type("b plugin.py:8\n")
    debugger.shows("Breakpoint 1")
    debugger.type("c\n")
    assert stream.next("attached")["pid"] == debugger.process.pid
    debugger.shows("-> twice = 2 * n")
    debugger.type("!n = 4\n")
    debugger.shows("(Pdb) ", 3)
    debugger.type("c\n")
    assert stream.next("result")["output"] == {"twice": 8}


def test_breakpoint_works_in_an_async_handler_without_a_debugger_around_it(
    dev: Callable[..., EventStream], window: Window, bot: Path
) -> None:
    stream = dev(bot, "--call", "bot_halve", '{"n": 3}')
    plugin = window(stream.next("attach")["line"].replace("-m pdb ", ""))
    plugin.shows("(Pdb) ")
    plugin.type("c\n")
    assert stream.next("result")["output"] == {"half": 1.5}


def test_a_process_that_comes_back_gets_the_last_call_again(
    dev: Callable[..., EventStream], cwd: Path, tmp_path: Path, bot: Path
) -> None:
    stream = dev(bot, "--call", "bot_double", '{"n": 2}')
    line = shlex.split(stream.next("attach")["line"].replace("-m pdb ", ""))
    variable, argv = line[0].split("=", 1), line[1:]

    def start() -> subprocess.Popen[bytes]:
        env = {**environment(tmp_path), variable[0]: variable[1]}
        return subprocess.Popen(argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    first = start()
    assert stream.next("result")["output"] == {"twice": 4}
    (bot / "plugin.py").write_text(BOT.replace("2 * n", "20 * n"))
    stream.next("changed")
    assert "restart the plugin in its terminal" in stream.next("remark")["text"]
    os.kill(first.pid, signal.SIGKILL)
    first.wait(PATIENCE)
    assert stream.next("detached")["pid"] == first.pid
    second = start()
    result = stream.next("result")
    assert (result["output"], len(result["differences"])) == ({"twice": 40}, 1)
    stream.close()
    assert second.wait(PATIENCE) == 0


def test_a_plugin_for_one_call_stays_for_the_next_one(
    dev: Callable[..., EventStream], cwd: Path, tmp_path: Path, sdk_plugin: Path
) -> None:
    (cwd / sdk_plugin / "main.py").write_text(GREETER.replace("{name}.", "{__import__('os').getpid()}"))
    stream = dev(sdk_plugin, "--once", "--call", "greet", "--call", "greet", '{"name": "x"}')
    line = shlex.split(stream.next("attach")["line"].replace("-m pdb ", ""))
    env = {**environment(tmp_path), "PLUGBAY_ATTACH": stream.told[-1]["address"]}
    plugin = subprocess.Popen(line[1:], cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    texts = {stream.next("result")["output"]["text"] for _ in range(2)}
    assert texts == {f"Hello, {plugin.pid}"}
    assert stream.left() == 0
    out, _ = plugin.communicate(timeout=PATIENCE)
    assert (plugin.returncode, out.count(b"called")) == (0, 2)


def test_a_process_without_the_token_is_turned_away_and_that_is_reported(
    dev: Callable[..., EventStream], window: Window, bot: Path
) -> None:
    stream = dev(bot)
    line = stream.next("attach")["line"].replace("-m pdb ", "").replace("#", "#x", 1)
    stranger = window(line)
    assert stream.next("remark")["text"] == "a process was rejected: it did not send the token"
    assert stranger.left() == 2
    assert "copy the whole command" in stranger.seen


def test_a_manifest_that_is_mended_brings_the_line_to_run(dev: Callable[..., EventStream], bot: Path) -> None:
    (bot / "nexo-plugin.toml").write_text("[plugin\n")
    stream = dev(bot)
    assert not stream.next("manifest")["usable"]
    (bot / "nexo-plugin.toml").write_text(MANIFEST)
    assert "plugin.py" in stream.next("attach")["line"]


def test_a_terminal_that_is_closed_leaves_neither_a_process_nor_a_socket(cwd: Path, tmp_path: Path, bot: Path) -> None:
    (tmp_path / "tmp").mkdir()
    # A shell's work: only who has the terminal for a controlling one hears that it is closed.
    leader = "import os,sys; os.setsid(); __import__('fcntl').ioctl(0, __import__('termios').TIOCSCTTY, 0); "
    argv = [sys.executable, "-c", f"{leader}os.execv(sys.argv[1], sys.argv[1:])", *command("dev", bot, "--attach")]
    window = Terminal(argv, cwd, tmp_path, TMPDIR=str(tmp_path / "tmp"))
    try:
        window.shows("dev> ")
        assert list((tmp_path / "tmp").glob("plugbay-dev-*"))
        window.hang_up()
        # Whichever it hears of first: that nobody types any more, or the signal.
        assert window.process.wait(PATIENCE) in (0, 128 + signal.SIGHUP)
        assert not list((tmp_path / "tmp").glob("plugbay-dev-*"))
    finally:
        window.close()


ROOT = Path("/plugins/weather")


@pytest.mark.parametrize(
    "name", ["plugin.py", "rterm-plugin.json", "src/lib/a.js", "bin/plugin", "schemas/in.json", "plugbay.toml"]
)
def test_what_an_author_writes_matters(name: str) -> None:
    assert is_watched(ROOT / name, ROOT)


@pytest.mark.parametrize(
    "name",
    [
        "__pycache__/plugin.cpython-311.pyc",
        "lib/__pycache__/x.py",
        ".git/index",
        ".venv/lib/x.py",
        "node_modules/left/pad.js",
        "logs/today.txt",
        "logs",
        "run.log",
        "state.db",
        "state.db-wal",
        ".plugin.py.swp",
        "plugin.py~",
        "#plugin.py#",
        "4913",
        "",
    ],
)
def test_what_programs_write_does_not(name: str) -> None:
    assert not is_watched(ROOT / name, ROOT)


def test_what_lies_elsewhere_does_not_matter_however_the_path_to_the_root_looks() -> None:
    hidden = Path("/home/me/.plugins/logs/weather")
    assert is_watched(hidden / "plugin.py", hidden)
    assert not is_watched(Path("/elsewhere/plugin.py"), hidden)


def test_a_file_written_by_three_calls_in_a_row_is_the_plugins_own() -> None:
    own = PluginWrites()
    assert own.record(["count.txt"]) == []
    assert own.record(["count.txt", "other.txt"]) == [], "an author may save twice while calls run"
    assert own.record(["count.txt", "other.txt"]) == ["count.txt"]
    assert own.known == {"count.txt"}


def test_a_save_of_the_authors_in_between_clears_the_suspicion() -> None:
    own = PluginWrites()
    own.record(["count.txt"])
    own.forget()
    assert own.record(["count.txt"]) == []


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_saves_close_together_form_one_batch_and_writes_of_programs_are_ignored(tmp_path: Path, loop: str) -> None:
    root = tmp_path.resolve()
    (root / "logs").mkdir()

    async def main() -> None:
        stop = asyncio.Event()
        told: list[list[str]] = []

        async def listen() -> None:
            async for names in watch_saves(root, stop):
                told.append(names)

        listening = asyncio.ensure_future(listen())
        # Whether the watch stands already is seen by what it tells.
        number = 0
        while not told and not listening.done():
            number += 1
            (root / "first.py").write_text(str(number))
            await asyncio.sleep(0.05)
        told.clear()
        (root / "logs" / "x.py").write_text("no")
        (root / "a.py").write_text("1")
        (root / "b.py").write_text("2")
        await until(lambda: listening.done() or any("b.py" in names for names in told))
        stop.set()
        await listening
        assert [sorted(set(names) - {"first.py"}) for names in told] == [["a.py", "b.py"]]

    run_on(loop)(main)
