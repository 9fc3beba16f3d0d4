"""`plugbay doctor` says what is wrong and how to fix it, on the real machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from plugbay.cli.doctor import checks
from plugbay.cli.doctor.checks import Check
from plugbay.cli.doctor.command import _check_server, show
from plugbay.cli.render import output
from plugbay.process.sandbox.cgroup import DEGRADED
from tests.cli.conftest import Done, MakePlugin, Run, environment
from tests.support.machine import limits_state
from tests.support.patience import PATIENCE

MACHINE = [
    "python",
    "kernel",
    "spawn",
    "warden",
    "open_files",
    "uvloop",
    "state_dir",
    "log_dir",
    "config",
    "orphans",
    "sandbox_bubblewrap",
    "sandbox_user_namespaces",
    "sandbox_system_call_filter",
    "sandbox_user",
    "sandbox_limits",
    "sandbox_confinement",
    "sandbox_network",
]


def without(done: Done, *ids: str) -> list[dict[str, str]]:
    """The checks but those that depend on what else runs on this machine."""
    return [check for check in done.json["checks"] if check["id"] not in ids]


def test_the_machine_is_checked_and_the_json_has_the_public_shape(run: Run) -> None:
    done = run("doctor", "--json")
    assert set(done.json) == {"checks", "ok"}
    assert [check["id"] for check in done.json["checks"]] == MACHINE
    for check in done.json["checks"]:
        assert set(check) == {"id", "status", "title", "detail", "fix"}
        assert check["status"] in {"ok", "warning", "error"}
        assert check["detail"]
        assert check["fix"] or check["status"] == "ok"
    assert done.code == (0 if done.json["ok"] else 9)
    found = {check["id"] for check in without(done, "orphans", "uvloop", "open_files") if check["status"] != "ok"}
    assert found == ({"sandbox_limits"} if limits_state() == DEGRADED else set())


def test_a_plugin_is_checked_after_the_machine(run: Run, make_plugin: MakePlugin) -> None:
    done = run("doctor", make_plugin(), "--json")
    names = [check["id"] for check in done.json["checks"]]
    assert names == [*MACHINE, "manifest", "command", "interpreter", "confinement", "handshake", "grants"]
    assert {check["status"] for check in done.json["checks"][len(MACHINE) :]} == {"ok"}


def test_a_finding_has_its_status_and_its_remedy(run: Run, make_plugin: MakePlugin, cwd: Path) -> None:
    plugin = make_plugin()
    (cwd / plugin / "run.sh").chmod(0o644)
    done = run("doctor", plugin)
    assert done.code == 9
    assert "✗ Command" in done.out
    assert "run.sh is not executable" in done.out
    assert "fix: run: chmod +x" in done.out
    assert "1 error" in done.out.splitlines()[-1]
    assert done.err == ""


def test_a_broken_config_is_a_finding(run: Run, cwd: Path) -> None:
    (cwd / "plugbay.toml").write_text("[host]\nlogdir = 'x'\n")
    done = run("doctor", "--json")
    assert done.code == 9
    assert done.json["ok"] is False
    (config,) = [check for check in done.json["checks"] if check["id"] == "config"]
    assert config["status"] == "error"
    assert "line 2: host.logdir" in config["detail"]


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Callable[[Check], str]:
    def shown(check: Check) -> str:
        output.out.cache_clear()
        show(output.out(), check)
        return capsys.readouterr().out

    return shown


def test_a_check_is_one_line_and_a_remedy(shown: Callable[[Check], str]) -> None:
    good = Check("python", checks.OK, "Python", "3.11.7", fix="not shown")
    assert shown(good) == f"{'✓ Python':31}3.11.7\n"
    bad = Check("spawn", checks.ERROR, "Processes", "first\nsecond", fix="do this")
    indent = " " * 31
    assert shown(bad) == f"{'✗ Processes':31}first\n{indent}second\n{indent}fix: do this\n"
    assert shown(Check("uvloop", checks.WARNING, "uvloop", "not installed")).startswith("! uvloop")


ALONE = """
import os, subprocess, sys
from plugbay.cli.main import main
from plugbay.process import warden_main
mark = f"999999.1.{warden_main.pid_namespace():x}-test"
orphan = subprocess.Popen(["sleep", "60"], env={**os.environ, "PLUGBAY_HOST": mark})
for arguments in ([], ["--fix"], []):
    pid = os.fork()
    if pid == 0:
        sys.argv[1:] = ["doctor", "--json", *arguments]
        main()
    os.waitpid(pid, 0)
print(orphan.wait())
"""

UNSHARE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]


def test_processes_of_a_dead_host_are_reported_and_with_fix_killed(cwd: Path) -> None:
    """In a pid namespace of its own, so that nobody else's processes are found, and none are killed."""
    done = subprocess.run(
        [*UNSHARE, sys.executable, "-c", ALONE],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment(cwd),
        timeout=PATIENCE * 2,
        check=True,
    )
    *reports, end = done.stdout.splitlines()
    before, fixed, after = [_orphans(json.loads(report)) for report in reports]
    assert before["status"] == "warning"
    assert "sleep 60" in before["detail"]
    assert before["fix"] == "plugbay doctor --fix"
    assert (fixed["status"], fixed["detail"]) == ("ok", "killed 1 process of dead hosts")
    assert (after["status"], after["detail"]) == ("ok", "none")
    assert end == "-9"


def _orphans(report: dict[str, list[dict[str, str]]]) -> dict[str, str]:
    return next(check for check in report["checks"] if check["id"] == "orphans")


def test_without_the_extra_a_server_is_not_checked_and_the_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plugbay.cli.doctor.server_checks", None)
    (check,) = _check_server(Path(), None)
    assert (check.status, check.fix) == (checks.ERROR, "pip install 'plugbay[serve]'")
