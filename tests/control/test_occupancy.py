"""One server for each data directory, and where to find it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from plugbay.control.occupancy import Found, announced, look, occupied
from plugbay.store.locks import InUse

HOLDER = """
import sys
from pathlib import Path
from plugbay.control.occupancy import occupied
with occupied(Path(sys.argv[1])):
    print("mine", flush=True)
    sys.stdin.read()
"""

SERVER = Found("http://127.0.0.1:1", 1, "/data/operator.token", "/data")


def test_a_second_server_is_told_who_was_first_and_a_killed_one_holds_nothing(tmp_path: Path) -> None:
    data = tmp_path / "new" / "data"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(data)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None and holder.stdout.readline() == "mine\n"
        with pytest.raises(InUse, match=f"process {holder.pid}"), occupied(data):
            raise AssertionError("nobody gets here")
        assert holder.poll() is None, "the first is left alone"
        holder.kill()
        holder.wait()
    with occupied(data):
        assert data.stat().st_mode & 0o777 == 0o700
    with occupied(data):
        pass


def test_a_server_is_found_for_as_long_as_it_is_announced(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    assert look(folder) is None
    with announced(folder, SERVER):
        assert look(folder) == SERVER
        assert (folder / "server.json").stat().st_mode & 0o777 == 0o600
    assert look(folder) is None


def test_a_server_that_was_started_later_stays_announced(tmp_path: Path) -> None:
    later = Found("http://127.0.0.1:2", 2, "/other", "/other")
    with announced(tmp_path, SERVER):
        first = announced(tmp_path, later)
        first.__enter__()
    assert look(tmp_path) == later
    first.__exit__(None, None, None)


def test_a_file_that_others_could_have_written_or_that_is_no_json_tells_nothing(tmp_path: Path) -> None:
    with announced(tmp_path, SERVER):
        os.chmod(tmp_path / "server.json", 0o666)
        assert look(tmp_path) is None
    (tmp_path / "server.json").chmod(0o600)
    (tmp_path / "server.json").write_text("{")
    assert look(tmp_path) is None
