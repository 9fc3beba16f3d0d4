"""Checks of the sandbox, on this machine and on machines that lack something."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from plugbay.cli.doctor.checks import ERROR, OK, WARNING
from plugbay.cli.doctor.sandbox_checks import check_egress, check_sandbox
from plugbay.host.config.config import Config, parse
from plugbay.process.sandbox.policy import SandboxSettings


def test_this_machine_confines_and_lets_out_where_it_may() -> None:
    found = {check.id: check for check in check_sandbox(Config())}
    assert {name for name, check in found.items() if check.status != OK} <= {"sandbox_limits"}
    assert found["sandbox_network"].detail == "a confined program reached the one server it may, and no other"
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


def test_a_way_out_that_does_not_work_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(child: int, port: int = 3128) -> None:
        raise OSError("no door can be made")

    monkeypatch.setattr("plugbay.process.sandbox.jail.listen_inside", broken)
    check = check_egress(SandboxSettings())
    assert check.status == ERROR and "no door can be made" in check.detail and check.fix
