"""Keys and the mouse by name, as they come and as they are asked for."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.sdk.screens.inputs import ALT, CTRL, NAMED, SHIFT, SUPER, Key, canonical, key, mouse
from tests.support.requirements import requirement


def char(ch: str) -> dict[str, Any]:
    return {"type": "char", "ch": ch}


@requirement("ainb:sdk-keys")
@pytest.mark.parametrize(
    ("code", "mods", "name", "types"),
    [
        (char("a"), 0, "a", "a"),
        (char("A"), SHIFT, "A", "A"),
        (char("a"), SHIFT, "A", "a"),
        (char("é"), 0, "é", "é"),
        (char("ß"), SHIFT, "ß", "ß"),
        (char("?"), SHIFT, "?", "?"),
        (char("+"), 0, "+", "+"),
        (char(" "), 0, "space", " "),
        (char(" "), SHIFT, "space", " "),
        (char("a"), CTRL, "ctrl+a", None),
        (char("a"), CTRL | SHIFT, "ctrl+A", None),
        (char("x"), SUPER | ALT | CTRL, "ctrl+alt+super+x", None),
        ({"type": "enter"}, 0, "enter", None),
        ({"type": "page_up"}, SHIFT, "shift+page_up", None),
        ({"type": "tab"}, 0, "tab", None),
        ({"type": "back_tab"}, 0, "shift+tab", None),
        ({"type": "back_tab"}, SHIFT, "shift+tab", None),
        ({"type": "f", "n": 5}, CTRL, "ctrl+f5", None),
        ({"type": "media_play"}, 0, "media_play", None),
        ({"type": "char"}, 0, "char", None),
    ],
)
def test_a_key_has_one_name(code: dict[str, Any], mods: int, name: str, types: str | None) -> None:
    assert key({"code": code, "mods": mods, "kind": "repeat"}) == Key(name, types, mods, "repeat")


@requirement("ainb:sdk-keys")
def test_what_a_host_leaves_out_is_a_plain_press() -> None:
    assert key({"code": {"type": "esc"}}) == Key("esc", None, 0, "press")


@requirement("ainb:sdk-keys")
@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("a", "a"),
        ("A", "A"),
        ("shift+a", "A"),
        ("+", "+"),
        (" ", "space"),
        ("Space", "space"),
        ("ctrl++", "ctrl++"),
        ("Ctrl+A", "ctrl+A"),
        ("alt+ctrl+a", "ctrl+alt+a"),
        ("ctrl+ctrl+a", "ctrl+a"),
        ("escape", "esc"),
        ("Return", "enter"),
        ("PageUp", "page_up"),
        ("back_tab", "shift+tab"),
        ("shift+tab", "shift+tab"),
        ("super+f12", "super+f12"),
        ("é", "é"),
        *((name, name) for name in NAMED),
    ],
)
def test_a_name_may_be_written_in_several_ways(written: str, name: str) -> None:
    assert canonical(written) == name


@pytest.mark.parametrize("written", ["", "ctl+a", "ctrl+", "pg_up", "ctrl+ab", "f36", "f0", "a+b", "ctrl+hyper+a"])
def test_a_name_that_no_key_has_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="no key is called"):
        canonical(written)


@requirement("ainb:sdk-mouse")
def test_the_mouse_has_a_kind_a_button_and_a_place() -> None:
    pressed = mouse({"kind": {"type": "down", "button": {"type": "left"}}, "col": 7, "row": 2, "mods": CTRL})
    assert (pressed.kind, pressed.button, pressed.x, pressed.y, pressed.mods) == ("down", "left", 7, 2, CTRL)
    scrolled = mouse({"kind": {"type": "scroll_up"}, "col": 0, "row": 0})
    assert (scrolled.kind, scrolled.button, scrolled.mods) == ("scroll_up", None, 0)
