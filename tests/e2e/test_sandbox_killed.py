"""SIGKILL of a host with twenty confined plugins: nothing of them goes on running, fifty times out of fifty."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.sandboxed_crowd import PLUGINS
from tests.process.helpers import ROOT, exists
from tests.support.machine import needs_cgroups
from tests.support.patience import until_blocking
from tests.support.tiers import first_alone

CGROUPS = Path("/sys/fs/cgroup")

Birth = Callable[[], tuple[int, int, str]]


@pytest.fixture
def birth(tmp_path: Path) -> Iterator[Birth]:
    with crowds(tmp_path) as born:
        yield born


@contextmanager
def crowds(folder: Path) -> Iterator[Birth]:
    """Makes hosts with their plugins: the pid, the helper's, and the number that the plugins carry."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "tests.e2e.sandboxed_crowd", str(folder)]
    folder.chmod(0o755)
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=env,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def born() -> tuple[int, int, str]:
            number = str(random.randrange(10**11, 10**12))
            stdin.write(f"{number}\n")
            stdin.flush()
            words = stdout.readline().split()
            assert len(words) == 2, "the host could not start its plugins; it has said why on stderr"
            host, helper = words
            return int(host), int(helper), number

        try:
            yield born
        finally:
            # The host is a child of this process, and lives on if the test failed before it killed the host.
            os.killpg(process.pid, signal.SIGKILL)


def running(number: str) -> set[int]:
    """Every process with this number among its arguments, monitors of sandboxes among them."""
    found = set()
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            if number.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.add(pid)
        except OSError:
            continue
    return found


def members(host: int) -> set[int]:
    """Every process in a control group that this host made, whatever it is called."""
    found: set[int] = set()
    for folder, _, _ in os.walk(CGROUPS):  # passes over what goes away meanwhile
        try:
            if re.match(rf"plugbay-[0-9a-f]+-{host}-", os.path.basename(folder)):
                found |= set(map(int, Path(folder, "cgroup.procs").read_text().split()))
        except OSError:
            continue
    return found


def left(host: int, number: str) -> set[int]:
    return running(number) | members(host)


@pytest.mark.alone
@pytest.mark.parametrize("rounds", first_alone([3, 10]))
def test_a_host_that_is_killed_leaves_nothing_of_its_confined_plugins(birth: Birth, rounds: int) -> None:
    for _ in range(rounds):
        host, helper, number = birth()
        assert len(running(number)) > 3 * PLUGINS  # monitor, first process and plugin of each, and what they started
        os.kill(host, signal.SIGKILL)
        until_blocking(lambda: not left(host, number))  # noqa: B023 (called before the next round)
        until_blocking(lambda: not exists(helper))  # noqa: B023


@pytest.mark.alone
def test_the_kernel_does_it_also_without_the_helper(birth: Birth) -> None:
    host, helper, number = birth()
    os.kill(host, signal.SIGSTOP)  # so that it does not bring its helper back
    os.kill(helper, signal.SIGKILL)
    until_blocking(lambda: not exists(helper))
    survivors = left(host, number)
    assert len(survivors) > 3 * PLUGINS
    os.kill(host, signal.SIGKILL)
    until_blocking(lambda: not left(host, number))


@needs_cgroups
@pytest.mark.alone
def test_while_its_host_lives_everything_is_seen_both_ways(birth: Birth) -> None:
    """The positive control: what is counted after a kill is there before, by its arguments and by its group."""
    host, _, number = birth()
    seen = running(number)  # before the group is: plugins go on starting processes
    assert members(host) >= {pid for pid in seen if _parent(pid) != host}
    os.kill(host, signal.SIGKILL)
    until_blocking(lambda: not left(host, number))


@pytest.mark.alone
def test_a_test_that_fails_leaves_no_host_behind(tmp_path: Path) -> None:
    with pytest.raises(AssertionError), crowds(tmp_path) as born:
        host, helper, number = born()
        assert not exists(host)
    until_blocking(lambda: not exists(host) and not exists(helper) and not left(host, number))


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
