"""`Canvas`: the widget that shows a plugin's screen, and converts Textual's keys and mouse events for it.

Frames are requested at exactly the widget's size and drawn cell by cell. A `Painter` provides the frames; the app
handles keys of the host. `EscapeGuard` makes sure that Esc leaves a screen that hangs or ignores it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar

from rich.console import RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
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
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from plugbay.host.screens.keys import ALT, CTRL, MODIFIERS, SHIFT, parse_key
from plugbay.tui import pages, picture
from plugbay.tui.driver import KeyHeld
from plugbay.tui.painter import FRAME_SECONDS, Painter
from plugbay.tui.styles import AMBER, GREY, safe

LONGEST_PASTE = 64
"""Characters of one paste that become key events; no more can be queued for a plugin."""

HOST_KEYS = frozenset({"ctrl+o", "ctrl+q", "ctrl+c"})
"""Keys that no plugin gets."""

STUCK = " Not responding; this is its last frame.   r reloads   Esc leaves "


class Canvas(Widget, can_focus=True):
    """One plugin's screen."""

    DEFAULT_CSS: ClassVar[str] = """
    Canvas { width: 1fr; height: 1fr; background: $surface; color: $foreground; }
    """

    painter: reactive[Painter | None] = reactive(None)

    def __init__(self) -> None:
        super().__init__(id="canvas")
        self._guard = EscapeGuard()
        self._situation: object = None
        self._pressed = False
        """Whether a mouse button went down here and is not up yet."""
        self._page: tuple[object, list[Strip]] = (None, [])

    def on_mount(self) -> None:
        self.set_interval(FRAME_SECONDS, self._tick)

    def watch_painter(self, painter: Painter | None) -> None:
        self._guard = EscapeGuard()
        if painter is not None and painter.failure is None:
            painter.request_again()
        self._tick()

    def _tick(self) -> None:
        if self.painter is not None and self.is_on_screen:
            self.painter.tick(self.size.width, self.size.height, asyncio.get_running_loop().time())
            self._follow(self.painter)

    def _follow(self, painter: Painter) -> None:
        """Redraw the text page when its content changed."""
        situation = (painter.broken, painter.stuck, painter.status().state if painter.broken else None)
        if situation != self._situation:
            self._situation = situation
            self.refresh()
            self.refresh_bindings()

    def painter_changed(self, painter: Painter) -> None:
        """Redraw after a painter has a new frame or failure."""
        if painter is self.painter:
            if painter.failure is None:
                self._guard.frame_drawn()
            self.refresh()

    # Drawing.

    def render_line(self, y: int) -> Strip:
        width, base = self.size.width, self.rich_style
        painter = self.painter
        if painter is None:
            return Strip.blank(width, base)
        if painter.broken is not None or painter.frame is None:
            return self._page_line(painter, y)
        if painter.stuck and y == self.size.height - 1:
            return self._notice()
        cells = picture.row(painter.frame, y) if y < painter.frame.height else []
        return Strip(cells).apply_style(base).adjust_cell_length(width, base)

    def _notice(self) -> Strip:
        style = Style(color="#0f1218", bgcolor=AMBER, bold=True)
        return Strip([Segment(STUCK, style)]).adjust_cell_length(self.size.width, style)

    def _page_line(self, painter: Painter, y: int) -> Strip:
        """One line of the page that replaces a frame; the layout is cached."""
        status, failure = painter.status(), painter.broken
        about = (painter.screen.name, status.state, failure, painter.stuck, painter.held, self.size)
        if self._page[0] != about:
            waiting = Text(_waiting(painter), style=GREY)
            page = waiting if failure is None else pages.failure_page(status, failure, self.size.height)
            self._page = (about, self._laid_out(page))
        lines = self._page[1]
        return lines[y] if y < len(lines) else Strip.blank(self.size.width, self.rich_style)

    def _laid_out(self, page: RenderableType) -> list[Strip]:
        """The lines of a page, with a margin of two columns and one line."""
        base, width = self.rich_style, self.size.width
        options = self.app.console.options.update(width=max(1, width - 4), height=None)
        lines = self.app.console.render_lines(page, options, style=base, pad=True)
        strips = [Strip([Segment("  ", base), *line]).adjust_cell_length(width, base) for line in lines]
        return [Strip.blank(width, base), *strips]

    # Keys and mouse.

    @property
    def without_screen(self) -> bool:
        """Whether there is no screen to send keys to; then some keys belong to the host."""
        return self.painter is not None and (self.painter.broken is not None or self.painter.stuck)

    async def on_key(self, event: events.Key) -> None:
        """Handles every key except the app's priority keys; nearly all go to the plugin."""
        event.stop()
        event.prevent_default()
        painter = self.painter
        if painter is None:
            return
        action = self._host_action(event)
        if action is not None:
            await self.run_action(action)
        elif painter.broken is None:
            pressed = key_event(event.key, event.character)
            if pressed is not None:
                painter.press(pressed)
                self._tick()

    def hold_key(self, event: KeyHeld) -> None:
        """Send a held or released key to the plugin. Keys of the host do nothing here."""
        pressed = key_event(event.key, event.character)
        if self.painter is None or self.without_screen or pressed is None or event.key in HOST_KEYS:
            return
        self.painter.press({**pressed, "kind": event.kind})
        self._tick()

    def _host_action(self, event: events.Key) -> str | None:
        """The host's action for this key; None: the key goes to the plugin."""
        if event.key == "escape":
            return "app.list" if self.without_screen or self._guard.host_takes() else None
        self._guard.other_key()
        own = {"r": "app.reload", "q": "app.list", "question_mark": "app.help"}
        return own.get(event.key) if self.without_screen else None

    def on_paste(self, event: events.Paste) -> None:
        """Paste text as keys, if the plugin accepts text."""
        event.stop()
        painter = self.painter
        if painter is None or not painter.captures_text:
            return
        for character in event.text[:LONGEST_PASTE]:
            pressed = key_event("enter" if character == "\n" else character, None)
            if pressed is not None:
                painter.press(pressed)
        if len(event.text) > LONGEST_PASTE:
            self.notify(f"Only the first {LONGEST_PASTE} characters were pasted.", severity="warning", markup=False)
        self._tick()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        self.capture_mouse()
        self._pressed = True
        self._use_mouse(event)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._pressed:
            self._use_mouse(event)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """A release is sent only if the button was pressed here."""
        self.release_mouse()
        if self._pressed:
            self._pressed = False
            self._use_mouse(event)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._use_mouse(event)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._use_mouse(event)

    def on_mouse_scroll_left(self, event: events.MouseScrollLeft) -> None:
        self._use_mouse(event)

    def on_mouse_scroll_right(self, event: events.MouseScrollRight) -> None:
        self._use_mouse(event)

    def _use_mouse(self, event: events.MouseEvent) -> None:
        event.stop()
        used = mouse_event(event, self.size.width, self.size.height)
        if self.painter is not None and self.painter.broken is None and used is not None:
            self.painter.mouse(used)
            self._tick()


def _waiting(painter: Painter) -> str:
    name = safe(painter.screen.plugin_id)
    if painter.held:
        return f"{name} is being reloaded …"
    return f"{name} does not respond.   r reloads   Esc goes to the list" if painter.stuck else f"{name} is starting …"


# Events.

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
