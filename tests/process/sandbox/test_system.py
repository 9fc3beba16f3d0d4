"""What every plugin sees of the machine."""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from plugbay.process.sandbox import system
from plugbay.process.sandbox.users import posing_as


def test_programs_and_libraries_are_shown_read_only_and_only_what_is_there() -> None:
    shown = system.binds(own_network=True)
    assert shown[0].path == "/usr"
    assert not any(bind.writable for bind in shown)
    assert all(bind.source == bind.path and os.path.exists(bind.path) for bind in shown)
    names = {bind.path for bind in shown} | {path for _, path in system.links()}
    assert {"/bin", "/lib"} <= names
    assert not names & {"/etc", "/etc/passwd", "/etc/shadow", "/etc/resolv.conf", "/run", "/sys"}


def test_what_is_copied_are_the_files_that_whoever_asks_may_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def copied(user: int | None) -> list[str]:
        with posing_as(user):
            found = list(system.copied())
        for fd, _ in found:
            os.close(fd)
        return [os.path.basename(path) for _, path in found]

    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, ThreadPoolExecutor(1) as pool:
        os.chmod(folder, 0o755)
        os.mkdir(f"{folder}/inner")
        for name, mode in (("open", 0o644), ("closed", 0o600)):
            Path(folder, name).touch(mode)
        names = ("open", "closed", "inner", "none")
        monkeypatch.setattr(system, "COPIED", tuple(f"{folder}/{name}" for name in names))
        assert pool.submit(copied, None).result() == ["open", "closed"]
        assert pool.submit(copied, 2_000_000_123).result() == ["open"]


def test_only_what_this_kernel_has_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "MASKED", ("/proc/self/status", "/proc/no-such-file"))
    assert system.masked() == ("/proc/self/status",)


def test_who_has_the_machines_network_has_its_names_too() -> None:
    shown = {bind.path for bind in system.binds(own_network=False)}
    assert shown >= {path for path in ("/etc/resolv.conf", "/etc/hosts") if os.path.exists(path)}
    assert "/etc/hosts" not in system.files("/tmp", own_network=False)


def test_the_files_that_exist_only_inside_name_nobody_of_this_machine() -> None:
    files = system.files("/state", own_network=True)
    assert files["/etc/passwd"] == b"plugin:x:1000:1000::/state:/bin/sh\n"
    assert files["/etc/hosts"].startswith(b"127.0.0.1 localhost plugin\n")


@pytest.mark.parametrize("home", ["/a:0:0::/", "/a\nroot:x:0:0::/:/bin/sh"])
def test_no_path_adds_a_field_or_a_user(home: str) -> None:
    assert system.files(home, own_network=True)["/etc/passwd"] == b"plugin:x:1000:1000::/:/bin/sh\n"


@pytest.mark.parametrize(
    ("path", "known"),
    [("/usr", True), ("/usr/bin/env", True), ("/bin/sh", True), ("/usrx", False), ("/opt/x", False), ("/", False)],
)
def test_what_everybody_sees_is_known_by_its_path(path: str, known: bool) -> None:
    assert system.is_system(path) is known
