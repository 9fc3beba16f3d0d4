"""The tabs: one for each screen, hidden where there is no choice."""

from __future__ import annotations

from textual.app import App, ComposeResult

from plugbay.tui.tabs import ScreenTabs
from tests.support.loops import Run


class Shown(App[None]):
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
        app = Shown()
        async with app.run_test() as pilot:
            app.tabs.show(["one", "日本", "[b]"], 1)
            await pilot.pause()
            for x in (1, 5, 6, 7, 12, 14, 18, 40):
                await pilot.click(ScreenTabs, offset=(x, 0))
            assert app.clicked == [0, 0, 1, 1, 2, 2]

    run(main)


def test_a_single_screen_needs_no_tabs(run: Run) -> None:
    async def main() -> None:
        app = Shown()
        async with app.run_test():
            app.tabs.show(["one"], 0)
            assert not app.tabs.display
            app.tabs.show(["one", "two"], 0)
            assert app.tabs.display
            app.tabs.show([], 0)
            assert not app.tabs.display

    run(main)
