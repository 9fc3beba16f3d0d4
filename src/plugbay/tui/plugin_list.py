"""`PluginList`: every plugin on a line of its own, with its contract and its state.

Owns the columns. Is told what to show; knows no host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from plugbay.tui.looks import GREY, SIGNS, clipped, safe, words

NAME_COLUMNS = (10, 24)
"""At least and at most: names decide how wide the list is, and what it takes is taken from screens."""

CONTRACT_COLUMNS = 5
STATE_COLUMNS = 13
OTHER_COLUMNS = 2 + 1 + CONTRACT_COLUMNS + 1 + STATE_COLUMNS
"""Everything but the name: the sign, two columns with their gaps."""

FRAME_COLUMNS = 4
"""The border and a blank on either side."""


class Row(NamedTuple):
    """One plugin."""

    name: str
    contract: str
    state: str


class PluginList(OptionList):
    """A list to walk through; each step shows the plugin, Enter goes to its screen."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select", "open")]

    def __init__(self) -> None:
        super().__init__(id="plugins", markup=False)
        self.border_title = "plugins"
        self._rows: list[Row] = []

    def show(self, rows: Sequence[Row]) -> None:
        """Replace what has changed, and only that, so that the cursor stays where it is."""
        old, self._rows = self._rows, list(rows)
        if [row.name for row in old] != [row.name for row in rows]:
            self._show_all()
            return
        for index, (before, now) in enumerate(zip(old, rows, strict=True)):
            if before != now:
                self.replace_option_prompt_at_index(index, self._line(now))

    def _show_all(self) -> None:
        self.styles.width = self._name_columns + OTHER_COLUMNS + FRAME_COLUMNS
        self.clear_options()
        self.add_options([Option(self._line(row)) for row in self._rows])
        if self._rows:
            self.highlighted = 0

    @property
    def _name_columns(self) -> int:
        least, most = NAME_COLUMNS
        return max(least, min(most, max((len(safe(row.name)) for row in self._rows), default=0)))

    def _line(self, row: Row) -> Text:
        look = SIGNS[row.state]
        return Text.assemble(
            (look.symbol + " ", look.colour),
            clipped(safe(row.name), self._name_columns),
            " ",
            (row.contract.ljust(CONTRACT_COLUMNS) + " ", GREY),
            (words(row.state).ljust(STATE_COLUMNS), look.colour),
            no_wrap=True,
        )
