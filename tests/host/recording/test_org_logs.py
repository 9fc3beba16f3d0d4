"""The output of plugins, apart for each org."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from plugbay.host.admin.logs import PluginLogs
from plugbay.host.journal import Journal
from plugbay.host.recording.org_logs import MAX_BYTES, OrgLogs, org_label
from plugbay.process.stderr import StderrDrain
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.requirements import requirement


def read(logs: OrgLogs, org: str, plugin: str = "acme/p") -> list[tuple[str, str, str]]:
    found = PluginLogs(Journal(), logs.folder).tail(org_label(org, plugin), 100)
    return [(line.source, line.level, line.text) for line in found]


@requirement("vai:control-package-logs")
def test_the_stderr_of_a_process_is_its_orgs_with_the_lines_before_the_first_invocation(
    run: Run, tmp_path: Path
) -> None:
    async def main() -> None:
        logs, (end, pipe) = OrgLogs(tmp_path / "orgs"), os.pipe()
        drain = StderrDrain(asyncio.get_running_loop(), end, None, "[7]")
        drain.clean = lambda lines: [line.replace(b"hush", b"***") for line in lines]
        os.write(pipe, b"starting\n")
        await until(lambda: bool(drain.tail()))
        logs.attach("org_1", "acme/p", drain)
        logs.attach("org_2", "acme/p", drain)  # a process serves one org
        os.write(pipe, b"the key is hush\n")
        await until(lambda: len(read(logs, "org_1")) == 2)
        assert [text for _, _, text in read(logs, "org_1")] == ["[7] starting", "[7] the key is ***"]
        assert read(logs, "org_2") == read(logs, "org_1", "acme/q") == []
        drain.close()
        os.close(pipe)

    run(main)


@requirement("vai:control-package-logs")
def test_log_events_have_their_level_and_no_line_of_stderr_looks_like_one(tmp_path: Path) -> None:
    logs = OrgLogs(tmp_path)
    logs.write_event("org_1", "acme/p", {"type": "log", "level": "warn", "message": "low on tea\nand milk"})
    logs.write_event("org_1", "acme/p", {"type": "log", "level": "loud", "message": "hello"})
    for other in ({"type": "progress", "message": "x"}, {"type": "log"}, "log", None):
        logs.write_event("org_1", "acme/p", other)
    logs.write("org_1", "acme/p", ["[log:error] I am a line of stderr"])
    assert read(logs, "org_1") == [
        ("plugin", "warn", "low on tea"),
        ("plugin", "warn", "and milk"),
        ("plugin", "info", "hello"),
        ("stderr", "info", "[start] [log:error] I am a line of stderr"),
    ]


@pytest.mark.parametrize("org", ["../org", "a/b", ".", "org_1:acme"])
def test_no_org_leaves_the_folder(tmp_path: Path, org: str) -> None:
    OrgLogs(tmp_path / "orgs").write(org, "acme/p", ["x"])
    assert [path.parent for path in tmp_path.rglob("*.log")] == [tmp_path / "orgs"]


def test_a_log_is_bounded(tmp_path: Path) -> None:
    logs = OrgLogs(tmp_path)
    log = logs._log("org_1", "acme/p")
    for _ in range(40):
        log._allowance = float(MAX_BYTES)
        logs.write("org_1", "acme/p", ["x" * 1000] * 100)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 2 * MAX_BYTES
