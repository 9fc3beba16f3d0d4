"""Converts Textual's key and mouse events to those of screens, and decides who gets Esc. Pure.

`EscapeGuard` makes sure that Esc leaves a screen that hangs or ignores it.
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
"""Presses of Esc without a new frame; the next one goes to the host."""

ESCAPES_IN_A_ROW = 8
"""Consecutive presses of Esc; the next one goes to the host."""


def key_event(key: str, character: str | None) -> dict[str, Any] | None:
    """The event for a key in Textual's naming; None for unknown keys."""
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
    """The event for a mouse action on a screen of this size; None for actions that screens do not receive.

    A drag that ends outside is reported at the edge: otherwise the plugin would wait for its end for ever.
    """
    kind: dict[str, Any]
    if type(event) in SCROLLS:
        kind = {"type": SCROLLS[type(event)]}
    elif type(event) in PRESSES and event.button in BUTTONS:
        kind = {"type": PRESSES[type(event)], "button": {"type": BUTTONS[event.button]}}
    else:
        return None
    mods = SHIFT * event.shift | CTRL * event.ctrl | ALT * event.meta
    return {"kind": kind, "col": _clamp(event.x, width), "row": _clamp(event.y, height), "mods": mods}


def _clamp(place: int, size: int) -> int:
    return max(0, min(place, size - 1))


class EscapeGuard:
    """Decides whether the plugin or the host gets an Esc."""

    def __init__(self) -> None:
        self._unanswered = 0
        self._in_a_row = 0

    def host_takes(self) -> bool:
        """Whether the host takes this Esc; if so, the counters are reset."""
        if self._unanswered >= UNANSWERED_ESCAPES or self._in_a_row >= ESCAPES_IN_A_ROW:
            self._unanswered = self._in_a_row = 0
            return True
        self._unanswered += 1
        self._in_a_row += 1
        return False

    def other_key(self) -> None:
        self._in_a_row = 0

    def frame_drawn(self) -> None:
        """The plugin drew a new frame."""
        self._unanswered = 0
