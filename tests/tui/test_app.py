"""The app: screens, keys, failures, list, logs and palette; and a terminal that disappears."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from textual import events

from plugbay.host.config.time_factor import TIME_FACTOR
from plugbay.tui.widgets import HelpScreen, LogView, PluginList, ScreenTabs
from tests.support.ainb import write_ainb_plugin
from tests.support.loops import Run
from tests.support.plugins import write_plugin
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive
from tests.tui.conftest import Seen, terminal

MOUSE = """
seen = []

def handle_mouse(params):
    kind, mouse = params["mouse"]["kind"], params["mouse"]
    seen.append("%s@%d,%d+%d" % (kind["type"], mouse["col"], mouse["row"], mouse["mods"]))

def render(params, m):
    reply(m, picture(params, NAME, *seen))
"""

CRASHES = """
def handle_key(params):
    sys.stderr.write("Traceback (most recent call last):\\n  RuntimeError: out of cheese\\n")
    sys.stderr.flush()
    os._exit(3)
"""

DEAF = """
def handle_key(params):
    for _ in sys.stdin.buffer:
        pass

def render(params, m):
    reply(m, picture(params, NAME + " drew this"))
"""


def pid_of(seen: Seen, name: str) -> int:
    pid = next(status.pid for status in seen.host.plugins() if status.spec.id == name)
    assert pid is not None
    return pid


def state_of(seen: Seen, name: str) -> str:
    return next(status.state for status in seen.host.plugins() if status.spec.id == name)


# Screens.


@requirement("ainb:tui-screen")
def test_keys_arrive_at_the_plugin_and_the_picture_changes(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "echo", screens=["main"])

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.use("echo")
            await seen.press("a", "tab", "up", "f5", "ctrl+p", "l", "escape")
            await seen.shows("keys a tab up f p l esc")

    run(main)


@requirement("ainb:tui-viewport")
def test_a_picture_is_asked_for_at_exactly_the_room_there_is(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "echo", screens=["main"])

    async def main() -> None:
        async with terminal(tmp_path, size=(120, 30)) as seen:
            await seen.choose("echo")
            width, height = seen.canvas.size
            await seen.shows(f"echo {width}x{height}")
            await seen.pilot.resize_terminal(140, 40)
            await seen.shows(f"echo {width + 20}x{height + 10}")

    run(main)


def test_the_picture_is_drawn_cell_by_cell(run: Run, tmp_path: Path) -> None:
    body = """
    def render(params, m):
        cells = [
            [{"x": 1, "y": 0}, {"symbol": "R", "fg": {"r": 255, "g": 0, "b": 0}, "modifier": 1}],
            [{"x": 2, "y": 0}, {"symbol": "日"}],
            [{"x": 4, "y": 0}, {"symbol": "[b]"}],
            [{"x": 9999, "y": 0}, {"symbol": "outside"}],
        ]
        reply(m, {"buffer": {**params["viewport"], "cells": cells}})
    """
    write_ainb_plugin(tmp_path, "art", body, screens=["main"])

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.choose("art")
            await seen.shows(" R日[")
            (red,) = [segment for segment in seen.canvas.render_line(0) if segment.text == "R"]
            assert red.style is not None and red.style.color is not None
            assert (red.style.color.triplet, red.style.bold) == ((255, 0, 0), True)
            assert seen.canvas.render_line(0).cell_length == seen.canvas.size.width

    run(main)


@requirement("ainb:tui-mouse")
def test_clicks_drags_and_the_wheel_arrive_where_they_happened(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "mouse", MOUSE, screens=["main"])

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.choose("mouse")
            await seen.shows("mouse")
            await seen.pilot.hover("#canvas", offset=(9, 9))
            await seen.pilot.mouse_down("#canvas", offset=(5, 2))
            await seen.pilot.mouse_up("#canvas", offset=(7, 3))
            await seen.shows("up@7,3+0")
            assert [line for line in seen.lines if "@" in line] == ["down@5,2+0", "drag@7,3+0", "up@7,3+0"]
            await seen.until(lambda: seen.canvas.has_focus)
            place = seen.canvas.region.offset
            seen.app.post_message(events.MouseScrollDown(None, place.x + 4, place.y + 6, 0, 0, 0, False, False, True))
            await seen.shows("scroll_down@4,6+2")

    run(main)


@exhaustive
def test_a_plugin_with_several_screens_has_tabs(run: Run, tmp_path: Path) -> None:
    body = """
    def render(params, m):
        reply(m, picture(params, "this is " + params["screen_id"]))
    """
    write_ainb_plugin(tmp_path, "many", body, screens=["one", "two", "three"])

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.choose("many")
            await seen.shows("this is one")
            await seen.press("right")
            await seen.shows("this is two")
            await seen.press("left", "left")
            await seen.shows("this is three")
            assert seen.app.query_one(ScreenTabs).display
            await seen.pilot.click("#tabs", offset=(3, 0))
            await seen.shows("this is one")

    run(main)


@exhaustive
@requirement("ainb:tui-key-flood")
def test_a_flood_of_keys_does_no_harm(run: Run, tmp_path: Path) -> None:
    body = """
    def render(params, m):
        reply(m, picture(params, NAME, "last " + "".join(keys[-1:])))
    """
    write_ainb_plugin(tmp_path, "echo", body, screens=["main"])
    write_ainb_plugin(tmp_path, "other", screens=["main"])

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.use("echo")
            for _ in range(2000):
                seen.app.simulate_key("x")
            seen.app.simulate_key("z")
            await seen.shows("last z")
            await seen.press("ctrl+o")
            await seen.use("other")
            await seen.press("q")
            await seen.shows("keys q")

    run(main)


# Keys.


@exhaustive
@requirement("ainb:tui-way-out")
def test_one_key_goes_to_the_list_and_back(run: Run, tmp_path: Path) -> None:
    key = "ctrl+o"
    write_ainb_plugin(tmp_path, "echo", screens=["main"])

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.use("echo")
            await seen.press(key)
            assert seen.app.query_one(PluginList).has_focus
            await seen.press(key)
            assert seen.canvas.has_focus
            await seen.press("k")
            await seen.shows("keys k")
            assert seen.text.count("keys k\n") == 1

    run(main)


@requirement("ainb:tui-way-out")
@pytest.mark.parametrize("key", ["ctrl+c", "ctrl+q"])
def test_quitting_works_inside_a_screen(run: Run, tmp_path: Path, key: str) -> None:
    write_ainb_plugin(tmp_path, "echo", screens=["main"])

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.use("echo")
            await seen.press(key)
            await seen.until(lambda: not seen.app.is_running)

    run(main)


@requirement("ainb:tui-escape")
def test_the_ninth_escape_in_a_row_is_the_hosts(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "echo", screens=["main"])

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.use("echo")
            for count in range(1, 9):
                await seen.press("escape")
                await seen.shows("keys" + " esc" * count)
            assert seen.canvas.has_focus
            await seen.press("escape")
            assert seen.app.query_one(PluginList).has_focus

    run(main)


@exhaustive
@requirement("ainb:tui-help")
def test_a_question_mark_opens_the_help_from_the_list_and_is_the_plugins_in_its_screen(
    run: Run, tmp_path: Path
) -> None:
    write_ainb_plugin(tmp_path, "echo", screens=["main"])

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.press("question_mark")
            assert isinstance(seen.app.screen, HelpScreen)
            await seen.press("escape")
            await seen.use("echo")
            await seen.press("question_mark", "f10", "alt+b")
            await seen.shows("keys ? f b")

    run(main)


# Failures.


@requirement("ainb:tui-crash")
def test_a_crash_is_explained_and_a_reload_recovers(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "weak", CRASHES, screens=["main"])

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.use("weak")
            await seen.press("x")
            await seen.shows("The plugin crashed")
            assert "RuntimeError: out of cheese" in seen.text
            assert "r reloads it" in seen.text
            await seen.press("y")
            await seen.press("r")
            await seen.shows("weak 8")
            assert state_of(seen, "weak") == "running"
            assert seen.canvas.has_focus

    run(main)


@exhaustive
@requirement("ainb:tui-crash")
def test_a_plugin_that_dies_unasked_is_noticed_and_not_started_behind_ones_back(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "weak", screens=["main"])

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.use("weak")
            os.kill(pid_of(seen, "weak"), signal.SIGKILL)
            await seen.shows("The plugin crashed")
            assert "killed by a signal" in seen.text or "SIGKILL" in seen.text
            await seen.until(lambda: "state        ○ idle" in seen.whole())
            await seen.until(lambda: "r reload" in seen.whole().splitlines()[-1])
            await seen.press("escape")
            assert seen.app.query_one(PluginList).has_focus

    run(main)


@exhaustive
def test_a_plugin_that_is_started_with_the_host_comes_back_by_itself(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "weak", CRASHES, screens=["main"], lifecycle={"spawn": "eager"})

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.use("weak")
            await seen.press("x")
            await seen.shows("The plugin crashed")
            await seen.shows("weak 8")

    run(main)


@requirement("ainb:tui-quarantine")
def test_a_plugin_in_quarantine_leaves_it_by_a_reload(run: Run, tmp_path: Path) -> None:
    body = """
    from pathlib import Path
    if not Path("well").exists():
        sys.exit(1)
    """
    root = write_ainb_plugin(tmp_path, "ill", body, screens=["main"], lifecycle={"spawn": "eager"})

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.until(lambda: state_of(seen, "ill") == "quarantined")
            await seen.shows("quarantined")
            await seen.press("enter")
            (root / "well").touch()
            await seen.press("r")
            await seen.shows("ill 8")

    run(main)


@requirement("ainb:tui-wedged")
def test_a_plugin_that_does_not_answer_keeps_its_frame_and_blocks_no_other(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TIME_FACTOR, "5")  # a frame times out after 10 seconds
    write_ainb_plugin(tmp_path, "deaf", DEAF, screens=["main"])
    write_ainb_plugin(tmp_path, "echo", screens=["main"])

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.use("deaf", "deaf drew this")
            await seen.press("x")
            await seen.press("ctrl+o")
            await seen.use("echo")
            await seen.press("a")
            await seen.shows("keys a")
            await seen.press("ctrl+o")
            await seen.use("deaf", "Not responding")
            assert "deaf drew this" in seen.text
            await seen.press("escape")
            assert seen.app.query_one(PluginList).has_focus

    run(main)


@exhaustive
@requirement("ainb:tui-wedged")
def test_a_plugin_that_never_drew_anything_says_so(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TIME_FACTOR, "2")
    body = """
    def render(params, m):
        pass
    """
    write_ainb_plugin(tmp_path, "mute", body, screens=["main"])

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.choose("mute")
            await seen.until(lambda: "mute is starting …" in seen.text)
            await seen.shows("mute does not respond")

    run(main)


def test_a_picture_that_cannot_be_read_is_explained(run: Run, tmp_path: Path) -> None:
    body = """
    def render(params, m):
        reply(m, {"buffer": {"width": -1, "height": 2, "cells": []}})
    """
    write_ainb_plugin(tmp_path, "odd", body, screens=["main"])

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.choose("odd")
            await seen.shows("returned an invalid frame")

    run(main)


@requirement("host:pending")
def test_a_plugin_that_was_granted_nothing_is_explained(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "shy", screens=["main"], capabilities={"event_bus": True})

    async def main() -> None:
        async with terminal(tmp_path, grant_all=False) as seen:
            await seen.choose("shy")
            await seen.shows("--grant event_bus")
            assert state_of(seen, "shy") == "pending"
            await seen.until(lambda: "◇ shy        ainb  pending" in seen.whole())

    run(main)


# List, pages, logs.


@requirement("ainb:tui-list")
def test_the_list_shows_every_contract_and_state_as_they_are_now(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "art", screens=["main"])
    write_plugin(tmp_path, "tool")

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.choose("tool")
            await seen.until(lambda: "○ tool       rune  idle" in seen.whole())
            await seen.choose("art")
            await seen.until(lambda: "● art        ainb  running" in seen.whole())
            assert "2 plugins   ● 1 running   ○ 1 idle" in seen.whole()

    run(main)


def test_a_plugin_without_a_screen_shows_its_facts(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "cli", namespaces=["notes"], capabilities={"event_bus": True})

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.until(lambda: "cli_namespace  notes" in seen.whole())
            assert "✓ granted  event_bus" in seen.whole()
            await seen.press("enter")
            assert seen.app.query_one("#page").has_focus

    run(main)


def test_a_broken_plugin_is_listed_with_its_problems(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "echo", screens=["main"])
    write_ainb_plugin(tmp_path, "wrong", version=7)

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.press("end")
            await seen.until(lambda: "its manifest has problems" in seen.whole())
            assert "plugin.version" in seen.whole()
            await seen.press("r", "enter", "p")

    run(main)


def test_a_host_without_plugins_says_how_to_get_some(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.until(lambda: "No plugins here" in seen.whole())
            await seen.press("r", "left", "enter")

    run(main)


@requirement("host:stderr-visible")
def test_the_log_has_the_lines_of_stderr(run: Run, tmp_path: Path) -> None:
    body = """
    def handle_key(params):
        print("the [red]cheese[/] is low", file=sys.stderr, flush=True)
    """
    write_ainb_plugin(tmp_path / "plugins", "talks", body, screens=["main"])

    async def main() -> None:
        async with terminal(tmp_path / "plugins", log_dir=tmp_path / "logs") as seen:
            await seen.choose("talks")
            await seen.press("l")
            await seen.press("enter")
            await seen.until(lambda: seen.canvas.has_focus)
            await seen.press("x")
            await seen.until(lambda: "the [red]cheese[/] is low" in seen.whole())

    run(main)


@requirement("ainb:tui-logs")
def test_logs_are_shown_on_a_key(run: Run, tmp_path: Path) -> None:
    body = """
    def handle_key(params):
        notify("host/log", level="warn", message="[red]the cheese is low[/]")
    """
    write_ainb_plugin(tmp_path, "talks", body, screens=["main"])

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.choose("talks")
            assert not seen.app.query_one(LogView).display
            await seen.press("l")
            await seen.shows("talks")
            await seen.press("enter")
            await seen.until(lambda: seen.canvas.has_focus)
            await seen.press("x")
            await seen.until(lambda: "[red]the cheese is low[/]" in seen.whole())
            await seen.press("ctrl+o", "l")
            assert not seen.app.query_one(LogView).display

    run(main)


@exhaustive
def test_in_a_narrow_terminal_a_screen_that_is_used_has_all_the_room(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "echo", screens=["main"])

    async def main() -> None:
        async with terminal(tmp_path, size=(80, 24)) as seen:
            await seen.use("echo")
            await seen.shows("echo 78x20")
            assert not seen.app.query_one(PluginList).display
            await seen.press("ctrl+o")
            assert seen.app.query_one(PluginList).display

    run(main)


@exhaustive
def test_zoom_gives_a_screen_all_the_room_of_a_wide_terminal(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "echo", screens=["main"])

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.choose("echo")
            await seen.press("z")
            await seen.shows("echo 118x26")
            await seen.press("ctrl+o", "z")
            assert seen.app.query_one(PluginList).display

    run(main)


# Palette.


@exhaustive
@requirement("ainb:tui-palette")
def test_the_palette_tells_the_plugin_to_perform_a_command(run: Run, tmp_path: Path) -> None:
    body = """
    done = []

    def handle_action(params):
        done.append(params["action_id"])

    def render(params, m):
        reply(m, picture(params, NAME, *done))
    """
    root = write_ainb_plugin(tmp_path, "able", body, screens=["main"])
    manifest = root / "manifest.toml"
    manifest.write_text(manifest.read_text().replace("[provides]", '[provides]\ncommands = ["tidy [up]"]'))

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.choose("able")
            await seen.shows("able")
            await seen.press("p")
            await seen.until(lambda: "tidy [up]" in seen.whole())
            await seen.press(*"tidy")
            await seen.until(lambda: "screen able/main" not in seen.whole())
            await seen.press("enter")
            await seen.shows("tidy [up]")

    run(main)


@exhaustive
def test_the_palette_goes_to_any_screen(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "echo", screens=["main"])
    body = """
    def render(params, m):
        reply(m, picture(params, "this is " + params["screen_id"]))
    """
    write_ainb_plugin(tmp_path, "many", body, screens=["one", "two"])

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.choose("echo")
            await seen.press("p")
            await seen.until(lambda: "screen many/two" in seen.whole())
            await seen.press(*"two")
            await seen.until(lambda: "screen many/two" in seen.whole() and "screen many/one" not in seen.whole())
            await seen.press("enter")
            await seen.shows("this is two")
            assert seen.canvas.has_focus

    run(main)


def test_a_command_for_a_plugin_that_is_not_running_is_refused_with_a_reason(run: Run, tmp_path: Path) -> None:
    root = write_ainb_plugin(tmp_path, "lazy", namespaces=["notes"])
    manifest = root / "manifest.toml"
    manifest.write_text(manifest.read_text().replace("[provides]", '[provides]\ncommands = ["tidy"]'))

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.choose("lazy")
            seen.app._perform("lazy", "tidy")
            await seen.until(lambda: "lazy is not running" in seen.whole())

    run(main)
