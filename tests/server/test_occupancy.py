"""One server for each data directory, and the files by which commands find it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from plugbay.server.occupancy import RunningServer, announce, lock_data_dir, running_servers, select_servers
from plugbay.store.locks import InUse

HOLDER = """
import sys
from pathlib import Path
from plugbay.server.occupancy import lock_data_dir
with lock_data_dir(Path(sys.argv[1])):
    print("mine", flush=True)
    sys.stdin.read()
"""

SERVER = RunningServer("http://127.0.0.1:1", os.getpid(), "/data/operator.token", "/data", "/srv/shop")
OTHER = RunningServer("http://127.0.0.1:2", os.getppid(), "/other/operator.token", "/other", "/srv")


def test_a_second_server_is_refused_with_the_pid_of_the_first_and_a_killed_one_holds_no_lock(tmp_path: Path) -> None:
    data = tmp_path / "new" / "data"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(data)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None and holder.stdout.readline() == "mine\n"
        with pytest.raises(InUse, match=f"process {holder.pid}"), lock_data_dir(data):
            raise AssertionError("nobody gets here")
        assert holder.poll() is None, "the first is left alone"
        holder.kill()
        holder.wait()
    with lock_data_dir(data):
        assert data.stat().st_mode & 0o777 == 0o700
    with lock_data_dir(data):
        pass


def test_a_server_is_found_for_as_long_as_it_is_announced(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    assert running_servers(folder) == []
    with announce(folder, SERVER):
        assert running_servers(folder) == [SERVER]
        assert file_of(SERVER, folder).stat().st_mode & 0o777 == 0o600
    assert running_servers(folder) == []


def test_several_servers_are_found_in_the_order_of_their_start(tmp_path: Path) -> None:
    with announce(tmp_path, SERVER):
        with announce(tmp_path, OTHER):
            os.utime(file_of(SERVER, tmp_path), ns=(1, 1))
            assert running_servers(tmp_path) == [SERVER, OTHER]
            os.utime(file_of(OTHER, tmp_path), ns=(0, 0))
            assert running_servers(tmp_path) == [OTHER, SERVER]
        assert running_servers(tmp_path) == [SERVER], "the one that is left"
    assert running_servers(tmp_path) == []


@pytest.mark.parametrize(
    ("here", "expected"),
    [
        ("/srv/shop", [SERVER]),
        ("/srv/shop/plugins", [SERVER]),
        ("/srv", [OTHER]),
        ("/srv/shopping", [OTHER]),
        ("/home", [SERVER, OTHER]),
    ],
)
def test_of_several_servers_the_one_of_this_folder_is_meant(here: str, expected: list[RunningServer]) -> None:
    assert select_servers([SERVER, OTHER], Path(here)) == expected
    assert select_servers([SERVER], Path(here)) == [SERVER], "there is no other"
    assert select_servers([], Path(here)) == []


def test_a_server_of_the_root_folder_or_of_an_older_plugbay_belongs_to_no_folder() -> None:
    of_root = RunningServer("http://127.0.0.1:3", 3, "t", "/d", "/")
    older = RunningServer("http://127.0.0.1:4", 4, "t", "/d")
    assert select_servers([of_root, older], Path("/home/ada")) == [of_root, older]


def test_a_server_that_was_killed_is_passed_over_and_the_next_one_clears_its_file_away(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as process:
        pass
    killed = RunningServer("http://127.0.0.1:3", process.pid, "/gone", "/gone")
    left = announce(tmp_path, killed)
    left.__enter__()
    assert file_of(killed, tmp_path).exists()
    assert running_servers(tmp_path) == []
    with announce(tmp_path, SERVER):
        assert running_servers(tmp_path) == [SERVER]
        assert not file_of(killed, tmp_path).exists()
    left.__exit__(None, None, None)


def test_a_file_that_others_could_have_written_or_that_is_no_json_is_ignored(tmp_path: Path) -> None:
    with announce(tmp_path, SERVER):
        assert running_servers(tmp_path) == [SERVER]
        file_of(SERVER, tmp_path).chmod(0o666)
        assert running_servers(tmp_path) == []
        file_of(SERVER, tmp_path).chmod(0o600)
        file_of(SERVER, tmp_path).write_text("{")
        assert running_servers(tmp_path) == []


def file_of(server: RunningServer, folder: Path) -> Path:
    return folder / "servers" / f"{server.pid}.json"
