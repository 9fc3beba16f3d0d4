"""The lines of a plugin: its stderr, its own log lines and the notes of the host, in one list."""

from __future__ import annotations

import asyncio
from pathlib import Path

from plugbay.host.admin.logs import TAIL_BYTES, LogLine, PluginLogs
from plugbay.host.journal import Journal
from tests.support.loops import Run
from tests.support.requirements import requirement


def test_remarks_lines_and_stderr_are_one_list(tmp_path: Path) -> None:
    at = iter([10.5, 30.0])
    journal = Journal(clock=lambda: next(at))
    journal.note("p", "crashed", "exit 1")
    journal.note("p", "log.info", "hello", level="info")
    (tmp_path / "p.log").write_text("1970-01-01T00:00:20Z [7] to stderr\n1970-01-01T00:00:40Z not yet whole")
    assert PluginLogs(journal, tmp_path).tail("p", 10) == [
        LogLine("1970-01-01T00:00:10.500000Z", "host", "warn", "crashed: exit 1"),
        LogLine("1970-01-01T00:00:20Z", "stderr", "info", "[7] to stderr"),
        LogLine("1970-01-01T00:00:30.000000Z", "plugin", "info", "hello"),
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


def test_a_follower_gets_new_events_only(tmp_path: Path, run: Run) -> None:
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
        await following.aclose()

    run(main)


@requirement("host:stderr-visible")
def test_stderr_is_read_alone_at_its_end_and_from_a_place_on(tmp_path: Path) -> None:
    logs, path = PluginLogs(Journal(), tmp_path), tmp_path / "p.log"
    assert (logs.stderr("p", 10), logs.stderr_size("p")) == ([], 0)
    path.write_text("1970-01-01T00:00:01Z one\n1970-01-01T00:00:02Z two\n")
    assert [line.text for line in logs.stderr("p", 1)] == ["two"]
    size = logs.stderr_size("p")
    with path.open("a") as file:
        file.write("1970-01-01T00:00:03Z three\n")
    assert [line.text for line in logs.stderr_since("p", size)] == ["three"]
