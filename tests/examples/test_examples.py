"""Every example is a real plugin: no manifest problem, conforming, answering; and the demo runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from plugbay import SyncHost
from plugbay.conformance.engine.plugin_runner import run_conformance
from plugbay.host.discovery.folders import inspect
from tests.examples import EVERY_CONTRACT
from tests.support.patience import PATIENCE
from tests.support.tiers import first_alone

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(
    path.parent for path in (ROOT / "examples").glob("*/rterm-plugin.json") if path.parent.name != EVERY_CONTRACT
)

SHOWN = (
    "example.greeter",
    "Hello, Ada!",
    "Linux",
    '"mean": 2.8',
    "creme-brulee-twice",
    "Ada drinks tea without milk.",
    "the divisor must not be 0",
    '"write to [e-mail]"',
    '{"type": "message", "from": "guest1", "text": "anybody there?"}',
    '"Always."',
    "What you remember:\\n- Ada is allergic to nuts.",
    "window-compactor: 7 → 4",
    '{"item": "tea", "price": 5.5, "before": 4.2, "above": 5}',
    "Tokens left in November 2026",
    "36.2 M of 100.0 M",
    "2026-11: 63,781,095 of 100,000,000 tokens",
    "the limit is 60,000,000",
    "usage: clock [--utc]",
)
"""What the demo shows: an answer of every plugin, refusals, hooks, a compaction, events of every kind, a screen and
command lines."""


def test_there_are_examples_with_and_without_the_sdk() -> None:
    assert {"greeter", "machine-facts", "number-stats"} <= {path.name for path in EXAMPLES}


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda path: path.name)
def test_an_example_has_a_readme_and_no_manifest_problem(folder: Path) -> None:
    assert inspect(folder).problems == ()
    assert (folder / "README.md").exists()


@pytest.mark.parametrize("folder", first_alone(EXAMPLES), ids=lambda path: path.name)
def test_an_example_conforms(folder: Path) -> None:
    spec = inspect(folder).spec
    assert spec is not None
    report = run_conformance(spec)
    assert [axis for axis in report.axes if axis.status in ("failed", "advice")] == []
    assert report.passed > 10


def test_every_tool_answers_its_own_example_input() -> None:
    with SyncHost.load(*EXAMPLES, grant_all=True) as host:
        for name, export in host.exports().items():
            result = host.attempt(name, export.input_schema["examples"][0])
            assert result.failure is None, (name, result.failure)


def test_the_demo_shows_every_plugin_and_its_answers() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo"],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "160"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for words in SHOWN:
        assert words in done.stdout
