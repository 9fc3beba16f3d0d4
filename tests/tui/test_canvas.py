"""The canvas: frames, pages, keys and pastes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual import events

from plugbay.host.screens.keys import ALT, CTRL, SHIFT
from plugbay.tui.canvas import ESCAPES_IN_A_ROW, LONGEST_PASTE, UNANSWERED_ESCAPES, EscapeGuard, key_event, mouse_event
from tests.support.ainb import write_ainb_plugin
from tests.support.loops import Run
from tests.support.requirements import requirement
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


@requirement("ainb:tui-keys")
@pytest.mark.parametrize(
    ("key", "character", "code", "mods"),
    [
        ("a", "a", {"type": "char", "ch": "a"}, 0),
        ("A", "A", {"type": "char", "ch": "A"}, SHIFT),
        ("é", "é", {"type": "char", "ch": "é"}, 0),
        ("日", "日", {"type": "char", "ch": "日"}, 0),
        ("space", " ", {"type": "char", "ch": " "}, 0),
        ("plus", "+", {"type": "char", "ch": "+"}, 0),
        ("question_mark", "?", {"type": "char", "ch": "?"}, 0),
        ("ctrl+a", "\x01", {"type": "char", "ch": "a"}, CTRL),
        ("ctrl+backslash", "\x1c", {"type": "char", "ch": "\\"}, CTRL),
        ("ctrl+at", "\x00", {"type": "char", "ch": " "}, CTRL),
        ("alt+a", "a", {"type": "char", "ch": "a"}, ALT),
        ("alt+shift+a", "A", {"type": "char", "ch": "A"}, ALT | SHIFT),
        ("alt+minus", "-", {"type": "char", "ch": "-"}, ALT),
        ("enter", "\r", {"type": "enter"}, 0),
        ("tab", "\t", {"type": "tab"}, 0),
        ("shift+tab", None, {"type": "back_tab"}, SHIFT),
        ("escape", "\x1b", {"type": "esc"}, 0),
        ("backspace", "\x7f", {"type": "backspace"}, 0),
        ("delete", None, {"type": "delete"}, 0),
        ("pageup", None, {"type": "page_up"}, 0),
        ("pagedown", None, {"type": "page_down"}, 0),
        ("home", None, {"type": "home"}, 0),
        ("ctrl+shift+left", None, {"type": "left"}, CTRL | SHIFT),
        ("f12", None, {"type": "f", "n": 12}, 0),
        ("hyper+a", None, {"type": "char", "ch": "a"}, 0),
    ],
)
def test_a_key_as_textual_names_it(key: str, character: str | None, code: dict[str, Any], mods: int) -> None:
    assert key_event(key, character) == {"code": code, "mods": mods, "kind": "press"}


@pytest.mark.parametrize(("key", "character"), [("<ignore>", "\x1b[?1;2c"), ("volume_up", None), ("left_shift", None)])
def test_a_key_that_screens_do_not_know_is_none(key: str, character: str | None) -> None:
    assert key_event(key, character) is None


def happened(kind: type[events.MouseEvent], x: int = 3, y: int = 2, button: int = 0, **held: bool) -> events.MouseEvent:
    modifiers = {"shift": False, "meta": False, "ctrl": False, **held}
    return kind(None, x, y, 0, 0, button, modifiers["shift"], modifiers["meta"], modifiers["ctrl"])


@requirement("ainb:tui-mouse")
@pytest.mark.parametrize(
    ("kind", "button", "expected"),
    [
        (events.MouseDown, 1, {"type": "down", "button": {"type": "left"}}),
        (events.MouseDown, 2, {"type": "down", "button": {"type": "middle"}}),
        (events.MouseUp, 3, {"type": "up", "button": {"type": "right"}}),
        (events.MouseMove, 1, {"type": "drag", "button": {"type": "left"}}),
        (events.MouseScrollUp, 0, {"type": "scroll_up"}),
        (events.MouseScrollDown, 0, {"type": "scroll_down"}),
        (events.MouseScrollLeft, 0, {"type": "scroll_left"}),
        (events.MouseScrollRight, 0, {"type": "scroll_right"}),
    ],
)
def test_what_the_mouse_did(kind: type[events.MouseEvent], button: int, expected: dict[str, Any]) -> None:
    assert mouse_event(happened(kind, button=button), 80, 24) == {"kind": expected, "col": 3, "row": 2, "mods": 0}


def test_modifiers_of_the_mouse() -> None:
    event = mouse_event(happened(events.MouseDown, button=1, shift=True, meta=True, ctrl=True), 80, 24)
    assert event is not None
    assert event["mods"] == SHIFT | CTRL | ALT


def test_moving_without_a_button_is_not_sent() -> None:
    assert mouse_event(happened(events.MouseMove), 80, 24) is None
    assert mouse_event(happened(events.MouseDown, button=9), 80, 24) is None


@pytest.mark.parametrize(("x", "y", "col", "row"), [(-5, 2, 0, 2), (99, 2, 79, 2), (3, -1, 3, 0), (3, 24, 3, 23)])
def test_a_drag_that_leaves_the_screen_is_seen_at_its_edge(x: int, y: int, col: int, row: int) -> None:
    event = mouse_event(happened(events.MouseMove, x, y, button=1), 80, 24)
    assert event is not None
    assert (event["col"], event["row"]) == (col, row)


# Esc.


@requirement("ainb:tui-escape")
def test_an_unanswered_escape_is_the_plugins_three_times() -> None:
    guard = EscapeGuard()
    assert [guard.host_takes() for _ in range(UNANSWERED_ESCAPES + 1)] == [False, False, False, True]
    assert not guard.host_takes()


def test_escapes_that_are_answered_are_the_plugins_eight_times() -> None:
    guard = EscapeGuard()
    taken = []
    for _ in range(ESCAPES_IN_A_ROW + 1):
        taken.append(guard.host_takes())
        guard.frame_drawn()
    assert taken == [False] * ESCAPES_IN_A_ROW + [True]


def test_another_key_between_them_starts_the_row_anew() -> None:
    guard = EscapeGuard()
    for _ in range(3 * ESCAPES_IN_A_ROW):
        assert not guard.host_takes()
        guard.frame_drawn()
        guard.other_key()


def test_other_keys_do_not_answer_an_escape() -> None:
    guard = EscapeGuard()
    for _ in range(UNANSWERED_ESCAPES):
        assert not guard.host_takes()
        guard.other_key()
    assert guard.host_takes()
