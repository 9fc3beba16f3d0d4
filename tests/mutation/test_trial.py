"""The tests of a module that decides catch its mutants; a survivor that no reason explains is red."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.mutation.__main__ import find_red
from tests.mutation.trial import ROOT, Result
from tests.support.patience import PATIENCE
from tests.support.tiers import exhaustive

MODULE = "plugbay.host.supervision.restart"
"""The smallest; `make prove` tries all."""


def try_mutants(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.mutation", *options, MODULE]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)


@exhaustive
def test_every_mutant_is_caught_or_explained() -> None:
    ended = try_mutants()
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout


def test_a_survivor_without_a_reason_and_a_reason_without_a_survivor_are_red() -> None:
    results = [Result("a", survived=True), Result("b", survived=True), Result("c", survived=False)]
    assert find_red(results, {"a", "b"}) == []
    assert find_red(results, {"a", "c", "d"}) == [
        "survives: b",
        "explained, but caught or gone: c",
        "explained, but caught or gone: d",
    ]


@exhaustive
def test_a_red_module_ends_with_an_error(tmp_path: Path) -> None:
    explained = tmp_path / "explained.toml"
    explained.write_text(f'["{MODULE}"]\n"f: a -> b" = "not there"\n')
    ended = try_mutants("--explained", str(explained))
    assert (ended.returncode, "caught or gone: f: a -> b" in ended.stdout) == (1, True)
