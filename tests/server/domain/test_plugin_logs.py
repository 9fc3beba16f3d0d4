"""What a plugin wrote and what happened to it, in one order."""

from __future__ import annotations

import asyncio
from pathlib import Path

from plugbay.host.journal import Journal
from plugbay.server.domain.plugin_logs import TAIL_BYTES, Line, PluginLogs
from tests.support.loops import Run


def test_remarks_lines_and_stderr_are_one_list(tmp_path: Path) -> None:
    at = iter([10.5, 30.0])
    journal = Journal(clock=lambda: next(at))
    journal.note("p", "crashed", "exit 1")
    journal.note("p", "log.info", "hello", level="info")
    (tmp_path / "p.log").write_text("1970-01-01T00:00:20Z [7] to stderr\n1970-01-01T00:00:40Z not yet whole")
    assert PluginLogs(journal, tmp_path).tail("p", 10) == [
        Line("1970-01-01T00:00:10.500000Z", "host", "warn", "crashed: exit 1"),
        Line("1970-01-01T00:00:20Z", "stderr", "info", "[7] to stderr"),
        Line("1970-01-01T00:00:30.000000Z", "plugin", "info", "hello"),
    ]
    assert [line.text for line in PluginLogs(journal, tmp_path).tail("p", 1)] == ["hello"]
    assert PluginLogs(journal, tmp_path).tail("p", 0) == []
    assert PluginLogs(journal, None).tail("q", 10) == []


def test_of_a_long_file_the_end_is_read_in_whole_lines(tmp_path: Path) -> None:
    line = "1970-01-01T00:00:20Z " + "x" * 100 + "\n"
    (tmp_path / "p.log").write_text(line * (2 * TAIL_BYTES // len(line)))
    shown = PluginLogs(Journal(), tmp_path).tail("p", 1_000_000)
    assert len(shown) in range(TAIL_BYTES // len(line) - 1, TAIL_BYTES // len(line) + 1)
    assert {each.text for each in shown} == {"x" * 100}


def test_whoever_follows_hears_what_comes_and_only_that(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        journal, path = Journal(), tmp_path / "p.log"
        journal.note("p", "old", "before")
        path.write_text("1970-01-01T00:00:01Z before\n")
        following = PluginLogs(journal, tmp_path).follow("p")
        first = asyncio.ensure_future(anext(following))
        await asyncio.sleep(0)
        journal.note("p", "new", "a remark")
        assert (await first).text == "new: a remark"
        with path.open("a") as file:
            file.write("1970-01-01T00:00:02Z a line\n")
        assert (await anext(following)).text == "a line"
        path.write_text("1970-01-01T00:00:03Z anew\n")
        assert (await anext(following)).text == "anew"
        await following.aclose()  # type: ignore[attr-defined]

    run(main)
