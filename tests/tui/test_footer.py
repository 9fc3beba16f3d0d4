"""The line of keys is made anew when other keys are to be shown, and only then."""

from __future__ import annotations

from pathlib import Path

from plugbay.tui.footer import KeysFooter
from tests.support.ainb import write_ainb_plugin
from tests.support.loops import Run
from tests.tui.conftest import Seen, terminal


def last_line(seen: Seen) -> str:
    return seen.whole().splitlines()[-1]


def test_the_keys_are_those_that_work_where_one_is(run: Run, tmp_path: Path) -> None:
    write_ainb_plugin(tmp_path, "echo", screens=["main"])

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.until(lambda: "z zoom" in last_line(seen))
            await seen.use("echo")
            await seen.until(lambda: "^o list" in last_line(seen) and "z zoom" not in last_line(seen))
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
