"""Every input of the corpus keeps the promises of its target: examples, and all that fuzzing ever found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.fuzzing import CORPUS, seeds
from tests.fuzz.targets import TARGETS, load


@pytest.mark.parametrize(
    "path", [path for target in TARGETS for path in seeds(target)], ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_an_input_of_the_corpus_breaks_no_promise(path: Path) -> None:
    load(path.parent.name)(path.read_bytes())


def test_every_target_has_a_corpus_and_every_corpus_a_target() -> None:
    assert sorted(path.name for path in CORPUS.iterdir()) == sorted(TARGETS)
