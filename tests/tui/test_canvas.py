"""The canvas: frames, pages, keys and pastes."""

from __future__ import annotations

from pathlib import Path

from textual import events

from plugbay.tui.canvas import LONGEST_PASTE
from tests.support.ainb import write_ainb_plugin
from tests.support.loops import Run
from tests.tui.conftest import terminal

TAKES_TEXT = """
def render(params, m):
    reply(m, picture(params, NAME, "typed " + "".join(keys), captures_text=True))
"""


def test_every_line_is_exactly_as_wide_as_the_room(run: Run, tmp_path: Path) -> None:
    body = """
    def render(params, m):
        cells = [[{"x": x, "y": 0}, {"symbol": "日"}] for x in range(params["viewport"]["width"])]
        reply(m, {"buffer": {"width": params["viewport"]["width"], "height": 1, "cells": cells}})
    """
    write_ainb_plugin(tmp_path, "wide", body, screens=["main"])

    async def main() -> None:
        async with terminal(tmp_path, size=(121, 30)) as seen:
            await seen.choose("wide")
            await seen.shows("日日")
            width, height = seen.canvas.size
            assert {seen.canvas.render_line(y).cell_length for y in range(height)} == {width}

    run(main)


def test_a_paste_is_typed_where_the_plugin_takes_text(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "editor", TAKES_TEXT, screens=["main"])

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.use("editor")
            seen.app.post_message(events.Paste("aé\nb"))
            await seen.shows("typed aéenterb")

    run(main)


def test_a_long_paste_is_cut_and_says_so(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "editor", TAKES_TEXT, screens=["main"])

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.use("editor")
            seen.app.post_message(events.Paste("x" * LONGEST_PASTE + "y"))
            await seen.shows("typed " + "x" * LONGEST_PASTE)
            await seen.until(lambda: f"first {LONGEST_PASTE}" in seen.whole())
            assert "xy" not in seen.text

    run(main)


def test_a_paste_is_nothing_where_the_plugin_takes_no_text(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "echo", screens=["main"])

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.use("echo")
            seen.app.post_message(events.Paste("quit"))
            await seen.pilot.pause()
            await seen.press("k")
            await seen.shows("keys k")

    run(main)


def test_keys_on_a_page_about_trouble_are_lost_and_not_kept(run: Run, tmp_path: Path) -> None:
    body = """
    def render(params, m):
        reply(m, picture(params, "keys " + " ".join(keys))) if keys else fail(m, -32603, "no picture yet")
    """
    write_ainb_plugin(tmp_path, "odd", body, screens=["main"])

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.use("odd", "no picture yet")
            await seen.press("a", "b", "question_mark", "escape")
            assert seen.canvas.has_focus
            await seen.press("q")
            assert not seen.canvas.has_focus
            assert "no picture yet" in seen.text

    run(main)


def test_a_button_pressed_elsewhere_is_not_sent(run: Run, tmp_path: Path) -> None:
    body = """
    seen = []

    def handle_mouse(params):
        seen.append(params["mouse"]["kind"]["type"])

    def render(params, m):
        reply(m, picture(params, NAME, *seen, "keys " + " ".join(keys)))
    """
    write_ainb_plugin(tmp_path, "mouse", body, screens=["main"])

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.use("mouse")
            await seen.pilot.mouse_down("#top")
            await seen.pilot.mouse_up("#canvas")
            await seen.pilot.pause()
            seen.canvas.focus()
            await seen.press("k")
            await seen.shows("keys k")
            assert seen.lines[1] == "keys k"

    run(main)
