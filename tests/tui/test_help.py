"""The page of keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.tui.app import Terminal
from plugbay.tui.help import IN_A_SCREEN, IN_THE_LIST, HelpScreen
from tests.support.loops import Run
from tests.tui.conftest import terminal


@pytest.mark.parametrize("key", ["escape", "enter", "question_mark"])
def test_it_opens_over_everything_and_closes_again(run: Run, tmp_path: Path, key: str) -> None:
    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.press("question_mark")
            await seen.until(lambda: isinstance(seen.app.screen, HelpScreen))
            await seen.until(lambda: "Ctrl+O, F10" in seen.whole())
            await seen.press(key)
            await seen.until(lambda: not isinstance(seen.app.screen, HelpScreen))

    run(main)


def test_every_key_of_the_terminal_is_on_the_page() -> None:
    named = {"enter": "Enter", "left": "← →", "right": "← →", "question_mark": "?", "ctrl+o": "Ctrl+O, F10"}
    named |= {"f10": "Ctrl+O, F10", "ctrl+q": "Ctrl+Q, Ctrl+C", "ctrl+c": "Ctrl+Q, Ctrl+C"}
    keys = [key for binding in Terminal.BINDINGS for key in binding.key.split(",")]  # type: ignore[union-attr]
    assert keys
    assert [key for key in keys if named.get(key, key) not in {**IN_THE_LIST, **IN_A_SCREEN}] == []
