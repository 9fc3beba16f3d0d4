from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plugbay.process.unlinked import held

MIB = 1 << 20

WRITE = "import os, sys, mmap; f = open(sys.argv[1], 'w+b'); f.write(b'x' * 4194304); f.flush(); "
WAIT = "print('ready', flush=True); sys.stdin.read()"

NAMED = WRITE + WAIT
OPEN = WRITE + "os.unlink(sys.argv[1]); " + WAIT
TWICE = WRITE + "os.unlink(sys.argv[1]); g = os.dup(f.fileno()); m = mmap.mmap(g, 0); " + WAIT
MAPPED = WRITE + "m = mmap.mmap(f.fileno(), 0); f.close(); os.unlink(sys.argv[1]); " + WAIT
GRANDCHILD = (
    "import os, sys\n"
    "if os.fork() == 0:\n"
    "    f = open(sys.argv[1], 'w+b'); f.write(b'x' * 4194304); f.flush(); os.unlink(sys.argv[1])\n"
    "    print('ready', flush=True)\n"
    "sys.stdin.read()"
)


@contextmanager
def running(script: str, path: Path) -> Iterator[int]:
    """A process that has said that it is ready; the end of its input ends it."""
    argv = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        process.stdin.close()


@pytest.mark.parametrize("script", [OPEN, TWICE, MAPPED, GRANDCHILD], ids=["open", "twice", "mapped", "grandchild"])
def test_a_file_without_a_name_counts_once_for_as_long_as_somebody_has_it(script: str, tmp_path: Path) -> None:
    with running(script, tmp_path / "big") as pid:
        assert os.listdir(tmp_path) == []
        assert 4 * MIB <= held(pid, tmp_path) < 5 * MIB


def test_a_file_with_a_name_is_found_by_its_name_and_does_not_count(tmp_path: Path) -> None:
    with running(NAMED, tmp_path / "big") as pid:
        assert held(pid, tmp_path) == 0


def test_a_file_that_was_elsewhere_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state2").mkdir()
    with running(OPEN, tmp_path / "state2" / "big") as pid:
        assert held(pid, tmp_path / "state") == 0
        assert held(pid, tmp_path / "state2") >= 4 * MIB


def test_a_folder_may_be_named_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with running(OPEN, tmp_path / "real" / "big") as pid:
        assert held(pid, tmp_path / "link") >= 4 * MIB


def test_a_process_that_is_gone_holds_nothing(tmp_path: Path) -> None:
    with running(OPEN, tmp_path / "big") as pid:
        pass
    assert held(pid, tmp_path) == 0
