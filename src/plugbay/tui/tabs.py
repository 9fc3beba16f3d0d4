"""`ScreenTabs`: the screens of one plugin in a row, one of them chosen.

Owns how they look and which one a click means. Is told what to show; knows no host.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import Static

from plugbay.tui.looks import BLUE, GREY, safe

GAP = " "


class ScreenTabs(Static):
    """One line. Hidden where there is nothing to choose."""

    DEFAULT_CSS = """
    ScreenTabs { height: 1; padding: 0 1; }
    """

    class Chosen(Message):
        """A person clicked on a screen."""

        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

    def __init__(self) -> None:
        super().__init__(id="tabs", markup=False)
        self.names: tuple[str, ...] = ()
        self.chosen = 0

    def show(self, names: Sequence[str], chosen: int) -> None:
        """These screens, one of them chosen."""
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
