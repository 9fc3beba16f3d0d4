"""Each check of the machine reports its findings and fixes."""

from __future__ import annotations

import asyncio
import os
import platform
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from plugbay.cli.doctor import checks
from plugbay.cli.doctor import checks as module
from plugbay.cli.doctor.checks import ERROR, OK, WARNING, Check, Orphan, check_broker, check_egress, check_sandbox
from plugbay.host.config.config import Config, parse
from plugbay.process import warden, warden_main
from plugbay.process.child import Spawner
from plugbay.process.sandbox.egress.netlink import Batch, forwarding
from plugbay.process.sandbox.policy import SandboxSettings
from tests.support.nats_server import nats_server
from tests.support.patience import until_blocking

MARK = b"4194304.1.0-test"


def test_only_an_optional_warning_is_no_finding() -> None:
    verdicts = {
        (status, optional): Check("id", status, "Title", "found", optional=optional).is_finding
        for status in (OK, WARNING, ERROR)
        for optional in (False, True)
    }
    assert verdicts == {
        (OK, False): False,
        (OK, True): False,
        (WARNING, False): True,
        (WARNING, True): False,
        (ERROR, False): True,
        (ERROR, True): True,
    }


def test_the_json_of_a_check_has_the_public_shape() -> None:
    check = Check("uvloop", WARNING, "uvloop", "not installed", "pip install it", optional=True)
    assert check.to_json() == {
        "id": "uvloop",
        "status": "warning",
        "title": "uvloop",
        "detail": "not installed",
        "fix": "pip install it",
    }


def test_an_old_python_is_an_error_with_a_remedy() -> None:
    assert checks.check_python().status == OK
    old = checks.check_python((3, 10, 4))
    assert old.status == ERROR
    assert "3.11" in old.fix


def test_a_kernel_without_pidfd_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.check_kernel().status == OK
    monkeypatch.delattr(os, "pidfd_open")
    assert checks.check_kernel().status == ERROR


def test_a_machine_without_proc_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "exists", lambda path: False)
    check = checks.check_kernel()
    assert check.status == ERROR
    assert "/proc" in check.detail


def test_another_system_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    assert checks.check_kernel().status == WARNING


def test_a_child_is_started_and_its_orphan_is_found() -> None:
    spawn, guard = checks.check_processes()
    assert (spawn.id, spawn.status) == ("spawn", OK)
    assert (guard.id, guard.status) == ("warden", OK), guard.detail


def test_a_machine_that_cannot_start_processes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    (check,) = checks.check_processes()
    assert (check.id, check.status) == ("spawn", ERROR)
    assert "/nowhere/python" in check.detail
    assert check.fix


def test_a_child_that_fails_is_an_error_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_LEAVES_A_CHILD", "raise SystemExit('no forks today')")
    (check,) = checks.check_processes()
    assert (check.id, check.status) == ("spawn", ERROR)
    assert "exit code 1" in check.detail
    assert "no forks today" in check.detail


def test_a_helper_that_finds_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_LEAVES_A_CHILD", "pass")
    _, guard = checks.check_processes()
    assert (guard.id, guard.status) == ("warden", ERROR)
    assert "did not find" in guard.detail


def test_a_system_without_a_helper_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warden, "supported", lambda: False)

    async def check() -> Check:
        return await checks._check_warden(Spawner())

    assert asyncio.run(check()).status == WARNING


@pytest.mark.parametrize(
    ("limits", "status", "fix"),
    [
        ((1024, 4096), OK, ""),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), OK, ""),
        ((256, 4096), WARNING, "ulimit -n 1024"),
        ((256, resource.RLIM_INFINITY), WARNING, "ulimit -n 1024"),
        ((256, 512), WARNING, "raise LimitNOFILE"),
        ((2048, 4095), WARNING, "raise LimitNOFILE"),
    ],
)
def test_few_open_files_are_a_warning(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], status: str, fix: str
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits)
    check = checks.check_open_files()
    assert (check.status, check.fix) == (status, fix)


def test_a_missing_uvloop_is_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.metadata

    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    check = checks.check_uvloop()
    assert check.status == WARNING
    assert not check.is_finding
    assert "plugbay[uvloop]" in check.fix


def test_a_directory_that_is_not_there_yet_may_be_made(tmp_path: Path) -> None:
    assert checks.check_writable("state", tmp_path / "a" / "b").status == OK
    assert list(tmp_path.iterdir()) == []


def test_a_directory_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    check = checks.check_writable("log", tmp_path / "file" / "log")
    assert check.status == ERROR
    assert check.id == "log_dir"
    assert "file" in check.detail


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        (None, OK, "none in this directory"),
        ('[plugins."a"]\n', OK, "1 plugin configured"),
        ('[plugins."a"]\ngrant = []\n', ERROR, "did you mean 'grants'?"),
        ("[host]\nlog_dir =\n", ERROR, "line 2"),
    ],
)
def test_the_config_is_checked_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, status: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / "plugbay.toml").write_text(text)
    check = checks.check_config_file()
    assert check.status == status
    assert words in check.detail


@pytest.fixture
def marked() -> Iterator[subprocess.Popen[bytes]]:
    """A process with the mark of a host of its own."""
    env = {**os.environ, "PLUGBAY_HOST": MARK.decode()}
    process = subprocess.Popen(["sleep", "60"], env=env)
    environ = Path(f"/proc/{process.pid}/environ")
    until_blocking(lambda: bool(environ.read_bytes()))  # in the middle of exec it shows none
    yield process
    process.kill()
    process.wait()


def test_what_a_dead_host_left_behind_is_found_and_left_alone(
    marked: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warden_main, "host_is_gone", lambda mark: mark == MARK)
    found = checks.find_orphans()
    assert found == [Orphan(marked.pid, "sleep 60")]
    assert marked.poll() is None


def test_leftovers_are_reported_with_the_command_that_kills_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "RECHECK_DELAY_S", 0.0)
    monkeypatch.setattr(checks, "find_orphans", lambda: [Orphan(7, "sleep 60")])
    check = checks.check_orphans()
    assert check.status == WARNING
    assert "pid 7: sleep 60" in check.detail
    assert check.fix == "plugbay doctor --fix"


def test_leftovers_that_vanish_by_themselves_are_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [[Orphan(7, "sleep 60")], []]
    monkeypatch.setattr(checks, "RECHECK_DELAY_S", 0.0)
    monkeypatch.setattr(checks, "find_orphans", lambda: looks.pop(0))
    assert checks.check_orphans().status == OK


def test_leftovers_are_killed_when_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "find_orphans", lambda: [Orphan(7, "sleep 60")])
    monkeypatch.setattr(warden, "sweep_orphans", lambda: 1)
    check = checks.check_orphans(fix=True)
    assert check.status == OK
    assert "killed 1 process of dead hosts" in check.detail


def test_a_broken_config_leaves_the_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert checks.load_config_or_default() == Config()
    Path("plugbay.toml").write_text("[sandbox]\nrequire = true\n")
    assert checks.load_config_or_default().sandbox.require
    Path("plugbay.toml").write_text("[")
    assert checks.load_config_or_default() == Config()


def test_without_a_broker_nothing_is_reported() -> None:
    assert list(check_broker(Config())) == []


def test_a_server_is_joined_for_a_moment_and_one_that_is_gone_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with nats_server(tmp_path) as server:
        config = parse(f'[broker]\nurl = "{server.url}"\ntopics = ["a.>", "b"]')
        (check,) = check_broker(config)
        assert (check.id, check.status, check.detail) == (
            "broker",
            "ok",
            f"joined through {server.url}; shared topics: a.>, b",
        )
    monkeypatch.setattr(module, "BROKER_TIMEOUT_S", 0.5)
    (check,) = check_broker(config)
    assert check.is_finding and "refused" in check.detail and "start the server" in check.fix


def test_problems_of_the_file_are_reported_verbatim() -> None:
    (check,) = check_broker(parse('[broker]\nurl = "nats://h"\ntopics = ["a"]\ntoken_env = "NOBODY_HAS_SET_THIS"'))
    assert check.status == "error" and "NOBODY_HAS_SET_THIS is not set" in check.detail
    (check,) = check_broker(parse('[broker]\nurl = "nats://h"'))
    assert check.status == "warning" and "topics" in check.fix


def test_this_machine_confines_and_lets_out_where_it_may() -> None:
    found = {check.id: check for check in check_sandbox(Config())}
    assert {name for name, check in found.items() if check.status != OK} <= {"sandbox_limits"}
    assert found["sandbox_network"].detail == "a confined program reached its allowed server, and no other"
    assert found["sandbox_limits"].detail.startswith(("full", "degraded"))


def test_without_bubblewrap_nothing_can_be_confined_and_the_fix_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    first, *rest = check_sandbox(Config())
    assert (first.id, first.status) == ("sandbox_bubblewrap", ERROR)
    assert "not installed" in first.detail and "apt-get install bubblewrap" in first.fix
    assert "sandbox_network" not in {check.id for check in rest}


def test_numbers_that_this_machine_does_not_know_are_found() -> None:
    found = {check.id: check for check in check_sandbox(parse('[sandbox]\nuids = "4294967290-4294967294"'))}
    assert found["sandbox_user"].status == OK or "uids" in found["sandbox_user"].fix


def test_where_there_are_no_namespaces_there_is_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    (check,) = check_sandbox(Config())
    assert (check.status, "run on Linux" in check.fix) == (WARNING, True)


def test_a_kernel_that_does_not_forward_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(port: int, loopback: object) -> list[Batch]:
        (rules, *rest) = forwarding(port, ())
        return [rules._replace(data=rules.data.replace(b"tproxy\0", b"nosuch\0")), *rest]

    monkeypatch.setattr("plugbay.process.sandbox.jail.forwarding", unknown)
    check = check_egress(SandboxSettings())
    assert (check.status, "tproxy" in check.detail, "nf_tables" in check.fix) == (WARNING, True, True)


def test_a_way_out_that_does_not_work_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(child: int, settings: object) -> None:
        raise OSError("no door can be made")

    monkeypatch.setattr("plugbay.process.sandbox.jail.open_inside", broken)
    check = check_egress(SandboxSettings())
    assert check.status == ERROR and "no door can be made" in check.detail and check.fix
