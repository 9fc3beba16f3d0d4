"""`plugbay conform` shows the kit's verdict, axis by axis."""

from __future__ import annotations

import signal
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from plugbay.cli import output
from plugbay.cli.conform import show_axis
from plugbay.conformance.canaries import load_canaries, prepare_canary
from plugbay.conformance.report import AxisResult, Status
from tests.cli.conftest import (
    PATIENCE,
    MakePlugin,
    Run,
    command,
    descendants_of,
    environment,
    is_alive,
    wait_until,
    write_manifest,
)
from tests.conformance.nexo_plugins import BARE, nexo_folder

TOOLS = [{"name": "echo", "input_schema": {"type": "object"}}]


def test_a_conforming_plugin_passes_every_axis_that_concerns_it(run: Run, sdk_plugin: Path) -> None:
    done = run("conform", sdk_plugin, "--json")
    report = done.json
    assert [axis for axis in report["axes"] if axis["status"] == "failed"] == []
    assert done.code == 0
    assert set(report) == {"contract", "passed", "failed", "skipped", "axes"}
    assert report["contract"] == "rune"
    assert report["passed"] > 10
    assert report["passed"] + report["skipped"] == len(report["axes"])
    assert all(set(axis) == {"id", "title", "status", "detail"} for axis in report["axes"])


def test_a_plugin_that_breaks_its_contract_is_a_finding(run: Run, make_plugin: MakePlugin, cwd: Path) -> None:
    done = run("conform", make_plugin(answer="exit 3", tools=TOOLS), "--junit", "report.xml")
    assert done.code == 9
    lines = done.out.splitlines()
    assert any(line.startswith("✓ ") for line in lines)
    assert any(line.startswith("✗ ") for line in lines)
    assert any(line.startswith("– ") for line in lines)  # noqa: RUF001
    assert "exit code 3" in done.out
    assert lines[-1].startswith("rune: ")
    suite = ET.parse(cwd / "report.xml").getroot().find("testsuite")
    assert suite is not None
    assert int(suite.attrib["failures"]) == sum(line.startswith("✗ ") for line in lines)


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_broken_manifest_is_invalid(run: Run, cwd: Path, form: list[str]) -> None:
    write_manifest(cwd / "broken", "{}")
    done = run("conform", "broken", *form)
    assert done.code == 3
    assert "broken/rterm-plugin.json:1  missing_field" in done.err
    if form:
        assert done.json == {"contract": "rune", "passed": 0, "failed": 0, "skipped": 0, "axes": []}


def test_a_folder_of_plugins_is_not_found_and_its_plugins_are_named(run: Run, make_plugin: MakePlugin) -> None:
    make_plugin()
    done = run("conform", "plugins")
    assert done.code == 4
    assert "plugbay conform plugins/echo" in done.err
    assert run("conform", "nowhere").code == 4


def test_a_contract_that_nobody_knows_is_a_usage_error(run: Run, make_plugin: MakePlugin) -> None:
    done = run("conform", make_plugin(), "--contract", "runes")
    assert done.code == 2
    assert "rune" in done.err


def test_a_report_that_cannot_be_written_is_told(run: Run, make_plugin: MakePlugin) -> None:
    done = run("conform", make_plugin(answer="exit 3", tools=TOOLS), "--junit", "no/such/dir/report.xml")
    assert done.code == 1
    assert "no/such/dir/report.xml: No such file or directory" in done.err


FIXTURE = Path(__file__).parents[1] / "sdk" / "nexo_fixture.py"


def test_the_fixture_of_an_sdk_is_a_program(run: Run, cwd: Path) -> None:
    done = run("conform", FIXTURE, "--fixture", "--strict", "--json", "--junit", "report.xml")
    assert done.code == 0
    assert (done.json["contract"], done.json["passed"], done.json["skipped"]) == ("nexo", 20, 0)
    assert ET.parse(cwd / "report.xml").getroot().find("testsuite") is not None


def test_a_nexo_plugin_is_held_to_nexo(run: Run, cwd: Path) -> None:
    nexo_folder(cwd / "bare", BARE, "")
    done = run("conform", "bare", "--json")
    assert done.code == 0
    assert (done.json["contract"], done.json["failed"]) == ("nexo", 0)
    assert done.json["passed"] > 20


def test_an_ainb_plugin_is_held_to_the_fourteen_axes_and_a_failure_names_its_check(run: Run, cwd: Path) -> None:
    canary = next(each for each in load_canaries() if each.axis == "log_filtering")
    done = run("conform", prepare_canary(canary, cwd / "good"))
    assert done.code == 0
    lines = done.out.splitlines()
    assert len([line for line in lines if line[:2] in ("✓ ", f"{output.SKIP} ")]) == 14
    assert "✓ log filtering" in lines
    assert lines[-1].startswith("ainb: conforms")
    done = run("conform", prepare_canary(canary, cwd / "bad", "own_level"))
    assert done.code == 9
    assert "✗ log filtering  ainb.log_filtering" in done.out
    assert "    check     levels, it logs at levels that a host can filter by" in done.out.splitlines()


def test_the_folder_of_a_fixture_may_be_named(run: Run, cwd: Path) -> None:
    nexo_folder(cwd / "sdk", FIXTURE.read_text("utf-8"), "")
    manifest = cwd / "sdk" / "nexo-plugin.toml"
    manifest.write_text(manifest.read_text("utf-8").replace('"-I", "-S", ', ""), "utf-8")
    done = run("conform", "sdk", "--fixture", "--json")
    assert (done.code, done.json["passed"]) == (0, 20)


def test_a_program_that_is_no_fixture_is_a_finding(run: Run, cwd: Path) -> None:
    (cwd / "odd.py").write_text("print('{}')")
    done = run("conform", "odd.py", "--fixture")
    assert done.code == 9
    assert "must print one JSON array of strings" in done.out


def test_strictness_without_a_fixture_is_a_usage_error(run: Run, make_plugin: MakePlugin) -> None:
    done = run("conform", make_plugin(), "--strict")
    assert done.code == 2
    assert "--fixture" in done.err


def test_a_contract_without_fixtures_says_so(run: Run) -> None:
    done = run("conform", FIXTURE, "--fixture", "--contract", "rune")
    assert done.code == 1
    assert "there are no scenarios for fixtures of 'rune'" in done.err


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Callable[[AxisResult], str]:
    def shown(axis: AxisResult) -> str:
        output.out.cache_clear()
        show_axis(axis)
        return capsys.readouterr().out

    return shown


def test_an_axis_is_one_line_with_the_detail_under_failures(shown: Callable[[AxisResult], str]) -> None:
    assert shown(AxisResult("rune.a", "answers", Status.PASSED)) == "✓ answers\n"
    skipped = shown(AxisResult("rune.b", "declares", Status.SKIPPED, "nothing to declare"))
    assert skipped == f"{output.SKIP} declares  nothing to declare\n"
    failed = shown(AxisResult("rune.c", "leaves", Status.FAILED, "it stayed\nexit: none\nstderr: a: b\nstderr: c"))
    assert failed == "✗ leaves  rune.c\n    it stayed\n    exit      none\n    stderr    a: b\n              c\n"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_and_leaves_no_process_behind(
    make_plugin: MakePlugin, cwd: Path, number: int, status: int
) -> None:
    plugin = make_plugin(answer="echo $$ >> pids; sleep 60", tools=TOOLS)
    process = subprocess.Popen(
        command("conform", plugin),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=environment(cwd),
    )
    file = cwd / plugin / "pids"  # axes run side by side, so there may be several
    wait_until(lambda: file.exists() and file.read_text().endswith("\n"), "the plugin to be called")
    child = int(file.read_text().split()[0])
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == status
    assert b"Traceback" not in err
    wait_until(lambda: not is_alive(child) and not descendants_of(process.pid), "everything to be gone")
