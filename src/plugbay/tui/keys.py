"""What a person does at the terminal, in the words of a screen: keys, the mouse, and whose an Esc is.

Owns the way from Textual's names to key and mouse events, and the guard that keeps Esc from being swallowed by a plugin
that does not care. Pure; knows no widget and no plugin.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from textual.events import (
    MouseDown,
    MouseEvent,
    MouseMove,
    MouseScrollDown,
    MouseScrollLeft,
    MouseScrollRight,
    MouseScrollUp,
    MouseUp,
)
from textual.keys import REPLACED_KEYS, key_to_character

from plugbay.host.screens.keys import ALT, CTRL, MODIFIERS, SHIFT, parse_key

BUTTONS: Mapping[int, str] = {1: "left", 2: "middle", 3: "right"}

SCROLLS: Mapping[type[MouseEvent], str] = {
    MouseScrollUp: "scroll_up",
    MouseScrollDown: "scroll_down",
    MouseScrollLeft: "scroll_left",
    MouseScrollRight: "scroll_right",
}

PRESSES: Mapping[type[MouseEvent], str] = {MouseDown: "down", MouseUp: "up", MouseMove: "drag"}

UNANSWERED_ESCAPES = 3
"""Presses of Esc without a new picture; whoever presses it once more wants out of a screen that hangs."""

ESCAPES_IN_A_ROW = 8
"""Presses of Esc and nothing else; whoever presses it once more wants out of a screen that does not care."""


def key_event(key: str, character: str | None) -> dict[str, Any] | None:
    """The event for a key as Textual names it; None for one that screens do not know."""
    *held, name = key.split("+")
    modifiers = [modifier for modifier in held if modifier in MODIFIERS]
    if "ctrl" in held and name == "at":
        name = "space"  # terminals send the same byte for both
    typed = (None if held else character) or key_to_character(REPLACED_KEYS.get(name, name))
    last = typed if typed is not None and typed.isprintable() else name
    try:
        return parse_key("+".join([*modifiers, last]))
    except ValueError:
        return None


def mouse_event(event: MouseEvent, width: int, height: int) -> dict[str, Any] | None:
    """The event for what the mouse did on a screen of this size; None for what screens are not told.

    A drag may leave the screen and end outside of it; the plugin sees it at the edge, for it would otherwise wait for
    the end of it for ever.
    """
    kind: dict[str, Any]
    if type(event) in SCROLLS:
        kind = {"type": SCROLLS[type(event)]}
    elif type(event) in PRESSES and event.button in BUTTONS:
        kind = {"type": PRESSES[type(event)], "button": {"type": BUTTONS[event.button]}}
    else:
        return None
    mods = SHIFT * event.shift | CTRL * event.ctrl | ALT * event.meta
    return {"kind": kind, "col": _within(event.x, width), "row": _within(event.y, height), "mods": mods}


def _within(place: int, size: int) -> int:
    return max(0, min(place, size - 1))


class EscapeGuard:
    """Decides whose an Esc is: the plugin's, until it is plain that the plugin will not let go."""

    def __init__(self) -> None:
        self._unanswered = 0
        self._in_a_row = 0

    def is_hosts(self) -> bool:
        """Esc was pressed: whether the host takes it. Then it starts counting anew."""
        if self._unanswered >= UNANSWERED_ESCAPES or self._in_a_row >= ESCAPES_IN_A_ROW:
            self._unanswered = self._in_a_row = 0
            return True
        self._unanswered += 1
        self._in_a_row += 1
        return False

    def other_key(self) -> None:
        self._in_a_row = 0

    def drawn(self) -> None:
        """The plugin answered with a picture."""
        self._unanswered = 0
