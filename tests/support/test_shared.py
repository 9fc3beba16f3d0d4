"""What test processes share is made once, and is there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.commands import plugbay
from tests.support.shared import FOLDER, shared


def test_several_processes_make_a_file_once(tmp_path: Path) -> None:
    def make(path: Path) -> None:
        with open(tmp_path / "makers", "a") as makers:
            print(os.getpid(), file=makers)
        path.write_text("whole")

    pids = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            made = shared("thing", make, tmp_path)
            os._exit(0 if made.read_text() == "whole" else 1)
        pids.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 4
    assert len((tmp_path / "makers").read_text().split()) == 1


def test_one_that_could_not_be_made_is_made_by_the_next(tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        path.write_text("half")
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        shared("thing", fail, tmp_path)
    assert shared("thing", lambda path: path.write_text("whole"), tmp_path).read_text() == "whole"


def test_the_servers_of_commands_are_shared() -> None:
    assert plugbay("--version").returncode == 0
    assert any(path.is_socket() for path in FOLDER.glob("commands-*"))
