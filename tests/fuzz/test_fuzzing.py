"""Changed inputs of the corpora break no promise, and a broken promise would be found.

The changes are the same each time: a change of the code is judged by what it changes. `make fuzz` searches at random.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.fuzz.fuzzing import CORPUS, MAX_INPUT, fuzz, has_atheris, seeds, words
from tests.fuzz.search import Mutator, search
from tests.fuzz.targets import TARGETS, load
from tests.support.effort import EFFORT
from tests.support.tiers import exhaustive

INPUTS = 2_000
"""Of each target."""

SECONDS = 60 * EFFORT
"""Until a promise that is broken must have been found."""

HAS_WHEEL = sys.platform == "linux" and os.uname().machine == "x86_64" and sys.version_info < (3, 14)
"""Whether `make setup` installs atheris, as pyproject.toml says. Elsewhere our own search takes its place."""


def test_atheris_is_there_where_it_can_be() -> None:
    assert has_atheris() or not HAS_WHEEL


@exhaustive
@pytest.mark.parametrize("target", TARGETS)
def test_changed_inputs_of_the_corpus_break_no_promise(target: str) -> None:
    check, known = load(target), [path.read_bytes() for path in seeds(target)]
    mutator = Mutator(words(target), MAX_INPUT, seed=1)
    for _ in range(INPUTS):
        data = mutator.mutate(known)
        try:
            check(data)
        except Exception as error:
            raise AssertionError(f"put this input into tests/fuzz/corpus/{target}: {data!r}") from error


@exhaustive
def test_a_broken_promise_is_found(tmp_path: Path) -> None:
    report = fuzz("control", SECONDS, tmp_path / "work", tmp_path / "findings", corpus="framing")
    (found,) = report.findings
    assert not report.passed
    with pytest.raises(AssertionError):
        load("control")(found.read_bytes())


@exhaustive
def test_our_own_search_finds_it_too(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "dict").write_bytes(b'"Content-Length"\n')
    flags = {"max_total_time": SECONDS, "timeout": 60, "max_len": 4096, "dict": tmp_path / "dict"}
    words = [f"-{name}={value}" for name, value in {**flags, "artifact_prefix": f"{tmp_path}/"}.items()]
    with pytest.raises(SystemExit):
        search(load("control"), [*words, str(tmp_path / "work"), str(CORPUS / "framing")])
    (found,) = tmp_path.glob("crash-*")
    with pytest.raises(AssertionError):
        load("control")(found.read_bytes())
