"""Logs: notes in order, as text, without writing anything twice."""

from __future__ import annotations

from textual.app import App, ComposeResult

from plugbay.host.journal import Note
from plugbay.tui.logs import LogView, line
from tests.support.loops import Run


class Shown(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.logs = LogView()

    def compose(self) -> ComposeResult:
        yield self.logs

    def lines(self) -> list[str]:
        return [strip.text.rstrip() for strip in self.logs.lines]


def note(text: str, level: str = "info") -> Note:
    return Note(0.0, level, "log", text)


def test_a_note_is_one_line_of_text() -> None:
    text = line(note("[red]x[/]\x1b[2J", "warn")).plain
    assert text.endswith("  warn   log  [red]x[/]\\x1b[2J")
    assert text[2] == text[5] == ":"


def test_what_a_plugin_logs_does_not_name_its_level_twice() -> None:
    assert line(Note(0.0, "info", "log.info", "well")).plain.endswith("  info   well")


def test_notes_are_added_and_replaced_when_the_oldest_are_gone(run: Run) -> None:
    async def main() -> None:
        app = Shown()
        async with app.run_test() as pilot:
            app.logs.show("p", [])
            await pilot.pause()
            assert "Nothing has been logged" in app.lines()[0]
            app.logs.show("p", [note("one")])
            app.logs.show("p", [note("one")])
            app.logs.show("p", [note("one"), note("two")])
            assert [text.split()[-1] for text in app.lines()] == ["one", "two"]
            app.logs.show("p", [note("two"), note("three")])
            assert [text.split()[-1] for text in app.lines()] == ["two", "three"]

    run(main)


def test_another_plugin_has_its_own_notes(run: Run) -> None:
    async def main() -> None:
        app = Shown()
        async with app.run_test() as pilot:
            app.logs.show("p", [note("one")])
            app.logs.show("q", [note("one"), note("other")])
            await pilot.pause()
            assert [text.split()[-1] for text in app.lines()] == ["one", "other"]

    run(main)
