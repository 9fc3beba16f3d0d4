"""The list of plugins: columns that are aligned, a cursor that stays."""

from __future__ import annotations

from textual.app import App, ComposeResult

from plugbay.tui.looks import THEME
from plugbay.tui.plugin_list import NAME_COLUMNS, PluginList, Row
from tests.support.loops import Run


class Shown(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.register_theme(THEME)
        self.plugins = PluginList()

    def compose(self) -> ComposeResult:
        yield self.plugins

    def lines(self) -> list[str]:
        return [str(option.prompt) for option in self.plugins.options]


def test_columns_are_aligned_whatever_the_names_are(run: Run) -> None:
    async def main() -> None:
        app = Shown()
        async with app.run_test():
            long, odd = Row("a" * 99, "kaged", "shutting_down"), Row("[b]", "?", "invalid")
            app.plugins.show([Row("日本", "rune", "idle"), long, odd])
            columns = [line.index(word) for line, word in zip(app.lines()[1:], ("kaged", "?"), strict=True)]
            assert columns == [2 + NAME_COLUMNS[1] + 1] * 2
            assert "…" in app.lines()[1]
            assert "[b]" in app.lines()[2]
            assert app.lines()[1].endswith("shutting down")

    run(main)


def test_a_change_of_state_leaves_the_cursor_where_it_is(run: Run) -> None:
    async def main() -> None:
        app = Shown()
        async with app.run_test():
            app.plugins.show([Row("one", "ainb", "idle"), Row("two", "ainb", "idle")])
            app.plugins.highlighted = 1
            app.plugins.show([Row("one", "ainb", "running"), Row("two", "ainb", "idle")])
            assert app.plugins.highlighted == 1
            assert "● one" in app.lines()[0]
            assert "○ two" in app.lines()[1]

    run(main)


def test_other_plugins_are_another_list(run: Run) -> None:
    async def main() -> None:
        app = Shown()
        async with app.run_test():
            app.plugins.show([Row("one", "ainb", "idle")])
            app.plugins.show([Row("one", "ainb", "idle"), Row("two", "ainb", "idle")])
            assert len(app.lines()) == 2
            app.plugins.show([])
            assert app.lines() == []

    run(main)
