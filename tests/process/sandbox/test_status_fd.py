"""What is heard of a sandbox that is being set up, from a stand-in that does what bubblewrap does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plugbay.process import pidfd
from plugbay.process.sandbox import status_fd
from plugbay.process.sandbox.status_fd import Reports, first_child, parent_of, status_of
from tests.process.helpers import open_fds
from tests.support.patience import PATIENCE, until_blocking

STAND_IN = """
import os, signal, sys
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
status, block = map(int, sys.argv[1:3])
first = os.fork()
if first:
    os.write(status, b'{ "child-pid": %d' % first)
    os.write(status, b', "net-namespace": 4 }\\n')
    code = os.waitstatus_to_exitcode(os.wait()[1])
    try:
        code == 9 or os.write(status, b'{ "exit-code": %d }\\n' % code)
    except ConnectionRefusedError:
        pass
    os._exit(code)
os.close(status)
if os.read(block, 1) != b"!":
    os._exit(8)
if sys.argv[3] == "fail":
    os._exit(9)
program = os.fork()
if not program:
    os.execv("/bin/sleep", ["sleep", sys.argv[3]])
os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


@contextmanager
def monitor(reports: Reports, script: str, *words: str) -> Iterator[int]:
    fds = (reports.status, reports.block)
    command = [sys.executable, "-I", "-S", "-c", script, *map(str, fds), *words]
    with subprocess.Popen(command, pass_fds=fds, start_new_session=True) as process:
        reports.let_go()
        try:
            yield process.pid
        finally:
            pidfd.signal_group(process.pid, 9)


@pytest.fixture
def reports() -> Iterator[Reports]:
    before = open_fds()
    reports = Reports()
    yield reports
    reports.close()
    reports.close()
    assert open_fds() == before


def test_the_first_process_waits_until_it_is_released_and_then_the_program_runs(reports: Reports) -> None:
    with monitor(reports, STAND_IN, "600") as pid:
        first = reports.first_process(pid, None)
        assert first is not None
        assert parent_of(first) == pid
        assert first_child(pid) == first
        assert first_child(first) == 0
        reports.release()
        program = reports.program(pid, first, None)
        assert program == first_child(first) != 0
        assert status_of(program)["Name"] == b"sleep"


def test_a_program_that_is_gone_already_was_run_all_the_same(reports: Reports) -> None:
    with monitor(reports, STAND_IN, "0") as pid:
        first = reports.first_process(pid, None)
        assert first is not None
        reports.release()
        until_blocking(lambda: pidfd.has_ended(pid))
        assert reports.program(pid, first, None) == 0


def test_a_program_that_was_never_run_is_told_from_that(reports: Reports) -> None:
    with monitor(reports, STAND_IN, "fail") as pid:
        first = reports.first_process(pid, None)
        assert first is not None
        reports.release()
        assert reports.program(pid, first, None) is None


def test_a_monitor_that_ends_without_a_word_has_no_first_process(reports: Reports) -> None:
    with monitor(reports, "pass") as pid:
        assert reports.first_process(pid, None) is None


def test_a_monitor_that_says_nothing_is_not_waited_for_forever(
    reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_fd, "READY_SECONDS", 0.05)
    with monitor(reports, "import time; time.sleep(600)") as pid:
        watch = os.pidfd_open(pid)
        assert reports.first_process(pid, watch) is None
        os.close(watch)


def test_our_death_is_not_the_word_to_go_on(reports: Reports) -> None:
    with monitor(reports, STAND_IN, "0") as pid:
        first = reports.first_process(pid, None)
        assert first is not None
        reports.close()  # all that is ours of the pipe is closed, as if we were dead
        # It has reached the read, and waits there.
        until_blocking(lambda: "pipe_read" in Path(f"/proc/{first}/wchan").read_text())
        assert first_child(first) == 0


def test_with_an_ordinary_pipe_our_death_would_be_the_word_to_go_on() -> None:
    reading, writing = os.pipe()
    command = [sys.executable, "-I", "-S", "-c", "import os, sys; os._exit(len(os.read(int(sys.argv[1]), 1)))"]
    with subprocess.Popen([*command, str(reading)], pass_fds=(reading,)) as process:
        os.close(reading)
        os.close(writing)
        assert process.wait(PATIENCE) == 0


def test_a_report_that_nobody_hears_does_not_kill_the_monitor(reports: Reports) -> None:
    with monitor(reports, STAND_IN, "0.05") as pid:
        first = reports.first_process(pid, None)
        assert first is not None
        reports.release()
        reports.close()
        until_blocking(lambda: pidfd.has_ended(pid))
        status = pidfd.reap(pid)
        assert status is not None
        assert status.code == 0


def test_with_an_ordinary_pipe_such_a_report_would_kill_it() -> None:
    reading, writing = os.pipe()
    script = (
        "import os, signal, sys; signal.signal(13, signal.SIG_DFL); sys.stdin.read(); os.write(int(sys.argv[1]), b'x')"
    )
    command = [sys.executable, "-I", "-S", "-c", script, str(writing)]
    with subprocess.Popen(command, pass_fds=(writing,), stdin=subprocess.PIPE) as process:
        os.close(writing)
        os.close(reading)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGPIPE


def test_who_does_not_exist_has_no_parent_no_child_and_no_status() -> None:
    assert (parent_of(2**22 + 1), first_child(2**22 + 1), status_of(2**22 + 1)) == (0, 0, {})
