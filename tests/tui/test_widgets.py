"""Tabs, plugin list, logs, footer, help and palette."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.app import App, ComposeResult
from textual.command import DiscoveryHit, Hit

from plugbay.host.journal import Note
from plugbay.tui.app import Terminal
from plugbay.tui.styles import THEME
from plugbay.tui.widgets import (
    LIST_KEYS,
    MAX_SHOWN,
    MAX_SHOWN_LINES,
    NAME_COLUMNS,
    SCREEN_KEYS,
    HelpScreen,
    KeysFooter,
    LogView,
    PaletteCommand,
    PluginList,
    Row,
    ScreenTabs,
    line,
    make_provider,
)
from tests.support.ainb import write_ainb_plugin
from tests.support.loops import Run
from tests.support.requirements import requirement
from tests.tui.conftest import Seen, terminal


class TabsApp(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.tabs = ScreenTabs()
        self.clicked: list[int] = []

    def compose(self) -> ComposeResult:
        yield self.tabs

    def on_screen_tabs_chosen(self, message: ScreenTabs.Chosen) -> None:
        self.clicked.append(message.index)


def test_a_click_means_the_tab_below_it(run: Run) -> None:
    async def main() -> None:
        app = TabsApp()
        async with app.run_test() as pilot:
            app.tabs.show(["one", "日本", "[b]"], 1)
            await pilot.pause()
            for x in (1, 5, 6, 7, 12, 14, 18, 40):
                await pilot.click(ScreenTabs, offset=(x, 0))
            assert app.clicked == [0, 0, 1, 1, 2, 2]

    run(main)


def test_a_single_screen_needs_no_tabs(run: Run) -> None:
    async def main() -> None:
        app = TabsApp()
        async with app.run_test():
            app.tabs.show(["one"], 0)
            assert not app.tabs.display
            app.tabs.show(["one", "two"], 0)
            assert app.tabs.display
            app.tabs.show([], 0)
            assert not app.tabs.display

    run(main)


class ListApp(App[None]):
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
        app = ListApp()
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
        app = ListApp()
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
        app = ListApp()
        async with app.run_test():
            app.plugins.show([Row("one", "ainb", "idle")])
            app.plugins.show([Row("one", "ainb", "idle"), Row("two", "ainb", "idle")])
            assert len(app.lines()) == 2
            app.plugins.show([])
            assert app.lines() == []

    run(main)


class LogApp(App[None]):
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


def test_notes_are_added_also_when_the_oldest_are_gone(run: Run) -> None:
    async def main() -> None:
        app = LogApp()
        async with app.run_test() as pilot:
            app.logs.show("p", [])
            await pilot.pause()
            assert "The log is empty" in app.lines()[0]
            app.logs.show("p", [note("one")])
            app.logs.show("p", [note("one")])
            app.logs.show("p", [note("one"), note("two")])
            assert [text.split()[-1] for text in app.lines()] == ["one", "two"]
            app.logs.show("p", [note("two"), note("three")])
            assert [text.split()[-1] for text in app.lines()] == ["one", "two", "three"]
            app.logs.show("p", [note("late"), note("three"), note("two")])
            assert [text.split()[-1] for text in app.lines()] == ["late", "three", "two"], "another order"

    run(main)


@requirement("host:log-flood")
def test_a_flood_is_bounded_and_says_what_is_left_out(run: Run) -> None:
    async def main() -> None:
        app = LogApp()
        async with app.run_test() as pilot:
            app.logs.show("p", [note("one")])
            await pilot.pause()
            app.logs.show("p", [note(f"line {number}") for number in range(1000)])
            shown = app.lines()
            assert shown[0].startswith("Lines before these came too fast")
            assert app.logs.border_subtitle == "600 lines dropped"
            assert shown[-1].endswith("line 999") and len(shown) <= MAX_SHOWN + 4
            mark = Note(0.0, "info", "stderr", "[plugbay] 41 lines dropped: too many, or the log could not be written")
            forged = Note(0.0, "info", "stderr", "[7] [plugbay] 999 lines dropped")
            app.logs.show("p", [note("line 999"), mark, forged])
            assert app.logs.border_subtitle == "641 lines dropped"
            app.logs.show("q", [note("line 1")])
            assert not app.logs.border_subtitle, "it is of another plugin"
            for number in range(1000, 1000 + 12 * MAX_SHOWN, MAX_SHOWN):
                app.logs.show("p", [note(f"line {number + more}") for more in range(-1, MAX_SHOWN)])
            assert len(app.lines()) <= MAX_SHOWN_LINES, "the view keeps the newest"

    run(main)


def test_another_plugin_has_its_own_notes(run: Run) -> None:
    async def main() -> None:
        app = LogApp()
        async with app.run_test() as pilot:
            app.logs.show("p", [note("one")])
            app.logs.show("q", [note("one"), note("other")])
            await pilot.pause()
            assert [text.split()[-1] for text in app.lines()] == ["one", "other"]

    run(main)


def last_line(seen: Seen) -> str:
    return seen.whole().splitlines()[-1]


def test_the_keys_are_those_that_work_where_one_is(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "echo", screens=["main"])

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.until(lambda: "z zoom" in last_line(seen))
            await seen.use("echo")
            await seen.until(lambda: "^o switch" in last_line(seen) and "z zoom" not in last_line(seen))
            await seen.press("ctrl+o")
            await seen.until(lambda: "z zoom" in last_line(seen))

    run(main)


def test_the_same_keys_stay_where_they_are(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "echo", screens=["main"])

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            footer = seen.app.query_one(KeysFooter)
            await seen.until(lambda: "z zoom" in last_line(seen))
            before = list(footer.children)
            seen.app.refresh_bindings()
            await seen.pilot.pause()
            assert list(footer.children) == before
            await seen.use("echo")
            await seen.until(lambda: footer.children and not {*footer.children} & {*before})

    run(main)


def test_keys_that_changed_while_the_window_was_behind_others_are_shown_later(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "echo", screens=["main"])

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.until(lambda: "z zoom" in last_line(seen))
            seen.app.app_focus = False
            seen.canvas.focus()
            await seen.pilot.pause()
            assert "z zoom" in last_line(seen)
            seen.app.app_focus = True
            seen.app.refresh_bindings()
            await seen.until(lambda: "z zoom" not in last_line(seen))

    run(main)


@pytest.mark.parametrize("key", ["escape", "enter", "question_mark"])
def test_it_opens_over_everything_and_closes_again(run: Run, tmp_path: Path, key: str) -> None:
    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.press("question_mark")
            await seen.until(lambda: isinstance(seen.app.screen, HelpScreen))
            await seen.until(lambda: "Ctrl+O" in seen.whole())
            await seen.press(key)
            await seen.until(lambda: not isinstance(seen.app.screen, HelpScreen))

    run(main)


def test_every_key_of_the_terminal_is_on_the_page() -> None:
    named = {"enter": "Enter", "left": "← →", "right": "← →", "question_mark": "?", "ctrl+o": "Ctrl+O"}
    named |= {"ctrl+q": "Ctrl+Q, Ctrl+C", "ctrl+c": "Ctrl+Q, Ctrl+C"}
    keys = [key for binding in Terminal.BINDINGS for key in binding.key.split(",")]  # type: ignore[union-attr]
    assert keys
    assert [key for key in keys if named.get(key, key) not in {**LIST_KEYS, **SCREEN_KEYS}] == []


def test_all_commands_are_offered_and_matches_are_found(run: Run) -> None:
    async def main() -> None:
        done: list[str] = []
        offers = [
            PaletteCommand("tidy [up]", "a [red]command[/]", lambda: done.append("tidy")),
            PaletteCommand("quit", "", lambda: None),
        ]
        app: App[None] = App()
        async with app.run_test():
            provider = make_provider(offers)(app.screen)
            every = [hit async for hit in provider.discover()]
            assert [hit.text for hit in every] == ["tidy [up]", "quit"]
            found = [hit async for hit in provider.search("tidy")]
            assert [hit.text for hit in found] == ["tidy [up]"]
            (hit,) = found
            assert isinstance(hit, Hit)
            hit.command()
            assert done == ["tidy"]
            assert isinstance(every[0], DiscoveryHit)
            assert str(every[0].display) == "tidy [up]"
            assert [hit async for hit in provider.search("zzz")] == []

    run(main)
