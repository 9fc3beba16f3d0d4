"""Widgets of the terminal app: tabs, plugin list, logs, key footer, help and command palette.

They show the data they are given and know no host. Text of plugins is never interpreted as markup.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.widgets import Footer, OptionList, RichLog, Static
from textual.widgets.option_list import Option

from plugbay.host.journal import Note
from plugbay.process.stderr import HOST_TAG
from plugbay.tui.canvas import ESCAPES_IN_A_ROW, UNANSWERED_ESCAPES
from plugbay.tui.styles import BLUE, GREY, LEVELS, SIGNS, fit, safe, state_text

GAP = " "

NAME_COLUMNS = (10, 24)
"""Minimum and maximum width of the name column."""

CONTRACT_COLUMNS = 5
STATE_COLUMNS = 13
OTHER_COLUMNS = 2 + 1 + CONTRACT_COLUMNS + 1 + STATE_COLUMNS
"""Width of everything but the name."""

FRAME_COLUMNS = 4
"""Border and padding."""

LEVEL_COLUMNS = 5

MAX_SHOWN = 400
"""Notes that are drawn at once: a flood must not keep the app from its keys."""

MAX_SHOWN_LINES = 4000
"""Lines of the log view; the log itself has more."""

GAP_TEXT = Text("Lines before these came too fast and are not shown here; plugbay logs has them.", style=GREY)

_DROPPED = re.compile(rf"{re.escape(HOST_TAG)} (\d{{1,18}}) lines dropped")

EMPTY = Text("The log is empty.", style=GREY)

LIST_KEYS = {
    "↑ ↓": "select a plugin",
    "Enter": "open its screen",
    "← →": "select another screen of the plugin",
    "c": "call a tool of the plugin",
    "g": "grant capabilities that it requests",
    "r": "reload the plugin: restart it after its calls",
    "R": "restart the plugin at once",
    "s": "start or stop the plugin",
    "l": "show or hide its logs",
    "z": "enlarge the screen, or restore its size",
    "p": "open the command palette",
    "?": "show this page",
}

SCREEN_KEYS = {
    "Ctrl+O": "switch between list and screen",
    "Ctrl+Q, Ctrl+C": "quit",
    "Esc": f"goes to the plugin; leaves after {UNANSWERED_ESCAPES} without a new frame or {ESCAPES_IN_A_ROW} in a row",
    "other keys": "go to the plugin",
}


class ScreenTabs(Static):
    """The screens of one plugin on one line; hidden if there is only one."""

    DEFAULT_CSS = """
    ScreenTabs { height: 1; padding: 0 1; }
    """

    class Chosen(Message):
        """A screen was clicked."""

        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

    def __init__(self) -> None:
        super().__init__(id="tabs", markup=False)
        self.names: tuple[str, ...] = ()
        self.chosen = 0

    def show(self, names: Sequence[str], chosen: int) -> None:
        """Show these screens, one of them chosen."""
        if (tuple(names), chosen) != (self.names, self.chosen):
            self.names, self.chosen = tuple(names), chosen
            self.display = len(self.names) > 1
            self.update(Text(GAP).join(self._tab(index) for index in range(len(self.names))))

    def _tab(self, index: int) -> Text:
        style = f"bold reverse {BLUE}" if index == self.chosen else GREY
        return Text(f" {safe(self.names[index])} ", style=style)

    def on_click(self, event: events.Click) -> None:
        left = 0
        x = event.x - self.styles.padding.left
        for index in range(len(self.names)):
            right = left + self._tab(index).cell_len
            if left <= x < right:
                self.post_message(self.Chosen(index))
            left = right + len(GAP)


class Row(NamedTuple):
    """One plugin."""

    name: str
    contract: str
    state: str


class PluginList(OptionList):
    """One plugin per line with contract and state; Enter opens its screen."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select", "open", show=False)]

    def __init__(self) -> None:
        super().__init__(id="plugins", markup=False)
        self.border_title = "plugins"
        self._rows: list[Row] = []

    def show(self, rows: Sequence[Row]) -> None:
        """Update only changed lines, so that the cursor stays."""
        old, self._rows = self._rows, list(rows)
        if [row.name for row in old] != [row.name for row in rows]:
            at = self.highlighted
            self._show_all(old[at].name if at is not None and at < len(old) else None)
            return
        for index, (before, now) in enumerate(zip(old, rows, strict=True)):
            if before != now:
                self.replace_option_prompt_at_index(index, self._line(now))

    def _show_all(self, selected: str | None) -> None:
        self.styles.width = self._name_columns + OTHER_COLUMNS + FRAME_COLUMNS
        self.clear_options()
        self.add_options([Option(self._line(row)) for row in self._rows])
        names = [row.name for row in self._rows]
        if names:
            self.highlighted = names.index(selected) if selected in names else 0

    @property
    def _name_columns(self) -> int:
        least, most = NAME_COLUMNS
        return max(least, min(most, max((len(safe(row.name)) for row in self._rows), default=0)))

    def _line(self, row: Row) -> Text:
        look = SIGNS[row.state]
        return Text.assemble(
            (look.symbol + " ", look.colour),
            fit(safe(row.name), self._name_columns),
            " ",
            (row.contract.ljust(CONTRACT_COLUMNS) + " ", GREY),
            (state_text(row.state).ljust(STATE_COLUMNS), look.colour),
            no_wrap=True,
        )


class LogView(RichLog, can_focus=True):
    """The log of one plugin, newest last."""

    def __init__(self) -> None:
        super().__init__(
            id="logs",
            wrap=True,
            markup=False,
            highlight=False,
            auto_scroll=True,
            min_width=0,
            max_lines=MAX_SHOWN_LINES,
        )
        self.border_title = "logs"
        self._shown: tuple[str, list[Note]] | None = None
        self._dropped = 0
        """Lines that are known to be missing: in the log itself, or only here."""

    def show(self, plugin_id: str, notes: Sequence[Note]) -> None:
        """Show these notes, at most the newest `MAX_SHOWN`; append if they continue the ones shown."""
        wanted = (plugin_id, list(notes))
        if wanted == self._shown:
            return
        known = self._shown[1] if self._shown is not None and self._shown[0] == plugin_id else []
        if self._shown is None or self._shown[0] != plugin_id:
            self._dropped = 0
        self._shown = wanted
        fresh = _continue(known, wanted[1])
        if fresh is None:
            self.clear()
            if known and known[-1] not in wanted[1]:
                self.write(GAP_TEXT)
                self._dropped += _count_dropped(wanted[1]) + max(0, len(wanted[1]) - MAX_SHOWN)
            fresh = wanted[1][-MAX_SHOWN:]
        else:
            self._dropped += _count_dropped(fresh) + max(0, len(fresh) - MAX_SHOWN)
        self.border_subtitle = f"{self._dropped:,} lines dropped" if self._dropped else ""
        for note in fresh[-MAX_SHOWN:]:
            self.write(line(note))
        if not notes:
            self.write(EMPTY)


def _count_dropped(notes: Sequence[Note]) -> int:
    """The lines that the host left out of the log, as it says there. Lines of a plugin begin with its process."""
    marks = [_DROPPED.match(note.text) for note in notes if note.kind == "stderr"]
    return sum(int(mark[1]) for mark in marks if mark)


def _continue(known: list[Note], wanted: list[Note]) -> list[Note] | None:
    """The notes after the known ones, of which the oldest may be gone; None if they do not follow them."""
    if not known:
        return None
    for at in range(len(wanted) - 1, -1, -1):
        if wanted[at] == known[-1]:
            kept = min(at + 1, len(known))
            return wanted[at + 1 :] if wanted[at + 1 - kept : at + 1] == known[-kept:] else None
    return None


def line(note: Note) -> Text:
    """One note as one paragraph."""
    at = time.strftime("%H:%M:%S", time.localtime(note.at))
    kind = "" if note.kind == f"log.{note.level}" else safe(note.kind) + "  "
    return Text.assemble(
        (at + "  ", GREY),
        (note.level.ljust(LEVEL_COLUMNS) + "  ", LEVELS.get(note.level, GREY)),
        (kind, GREY),
        safe(note.text),
    )


class KeysFooter(Footer):
    """Textual's footer, rebuilt only when its keys change. Textual signals a change with every focus and layout change,
    about thirty times while one screen is opened and left.
    """

    def __init__(self) -> None:
        super().__init__(show_command_palette=False)
        self._keys: object = None
        """The keys shown."""

    def bindings_changed(self, screen: Screen[object]) -> None:
        keys = [(binding, enabled) for _, binding, enabled, _ in screen.active_bindings.values() if binding.show]
        if keys == self._keys:
            return
        if screen.app.app_focus:  # without focus the footer does not update
            self._keys = keys
        super().bindings_changed(screen)


class HelpScreen(ModalScreen[None]):
    """All keys, over the rest of the app; any of its own keys closes it."""

    DEFAULT_CSS = """
    HelpScreen { align: center middle; background: $background 60%; }
    HelpScreen > Static {
        width: auto; max-width: 90%; height: auto; max-height: 90%;
        border: round $primary; background: $panel; padding: 1 2;
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,enter,q,space", "dismiss", "close")]

    def compose(self) -> ComposeResult:
        page = Group(_heading("in the list"), _keys(LIST_KEYS), Text(), _heading("in a screen"), _keys(SCREEN_KEYS))
        box = Static(page, markup=False)
        box.border_title = "keys"
        box.border_subtitle = "Esc closes"
        yield box


def _heading(text: str) -> Text:
    return Text(text, style=GREY)


def _keys(table: dict[str, str]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(width=14, style=f"bold {BLUE}", no_wrap=True)
    grid.add_column()
    for key, text in table.items():
        grid.add_row(key, text)
    return grid


class PaletteCommand(NamedTuple):
    """One command of the palette."""

    name: str
    about: str
    do: Callable[[], Any]


def make_provider(commands: Sequence[PaletteCommand]) -> type[Provider]:
    """A provider of these commands."""

    class Commands(Provider):
        async def discover(self) -> Hits:
            for command in commands:
                yield DiscoveryHit(Content(safe(command.name)), command.do, safe(command.name), _help(command))

        async def search(self, query: str) -> Hits:
            matcher = self.matcher(query)
            for command in commands:
                name = safe(command.name)
                score = matcher.match(name)
                if score > 0:
                    yield Hit(score, matcher.highlight(name), command.do, text=name, help=_help(command))

    return Commands


def _help(command: PaletteCommand) -> str:
    """Escape the help text: the palette interprets it as markup."""
    return Content(safe(command.about)).markup
