"""A minute of fuzzing finds nothing, and a broken promise would be found.

It is the same minute each time: a change is judged by what it changes. `make prove` fuzzes for forty minutes at random.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.fuzz.fuzzing import CORPUS, fuzz, has_atheris
from tests.fuzz.search import search
from tests.fuzz.targets import TARGETS, load
from tests.support.effort import EFFORT
from tests.support.tiers import exhaustive

SECONDS = 60 / len(TARGETS)

HAS_WHEEL = sys.platform == "linux" and os.uname().machine == "x86_64" and sys.version_info < (3, 14)
"""Whether `make setup` installs atheris, as pyproject.toml says. Elsewhere our own search takes its place."""


def test_atheris_is_there_where_it_can_be() -> None:
    assert has_atheris() or not HAS_WHEEL


@exhaustive
@pytest.mark.parametrize("target", TARGETS)
def test_fuzzing_finds_no_broken_promise(target: str, tmp_path: Path) -> None:
    seed = 1 if EFFORT == 1 else 0
    report = fuzz(target, SECONDS * EFFORT, tmp_path / "work", tmp_path / "findings", seed=seed)
    found = [(path.name, path.read_bytes()) for path in report.findings]
    assert report.passed, f"{report}\n{found}\nput each input into tests/fuzz/corpus/{target}\n{report.output[-8000:]}"
    assert report.edges > 0 and report.features > 0


@exhaustive
def test_a_broken_promise_is_found(tmp_path: Path) -> None:
    report = fuzz("control", 60 * EFFORT, tmp_path / "work", tmp_path / "findings", corpus="framing")
    (found,) = report.findings
    assert not report.passed
    with pytest.raises(AssertionError):
        load("control")(found.read_bytes())


@exhaustive
def test_our_own_search_finds_it_too(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "dict").write_bytes(b'"Content-Length"\n')
    flags = {"max_total_time": 60 * EFFORT, "timeout": 60, "max_len": 4096, "dict": tmp_path / "dict"}
    words = [f"-{name}={value}" for name, value in {**flags, "artifact_prefix": f"{tmp_path}/"}.items()]
    with pytest.raises(SystemExit):
        search(load("control"), [*words, str(tmp_path / "work"), str(CORPUS / "framing")])
    (found,) = tmp_path.glob("crash-*")
    with pytest.raises(AssertionError):
        load("control")(found.read_bytes())
