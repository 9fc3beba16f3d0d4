"""`LogView`: what a plugin wrote and what the host noted about it, newest last.

Owns how a note looks. Is told what to show; knows no host.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.text import Text
from textual.widgets import RichLog

from plugbay.host.journal import Note
from plugbay.tui.looks import GREY, LEVELS, safe

LEVEL_COLUMNS = 5

EMPTY = Text("Nothing has been logged yet.", style=GREY)


class LogView(RichLog, can_focus=True):
    """The notes of one plugin."""

    def __init__(self) -> None:
        super().__init__(id="logs", wrap=True, markup=False, highlight=False, auto_scroll=True)
        self.border_title = "logs"
        self._shown: tuple[str, list[Note]] | None = None

    def show(self, plugin_id: str, notes: Sequence[Note]) -> None:
        """These notes; the ones that are shown already stay where they are."""
        wanted = (plugin_id, list(notes))
        if wanted == self._shown:
            return
        known = self._shown[1] if self._shown is not None and self._shown[0] == plugin_id else []
        self._shown = wanted
        if not known or known != wanted[1][: len(known)]:
            self.clear()
            known = []
        for note in wanted[1][len(known) :]:
            self.write(line(note))
        if not notes:
            self.write(EMPTY)


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
