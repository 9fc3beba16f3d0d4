"""The app attached to a running server: the same screens, keys, logs and failures as with a host of its own."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from plugbay.cli.remote import ServerClient
from plugbay.host.admin.logs import LogLine
from plugbay.host.config.time_factor import TIME_FACTOR
from plugbay.host.journal import Note
from plugbay.tui import backend
from plugbay.tui.app import Terminal
from plugbay.tui.backend import ServerBackend, to_note
from plugbay.tui.widgets import LogView
from tests.server.test_server import Served, served
from tests.support.ainb import write_ainb_plugin
from tests.support.loops import Run
from tests.support.plugins import write_plugin
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive
from tests.tui.conftest import Seen
from tests.tui.test_app import CRASHES, DEAF, MOUSE, pid_of, state_of

WRITES = """
def handle_key(params):
    code = params["key"]["code"]
    keys.append(code.get("ch") or code["type"])
    sys.stderr.write("typed %s\\n" % keys[-1])
    sys.stderr.flush()

def handle_action(params):
    keys.append("did " + params["action_id"])
"""


@contextlib.asynccontextmanager
async def attached(server: Served) -> AsyncIterator[Seen]:
    """The app, attached to this server."""
    token = Path(server.facts["token_file"]).read_text().strip()
    async with ServerBackend(ServerClient(server.facts["url"], token)) as there:
        app = Terminal(there)
        async with app.run_test(size=(120, 30), notifications=True) as pilot:
            yield Seen(app, pilot)


def log_of(seen: Seen) -> str:
    return "\n".join(strip.text for strip in seen.app.query_one(LogView).lines)


@requirement("ainb:tui-server")
def test_keys_mouse_commands_logs_and_reloads_reach_the_plugins_of_a_server(run: Run, tmp_path: Path) -> None:
    manifest = write_ainb_plugin(tmp_path / "plugins", "echo", WRITES, screens=["main"]) / "manifest.toml"
    manifest.write_text(manifest.read_text().replace("[provides]", '[provides]\ncommands = ["tidy"]'))
    write_ainb_plugin(tmp_path / "plugins", "mouse", MOUSE, screens=["one", "two"])
    write_plugin(tmp_path / "plugins", "plain")

    async def main(server: Served) -> None:
        async with attached(server) as seen:
            assert f"server {server.facts['url']}" in seen.whole()
            await seen.use("echo")
            await seen.press(*"quick brown".replace(" ", "x"))
            await seen.shows("keys " + " ".join("quickxbrown"))
            await seen.press("ctrl+o", "l")
            await seen.until(lambda: "typed n" in log_of(seen))
            await seen.press("p")
            await seen.press(*"tidy")
            await seen.until(lambda: "a command of echo" in seen.whole())
            await seen.press("enter")
            await seen.shows("did tidy")
            before = pid_of(seen, "echo")
            await seen.press("r")
            await seen.until(lambda: state_of(seen, "echo") == "running" and pid_of(seen, "echo") != before)
            await seen.until(lambda: "tidy" not in seen.text and "keys" in seen.text)
            await seen.choose("mouse")
            await seen.shows("mouse")
            await seen.pilot.click(seen.canvas, offset=(5, 3))
            await seen.shows("down@5,3+0")
            await seen.until(lambda: seen.canvas.has_focus)
            await seen.press("ctrl+o")
            await seen.choose("plain")
            await seen.until(lambda: "exports" in seen.whole() and "tool" in seen.whole())
            await seen.press("p")
            await seen.press(*"quit")
            await seen.until(lambda: "the plugins of the server keep running" in seen.whole())

    with served(tmp_path, "plugins") as server:
        run(lambda: main(server))
        assert server.end() == 0
        assert not [line for line in server.log if "/api/v1/screens:input" in line], "its requests do not fill the log"


KEY = {"code": {"type": "char", "ch": "x"}}

ANIMATED = """
drawn = 0

def render(params, m):
    global drawn
    drawn += 1
    reply(m, {**picture(params, "picture %d" % drawn), "redraw": drawn < 30})
"""


@exhaustive
@requirement("ainb:tui-server")
def test_a_picture_follows_animations_and_the_input_of_other_viewers(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path / "plugins", "echo", screens=["main"])
    write_ainb_plugin(tmp_path / "plugins", "film", ANIMATED, screens=["main"])

    async def main(server: Served) -> None:
        async with attached(server) as seen:
            await seen.choose("echo")
            await seen.shows("keys")
            with server.client() as client:
                body = {"screen": "echo/main", "width": 20, "height": 2, "keys": [KEY]}
                assert client.post("/api/v1/screens:render", json=body).json()["frame"]["lines"][1] == "keys x"
            await seen.shows("keys x")
            await seen.choose("film")
            await seen.shows("picture 30")

    with served(tmp_path, "plugins") as server:
        run(lambda: main(server))
        assert server.end() == 0


@exhaustive
@requirement("ainb:tui-server")
def test_crashes_silence_and_invalid_manifests_on_a_server_are_explained(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TIME_FACTOR, "2")  # of the server: a render times out after 4 seconds
    write_ainb_plugin(tmp_path / "plugins", "broken", abi_version=9)
    write_ainb_plugin(tmp_path / "plugins", "crashes", CRASHES, screens=["main"])
    write_ainb_plugin(tmp_path / "plugins", "deaf", DEAF, screens=["main"])

    async def main(server: Served) -> None:
        async with attached(server) as seen:
            await seen.use("crashes")
            await seen.press("x")
            await seen.shows("The plugin crashed")
            assert "out of cheese" in seen.text
            await seen.press("r")
            await seen.shows("crashes ")
            await seen.until(lambda: "crashed" not in seen.text)
            await seen.press("ctrl+o")
            await seen.use("deaf", "drew this")
            await seen.press("x")
            await seen.shows("Not responding; this is its last frame")
            await seen.press("escape", "down")
            await seen.until(lambda: "its manifest has problems" in seen.whole())

    with served(tmp_path, "plugins") as server:
        run(lambda: main(server))
        assert server.end() == 0


@exhaustive
@requirement("ainb:tui-server-lost")
def test_a_server_that_stops_is_reported_and_shown_again_when_it_is_back(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path / "plugins", "echo", screens=["main"])

    async def main(server: Served) -> None:
        address = server.facts["url"].removeprefix("http://")
        async with attached(server) as seen:
            await seen.use("echo")
            await seen.press("x")
            await seen.shows("keys x")
            assert await asyncio.to_thread(server.end) == 0
            await seen.until(lambda: f"server http://{address} (not connected)" in seen.whole())
            await seen.until(lambda: "trying again" in seen.whole())
            await seen.press("y", "ctrl+o", "r", "p")
            await seen.until(lambda: "screen echo/main" in seen.whole())
            await seen.press("escape")
            with served(tmp_path, "plugins", "--listen", address) as again:
                await seen.until(lambda: "(not connected)" not in seen.whole())
                await seen.until(lambda: "keys" in seen.text and "keys x" not in seen.text)
                await seen.use("echo")
                await seen.press("z")
                await seen.shows("keys z")
                assert await asyncio.to_thread(again.end) == 0

    with served(tmp_path, "plugins") as server:
        run(lambda: main(server))


@exhaustive
@requirement("ainb:tui-server-lost")
def test_a_server_that_hangs_is_reported_and_never_blocks_the_app(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "POLL_ANSWER_SECONDS", 1.0)
    write_ainb_plugin(tmp_path / "plugins", "echo", screens=["main"])

    async def main(server: Served) -> None:
        async with attached(server) as seen:
            await seen.use("echo")
            server.send(signal.SIGSTOP)
            await seen.press("x")
            await seen.until(lambda: "(not connected)" in seen.whole())
            began = time.monotonic()
            await seen.press("ctrl+o", "question_mark")
            await seen.until(lambda: "show this page" in seen.whole())
            await seen.press("escape")
            assert time.monotonic() - began < 20
            server.send(signal.SIGCONT)
            await seen.until(lambda: "(not connected)" not in seen.whole())
            await seen.use("echo")
            await seen.press("y")
            await seen.until(lambda: seen.text.rstrip().endswith("y"))
            server.send(signal.SIGSTOP)
        server.send(signal.SIGCONT)

    with served(tmp_path, "plugins") as server:
        run(lambda: main(server))
        assert server.end() == 0


def test_a_line_of_a_log_is_a_note_as_in_the_journal() -> None:
    at = "1970-01-01T00:00:02.500000Z"
    assert to_note(LogLine(at, "host", "warn", "crashed: code 3: sad")) == Note(2.5, "warn", "crashed", "code 3: sad")
    assert to_note(LogLine(at, "plugin", "info", "a: b")) == Note(2.5, "info", "log.info", "a: b")
    assert to_note(LogLine("edited", "stderr", "info", "a: b")) == Note(0.0, "info", "stderr", "a: b")
