"""A minute of fuzzing finds nothing, and a broken promise would be found; `make prove` fuzzes for forty minutes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.fuzz.fuzzing import fuzz, is_available
from tests.fuzz.targets import TARGETS, load
from tests.support.effort import EFFORT
from tests.support.tiers import exhaustive

SECONDS = 60 / len(TARGETS)

HAS_WHEEL = sys.platform == "linux" and os.uname().machine == "x86_64" and sys.version_info < (3, 14)
"""Whether `make setup` installs atheris, as pyproject.toml says; elsewhere it is built from source, or not there."""

needs_atheris = pytest.mark.skipif(
    not is_available() and not HAS_WHEEL, reason="atheris has no wheel for this Python and machine"
)


@exhaustive
@needs_atheris
@pytest.mark.parametrize("target", TARGETS)
def test_fuzzing_finds_no_broken_promise(target: str, tmp_path: Path) -> None:
    report = fuzz(target, SECONDS * EFFORT, tmp_path / "work", tmp_path / "findings")
    found = [(path.name, path.read_bytes()) for path in report.findings]
    assert report.passed, f"{report}\n{found}\nput each input into tests/fuzz/corpus/{target}\n{report.output[-8000:]}"
    assert report.edges > 0 and report.features > 0


@exhaustive
@needs_atheris
def test_a_broken_promise_is_found(tmp_path: Path) -> None:
    report = fuzz("control", 60 * EFFORT, tmp_path / "work", tmp_path / "findings", corpus="framing")
    (found,) = report.findings
    assert not report.passed
    with pytest.raises(AssertionError):
        load("control")(found.read_bytes())
