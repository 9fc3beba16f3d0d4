"""The scenarios for SDKs: a fixture that does everything passes, and each scenario catches one that does not.

The fixture is the one of our own SDK. What it says is changed on its way out by a program in between.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from plugbay.conformance.engine.fixture_runner import run_fixture
from plugbay.conformance.engine.scenario import load_all
from plugbay.conformance.reports.report import AxisResult, Status
from plugbay.model.errors import PlugbayError
from plugbay.model.spec import PluginSpec
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive, few

FIXTURE = Path(__file__).parents[2] / "sdk" / "contracts" / "nexo_fixture.py"
SCENARIOS = [scenario.id for scenario in load_all("nexo/fixture")]

BETWEEN = """
import subprocess, sys, threading

old, new, *command = sys.argv[1:]
child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

def pass_on(source, target):
    for line in source:
        target.write(line.replace(old.encode(), new.encode()))
        target.flush()

errors = threading.Thread(target=pass_on, args=(child.stderr, sys.stderr.buffer))
errors.start()
pass_on(child.stdout, sys.stdout.buffer)
errors.join()
sys.exit(child.wait())
"""


def program(*command: str | Path, **more: Any) -> PluginSpec:
    return PluginSpec("fixture", "0", "nexo", Path("/"), (sys.executable, *map(str, command)), **more)


@exhaustive
def test_our_own_fixture_passes_all_nineteen_scenarios() -> None:
    told: list[AxisResult] = []
    report = run_fixture(program(FIXTURE), told.append, strict=True)
    assert [(axis.id, axis.detail) for axis in report.axes if axis.status is not Status.PASSED] == []
    assert [axis.id for axis in report.axes] == ["nexo.fixture.capabilities", *SCENARIOS]
    assert len(SCENARIOS) == 19
    assert tuple(told) == report.axes


PUBLISHING = ("publish", "recall", "recall_error", "recall_timeout", "complete", "complete_error", "complete_stream")


@requirement("nexo:kit-event-shapes")
def test_an_sdk_may_publish_events_of_the_full_shape() -> None:
    full = program(FIXTURE, env=(("FULL_EVENTS", "1"),))
    report = run_fixture(full, only=[f"nexo.fixture.{name}" for name in PUBLISHING], strict=True)
    assert [(axis.id, axis.detail) for axis in report.axes if axis.status is not Status.PASSED] == []
    assert len(report.axes) == len(PUBLISHING) + 1


CHANGES = {
    "lifecycle": ('"server_version":', '"tools":[],"server_version":'),
    "publish": ('"source":', '"id":"e","source":'),
    "recall": ('"limit":10', '"limit":5'),
    "recall_error": ('"code":-32603', '"code":-32000'),
    "recall_timeout": ('"timed_out":true', '"timed_out":false'),
    "complete": ('"temperature"', '"stream":false,"temperature"'),
    "complete_error": ('"code":-32603', '"code":-32000'),
    "complete_stream": ("together", "gettoher"),
    "catalogue": ('"description"', '"strict":true,"description"'),
    "no_catalogue": ('"server_version":', '"tools":null,"server_version":'),
    "tool": ('"result":', '"error":null,"result":'),
    "tool_without_args": ('"echoed":null', '"echoed":{}'),
    "tool_asks_host": ('"agent_id":"buyer"', '"agent_id":"other"'),
    "tool_errors": ('"retry_after_ms":5000', '"retry_after_secs":5'),
    "tool_unhandled": ("-32601", "-33401"),
    "unknown_method": ("-32601", "-32600"),
    "bad_lines": ("max", "min"),
    "drain": ('"text":"done"', '"text":"gone"'),
    "abandon": ("INFLIGHT_GOT_TRANSPORT", "nothing"),
}


@requirement("nexo:kit-fixture-scenarios")
@pytest.mark.parametrize("axis_id", few(SCENARIOS))
def test_each_scenario_catches_an_sdk_that_says_it_differently(axis_id: str, tmp_path: Path) -> None:
    (tmp_path / "between.py").write_text(BETWEEN)
    old, new = CHANGES[axis_id.removeprefix("nexo.fixture.")]
    wrong = program(tmp_path / "between.py", old, new, sys.executable, FIXTURE)
    axis = run_fixture(wrong, only=[axis_id]).axis(axis_id)
    assert axis.status is Status.FAILED
    clause = next(scenario.clause for scenario in load_all("nexo/fixture") if scenario.id == axis_id)
    assert f"rule: {clause}" in axis.detail


def test_what_is_passed_on_unchanged_still_passes(tmp_path: Path) -> None:
    (tmp_path / "between.py").write_text(BETWEEN)
    same = program(tmp_path / "between.py", "x", "x", sys.executable, FIXTURE)
    chosen = ["nexo.fixture.tool", "nexo.fixture.bad_lines"]
    assert run_fixture(same, only=chosen).passed == 3


@requirement("nexo:kit-fixture-capabilities")
def test_a_capability_the_fixture_lacks_skips_its_scenarios_and_fails_them_when_that_is_asked_for(
    tmp_path: Path,
) -> None:
    (tmp_path / "core.py").write_text("print('[\"core\"]')")
    chosen = ["nexo.fixture.recall", "nexo.fixture.tool"]
    report = run_fixture(program(tmp_path / "core.py"), only=chosen)
    assert (report.passed, report.skipped) == (1, 2)
    assert report.axis("nexo.fixture.recall").detail == "the fixture has no capability 'memory'"
    strict = run_fixture(program(tmp_path / "core.py"), only=chosen, strict=True)
    assert (strict.passed, strict.failed) == (1, 2)
    assert "rule: limit is 10 when the handler names none" in strict.axis("nexo.fixture.recall").detail


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("", "it exited without an answer when asked with --print-capabilities"),
        ("print('{}')", "--print-capabilities must print one JSON array of strings on one line"),
        ("print('[1]')", "--print-capabilities must print one JSON array of strings on one line"),
        ("print('[]'); raise SystemExit(3)", "it must exit with 0 after --print-capabilities"),
    ],
)
def test_a_program_that_is_no_fixture_is_told_so_and_nothing_else_is_tried(
    source: str, problem: str, tmp_path: Path
) -> None:
    (tmp_path / "odd.py").write_text(source)
    report = run_fixture(program(tmp_path / "odd.py"))
    (axis,) = report.axes
    assert (axis.id, axis.status) == ("nexo.fixture.capabilities", Status.FAILED)
    assert axis.detail.splitlines() == [
        problem,
        "rule: --print-capabilities prints one JSON array of strings and exits with 0",
        "clause: nexo Plugin Contract 1.10.0, 11.1 Conformance kit",
    ]


def test_a_fixture_that_cannot_be_started_says_why() -> None:
    missing = PluginSpec("fixture", "0", "nexo", Path("/"), ("/nothing/here",))
    assert "it cannot be started" in run_fixture(missing).axes[0].detail


def test_a_contract_without_fixtures_is_refused() -> None:
    with pytest.raises(PlugbayError, match="no scenarios for fixtures of 'rune'"):
        run_fixture(PluginSpec("fixture", "0", "rune", Path("/"), ("x",)))
