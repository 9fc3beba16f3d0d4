"""Dialogs: capabilities are granted, tools are called, results and failures are shown and bounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plugbay.model.errors import Code, Failure
from plugbay.tui.backend import Called
from plugbay.tui.dialogs import MAX_LINE, MAX_RESULT_LINES, CallDialog, GrantDialog, result_page
from tests.support.loops import Run
from tests.support.nexo import write_nexo_plugin
from tests.support.plugins import write_plugin
from tests.support.requirements import requirement
from tests.support.tiers import first_alone
from tests.tui.conftest import plain, terminal
from tests.tui.test_app import state_of

SIZES = pytest.mark.parametrize("size", first_alone([(80, 24), (200, 60)]), ids=["small", "large"])

CRASHES = """
def tool_invoke(m):
    name = m["params"]["tool_name"]
    sys.stderr.write("doing %s\\n" % name)
    sys.stderr.flush()
    if name == "p_crash":
        os._exit(3)
    reply(m, "did " + name)
"""


@SIZES
@requirement("ainb:tui-operate")
def test_a_pending_plugin_is_granted_and_called(run: Run, tmp_path: Path, size: tuple[int, int]) -> None:
    write_plugin(tmp_path, "p", capabilities=["tool.execute", "net"])

    async def main() -> None:
        async with terminal(tmp_path, size=size, grant_all=False) as seen:
            await seen.until(lambda: "g grant" in seen.whole())
            await seen.press("g")
            await seen.until(lambda: isinstance(seen.app.screen, GrantDialog))
            for word in ("tool.execute", "net", "all of them", "until this app ends"):
                await seen.until(lambda word=word: word in seen.whole())  # type: ignore[misc]
            await seen.press("down", "down", "enter")
            await seen.until(lambda: state_of(seen, "p") == "idle")
            assert {*seen.host.plugins()[0].granted} == {"tool.execute", "net"}
            await seen.until(lambda: "g grant" not in seen.whole())
            await seen.press("c")
            await seen.until(lambda: isinstance(seen.app.screen, CallDialog))
            await seen.press("end", *["backspace"] * 10)
            await seen.press(*'{"a":41}'.replace('"', "~"))
            await seen.press("enter")
            await seen.until(lambda: "the input cannot be used" in seen.whole())
            await seen.press(*["backspace"] * 10, *"[41]", "enter")
            await seen.until(lambda: "✓ succeeded" in seen.whole() or "✗ " in seen.whole())
            await seen.press("escape")
            await seen.until(lambda: not isinstance(seen.app.screen, CallDialog))

    run(main)


@requirement("ainb:tui-operate")
def test_a_dialog_that_is_closed_grants_nothing(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path, "p", capabilities=["net"])

    async def main() -> None:
        async with terminal(tmp_path, grant_all=False) as seen:
            await seen.press("g")
            await seen.until(lambda: isinstance(seen.app.screen, GrantDialog))
            await seen.press("escape")
            await seen.until(lambda: not isinstance(seen.app.screen, GrantDialog))
            assert (state_of(seen, "p"), seen.host.plugins()[0].granted) == ("pending", ())

    run(main)


@requirement("ainb:tui-operate", "host:crash-panel")
def test_a_tool_is_chosen_and_its_crash_shows_only_its_own_stderr(run: Run, tmp_path: Path) -> None:
    write_nexo_plugin(tmp_path, "p", CRASHES, tools=["fine", "crash"])

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.until(lambda: state_of(seen, "p") == "running")
            await seen.press("c")
            await seen.until(lambda: isinstance(seen.app.screen, CallDialog))
            await seen.press("enter", "enter")
            await seen.until(lambda: "did p_fine" in seen.whole())
            await seen.press("shift+tab", "down", "enter", "enter")
            await seen.until(lambda: "✗ crashed" in seen.whole())
            shown = seen.whole()
            assert "doing p_crash" in shown and "doing p_fine" not in shown
            assert shown.index("exit code 3") < shown.index("doing p_crash")

    run(main)


@requirement("ainb:tui-operate")
def test_a_plugin_is_stopped_started_and_restarted(run: Run, tmp_path: Path) -> None:
    write_nexo_plugin(tmp_path, "p", tools=["echo"])

    async def main() -> None:
        async with terminal(tmp_path) as seen:
            await seen.until(lambda: state_of(seen, "p") == "running")
            await seen.press("s")
            await seen.until(lambda: state_of(seen, "p") == "stopped")
            await seen.press("s")
            await seen.until(lambda: state_of(seen, "p") == "running")
            before = seen.host.plugins()[0].pid
            await seen.press("R")
            await seen.until(lambda: state_of(seen, "p") == "running" and seen.host.plugins()[0].pid != before)

    run(main)


HOSTILE = "\x1b[2J[bold]x[/]\u202e\n\x07"


@pytest.mark.parametrize(
    "called",
    [
        Called({HOSTILE: [HOSTILE]}, None, 1.0),
        Called(None, Failure(Code.CRASHED, HOSTILE, detail={"exit": HOSTILE, "hint": HOSTILE}), 1.0),
        Called(None, Failure(Code.CRASHED, "m", detail={"stderr_tail": [HOSTILE] * 30}), 1.0),
    ],
)
def test_a_result_cannot_move_the_cursor_or_be_markup(called: Called) -> None:
    shown = plain(result_page(called))
    assert not {"\x1b", "\x07", "\u202e"} & {*shown} and "[bold]x[/]" in shown


def test_a_long_result_is_cut_and_says_so() -> None:
    value: Any = [*range(MAX_RESULT_LINES + 100)]
    shown = plain(result_page(Called(value, None, 1.0)))
    assert "102 more lines" in shown and shown.count("\n") <= MAX_RESULT_LINES + 3
    assert len(plain(result_page(Called("x" * 10 * MAX_LINE, None, 1.0)))) < 2 * MAX_LINE
