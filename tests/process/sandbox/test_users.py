"""Who a plugin is, and a thread that poses as it and comes back."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from plugbay.process.diagnose import SandboxUnavailable
from plugbay.process.sandbox.policy import SandboxSettings
from plugbay.process.sandbox.users import as_user, check_mapped, drop_privileges, may, uid_of
from tests.support.machine import needs_root

SETTINGS = SandboxSettings()
USER = 2_000_000_123
T = TypeVar("T")


def on_a_thread(work: Callable[[], T]) -> T:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


@needs_root
def test_each_label_has_its_own_number_of_the_range() -> None:
    labels = [f"plugin-{number}" for number in range(1000)] + ["", "é", "\udc80"]
    found = [uid_of(label, SETTINGS) for label in labels]
    assert len(set(found)) == len(labels)
    assert all(uid is not None and SETTINGS.uids[0] <= uid <= SETTINGS.uids[1] for uid in found)
    assert found == [uid_of(label, SETTINGS) for label in labels]


@needs_root
def test_the_range_is_the_operators_both_ends_included() -> None:
    narrow = SandboxSettings(uids=(5000, 5001))
    assert {uid_of(f"{number}", narrow) for number in range(50)} == {5000, 5001}


def test_a_host_that_is_not_root_has_no_other_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert uid_of("x", SETTINGS) is None


def test_a_number_that_is_not_mapped_or_is_root_is_refused_and_names_the_knob(tmp_path: Path) -> None:
    maps = tmp_path / "uid_map"
    maps.write_text("         0     100000      65536\n     70000     300000       10\n")
    for uid in (64999, 65535, 70000, 70009):
        check_mapped(uid, SETTINGS, (str(maps),))
    for uid in (0, 65536, 69999, 70010, USER):
        with pytest.raises(SandboxUnavailable, match=f"{uid} cannot be used here") as caught:
            check_mapped(uid, SETTINGS, (str(maps),))
        assert "uids" in caught.value.hint


def test_a_number_of_an_existing_user_is_refused() -> None:
    with pytest.raises(SandboxUnavailable, match="1 is daemon's"):
        check_mapped(1, SETTINGS)
    check_mapped(USER, SETTINGS)


def credentials() -> list[str]:
    lines = Path(f"/proc/self/task/{threading.get_native_id()}/status").read_text().splitlines()
    return [line for line in lines if line.startswith(("Uid", "Gid", "Cap"))]


@needs_root
def test_a_thread_gets_its_user_back_and_other_threads_keep_theirs() -> None:
    others = credentials()

    def pose() -> None:
        before = credentials()
        with as_user(USER):
            during = credentials()
            assert f"Uid:\t{USER}\t{USER}\t0\t{USER}" in during
            assert f"Gid:\t{USER}\t{USER}\t0\t{USER}" in during
            assert during != before
        assert credentials() == before
        with pytest.raises(KeyError), as_user(USER):
            raise KeyError
        assert credentials() == before

    on_a_thread(pose)
    assert credentials() == others


@needs_root
def test_rights_are_asked_as_whom_the_thread_poses(tmp_path: Path) -> None:
    fds = {}
    for mode in (0o700, 0o755, 0o777):
        folder = tmp_path / oct(mode)
        folder.mkdir()
        folder.chmod(mode)
        fds[mode] = os.open(folder, os.O_PATH)

    def ask(wanted: int) -> list[bool]:
        with as_user(USER):
            return [may(fd, wanted) for fd in fds.values()]

    try:
        assert on_a_thread(lambda: ask(os.R_OK | os.X_OK)) == [False, True, True]
        assert on_a_thread(lambda: ask(os.W_OK)) == [False, False, True]
        assert all(may(fd, os.W_OK) for fd in fds.values())
    finally:
        for fd in fds.values():
            os.close(fd)


def started(*, renounced: bool) -> dict[str, str]:
    """What a program is that a thread starts in the name of the plugin's user."""

    def work() -> str:
        if renounced:
            drop_privileges()
        with as_user(USER):
            return subprocess.run(["/bin/cat", "/proc/self/status"], capture_output=True, text=True, check=True).stdout

    lines = on_a_thread(work).splitlines()
    return {name: " ".join(value.split()) for name, _, value in (line.partition(":") for line in lines)}


NOTHING = {
    **dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), "0" * 16),
    "NoNewPrivs": "1",
    "Groups": "",
}


@needs_root
def test_a_program_that_it_starts_is_that_user_and_has_and_gains_nothing() -> None:
    others = credentials()
    said = started(renounced=True)
    assert said["Uid"] == said["Gid"] == " ".join([str(USER)] * 4)
    assert {name: said[name] for name in NOTHING} == NOTHING
    assert credentials() == others
    before = started(renounced=False)
    assert (before["Uid"], before["CapEff"]) == (said["Uid"], said["CapEff"])
    assert (before["CapBnd"], before["NoNewPrivs"]) != (said["CapBnd"], said["NoNewPrivs"])


@needs_root
def test_a_set_uid_program_lends_it_nothing() -> None:
    def run(program: str, *, renounced: bool) -> str:
        def work() -> str:
            if renounced:
                drop_privileges()
            with as_user(USER):
                return subprocess.run([program, "-u"], capture_output=True, text=True, check=True).stdout.strip()

        return on_a_thread(work)

    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        program = shutil.copy("/usr/bin/id", folder)
        os.chmod(program, 0o4755)
        assert run(program, renounced=False) == "0"
        assert run(program, renounced=True) == str(USER)


@needs_root
def test_a_thread_that_renounced_keeps_its_own_rights_and_can_come_back_to_them() -> None:
    def work() -> None:
        own = [line for line in credentials() if line.startswith(("Uid", "CapPrm", "CapEff"))]
        drop_privileges()
        drop_privileges()
        with as_user(USER), pytest.raises(PermissionError):
            os.kill(os.getppid(), 0)
        assert [line for line in credentials() if line in own] == own
        os.kill(os.getppid(), 0)

    on_a_thread(work)


@needs_root
def test_a_refusal_of_the_kernel_prevents_the_start_and_has_a_hint() -> None:
    def work() -> None:
        with (
            as_user(USER),
            pytest.raises(SandboxUnavailable, match="cannot leave its groups: Operation not permitted") as caught,
        ):
            drop_privileges()
        assert "another user" in caught.value.hint

    on_a_thread(work)


def test_without_a_user_the_thread_does_not_change() -> None:
    before = credentials()
    with as_user(None):
        assert credentials() == before
