"""The end of a group, with real processes in the machine's real version 2 and pids hierarchies."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from plugbay.process.sandbox import cgroup_kill
from plugbay.process.sandbox.cgroup_files import UNIFIED, Files, Places
from tests.process.helpers import exists, state
from tests.support.patience import PATIENCE, until_blocking

ESCAPED = """
import os, signal, sys
print(os.getpid(), flush=True)
sys.stdin.readline()
def stop(): os.kill(os.getpid(), signal.SIGSTOP)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        stop()
    os._exit(0)
os.wait()
signal.pause()
"""
"""Says its pid, waits for a line, double-forks a process into a new session, which says its pid and stops."""

RESPAWNING = """
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
sys.stdin.readline()
for _ in range(4):
    os.fork()
print("up", flush=True)
while True:
    if os.fork():
        os._exit(0)
"""
"""Sixteen processes, each of which is replaced by its child all the time: a list of them is old when it is read."""


class WithoutKill(Files):
    """A kernel before 5.14."""

    def write(self, path: Path, text: str) -> None:
        if path.name == "cgroup.kill":
            raise FileNotFoundError(path)
        super().write(path, text)


class Listing(Files):
    """Groups whose members are what a test says, one list for each look; the last stays."""

    def __init__(self, *looks: list[int]) -> None:
        self.looks = list(looks)

    def members(self, folder: Path) -> list[int]:
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]


def soon() -> float:
    return time.monotonic() + PATIENCE


def make_in(controller: str) -> Iterator[Path]:
    base = Places(Path("/sys/fs/cgroup"), Path("/proc")).own(controller)
    assert base is not None
    folder = base / f"pbtest-{secrets.token_hex(8)}"
    folder.mkdir()
    yield folder
    cgroup_kill.destroy(Files(), [folder], soon())
    assert not folder.exists()


@pytest.fixture
def unified() -> Iterator[Path]:
    yield from make_in(UNIFIED)


@pytest.fixture
def pids() -> Iterator[Path]:
    """Where the number of processes is limited: a hierarchy of its own, or the one for everything."""
    own = Places(Path("/sys/fs/cgroup"), Path("/proc"))
    yield from make_in("pids" if own.mounted("pids") else UNIFIED)


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        yield process
        process.kill()


def answers(cat: subprocess.Popen[bytes]) -> bool:
    """A process that was sent SIGKILL may still be listed, but does nothing any more."""
    assert cat.stdin is not None
    assert cat.stdout is not None
    cat.stdin.write(b"!")
    return cat.stdout.read(1) == b"!"


def start(script: str, *folders: Path, flags: tuple[str, ...] = ("-I", "-S")) -> subprocess.Popen[str]:
    """A program that is in these groups before it does anything."""
    process = subprocess.Popen(
        [sys.executable, *flags, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    for folder in folders:
        Files().write(folder / "cgroup.procs", str(process.pid))
    return process


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def escaped(*folders: Path) -> tuple[subprocess.Popen[str], int]:
    """A leader and what left its session and stopped."""
    process = start(ESCAPED, *folders)
    line_of(process)
    go(process)
    away = int(line_of(process))
    until_blocking(lambda: state(away) == "T")
    return process, away


def test_a_stopped_double_forked_tree_in_another_session_dies(unified: Path) -> None:
    process, away = escaped(unified)
    with process:
        cgroup_kill.kill(Files(), [unified])
        until_blocking(lambda: not exists(away))
        assert process.wait(PATIENCE) == -signal.SIGKILL
    until_blocking(lambda: "populated 0" in (unified / "cgroup.events").read_text())
    assert not cgroup_kill.kill(Files(), [unified])


def test_a_signal_to_the_process_group_does_not_reach_that_tree(unified: Path) -> None:
    process, away = escaped(unified)
    with process:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)
        assert exists(away)


def test_a_frozen_group_dies_too(unified: Path) -> None:
    process, away = escaped(unified)
    with process:
        (unified / "cgroup.freeze").write_text("1")
        until_blocking(lambda: "frozen 1" in (unified / "cgroup.events").read_text())
        assert cgroup_kill.destroy(Files(), [unified], soon())
        assert not exists(away)
        process.wait(PATIENCE)


def test_where_the_kernel_cannot_kill_a_group_each_process_is_killed(pids: Path) -> None:
    process, away = escaped(pids)
    with process:
        assert cgroup_kill.destroy(WithoutKill(), [pids], soon())
        assert not exists(away)
        process.wait(PATIENCE)


def test_processes_that_fork_faster_than_they_are_listed_may_fork_no_more_and_die(pids: Path) -> None:
    (pids / "pids.max").write_text("64")
    with start(RESPAWNING, pids) as process:
        go(process)
        assert line_of(process) == "up"
        assert cgroup_kill.kill(WithoutKill(), [pids])
        assert (pids / "pids.max").read_text() == "0\n"
        assert cgroup_kill.destroy(WithoutKill(), [pids], soon())
    assert not pids.exists()


def test_a_process_that_joined_only_some_hierarchies_dies(unified: Path, pids: Path) -> None:
    process, away = escaped(pids)
    with process:
        assert cgroup_kill.destroy(Files(), [unified, pids], soon())
        assert not exists(away)
        process.wait(PATIENCE)
    assert not unified.exists()


def test_groups_below_the_group_go_with_it(unified: Path) -> None:
    below = unified / "a" / "b"
    below.mkdir(parents=True)
    process, away = escaped(below)
    with process:
        assert cgroup_kill.destroy(Files(), [unified], soon())
        assert not exists(away)
        process.wait(PATIENCE)
    assert not unified.exists()


def test_a_group_that_is_gone_is_no_error(tmp_path: Path) -> None:
    assert not cgroup_kill.kill(Files(), [tmp_path / "gone"])
    assert cgroup_kill.destroy(Files(), [tmp_path / "gone"], soon())


def test_a_process_that_is_not_in_the_group_any_more_is_not_hit(
    tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    """Its number was listed, then used again by a stranger: the second look does not list it."""
    cgroup_kill.kill(Listing([stranger.pid], []), [tmp_path])
    assert answers(stranger)
    cgroup_kill.kill(Listing([stranger.pid]), [tmp_path])
    assert stranger.wait(PATIENCE) == -signal.SIGKILL


def test_we_ourselves_and_processes_without_a_number_are_never_hit(
    tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    assert cgroup_kill.kill(Listing([0, os.getpid(), stranger.pid]), [tmp_path])
    assert stranger.wait(PATIENCE) == -signal.SIGKILL
    assert not cgroup_kill.kill(Listing([0]), [tmp_path])


def test_a_group_that_cannot_be_emptied_is_given_up_at_the_deadline(tmp_path: Path) -> None:
    group = tmp_path / "group"
    group.mkdir()
    assert not cgroup_kill.destroy(Listing([os.getpid()]), [group], time.monotonic())
    assert group.exists()


def test_a_folder_that_is_busy_for_a_moment_is_tried_again(tmp_path: Path) -> None:
    group = tmp_path / "group"
    group.mkdir()

    class Busy(Listing):
        tries = 0

        def remove(self, folder: Path) -> None:
            self.tries += 1
            if self.tries < 4:
                raise OSError(16, "busy")
            super().remove(folder)

    assert not cgroup_kill.destroy(Busy([]), [group], time.monotonic())
    assert cgroup_kill.destroy(Busy([]), [group], soon())
    assert not group.exists()
