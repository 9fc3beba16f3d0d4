"""`HelpScreen`: every key there is, over whatever else is shown.

Owns the table of keys for people. What the keys do is the app's and the canvas'.
"""

from __future__ import annotations

from typing import ClassVar

from rich.console import Group
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Static

from plugbay.tui.keys import ESCAPES_IN_A_ROW, UNANSWERED_ESCAPES
from plugbay.tui.looks import BLUE, GREY

IN_THE_LIST = {
    "↑ ↓": "choose a plugin",
    "Enter": "go to its screen",
    "← →": "another screen of the plugin",
    "r": "reload the plugin",
    "l": "show or hide its logs",
    "z": "give the screen all the room, or not",
    "p": "commands and screens",
    "?": "this page",
}

IN_A_SCREEN = {
    "Ctrl+O, F10": "back to the list, and from the list to the screen",
    "Ctrl+Q, Ctrl+C": "quit",
    "?": "this page, unless the plugin takes text",
    "Esc": f"the plugin's; the host's after {UNANSWERED_ESCAPES} without a new picture or {ESCAPES_IN_A_ROW} in a row",
    "all others": "the plugin's",
}


class HelpScreen(ModalScreen[None]):
    """Any of its keys closes it."""

    DEFAULT_CSS = """
    HelpScreen { align: center middle; background: $background 60%; }
    HelpScreen > Static {
        width: auto; max-width: 90%; height: auto; max-height: 90%;
        border: round $primary; background: $panel; padding: 1 2;
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,enter,q,space", "dismiss", "close")]

    def compose(self) -> ComposeResult:
        page = Group(_heading("in the list"), _keys(IN_THE_LIST), Text(), _heading("in a screen"), _keys(IN_A_SCREEN))
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
