"""Every requirement of a contract is proved by a test, and every id a test names is a requirement."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.architecture import ROOT, TESTS

SPECS = sorted((ROOT / "specs").glob("*/requirements.toml"))


def listed(spec: Path) -> set[str]:
    return set(tomllib.loads(spec.read_text("utf-8"))["requirements"])


def claimed(tests: Path, contract: str) -> set[str]:
    """The ids that tests name in `requirement(…)`."""
    calls = [
        call
        for path in tests.rglob("test_*.py")
        if path != Path(__file__)
        for call in re.findall(r"requirement\(([^)]*)\)", path.read_text("utf-8"))
    ]
    return {id for call in calls for id in re.findall(rf'"({contract}:[^"]+)"', call)}


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.parent.name)
def test_requirements_and_tests_name_each_other(spec: Path) -> None:
    contract = spec.parent.name
    assert listed(spec) - claimed(TESTS, contract) == set(), "without a test"
    assert claimed(TESTS, contract) - listed(spec) == set(), "not in the list"
    assert all(id.startswith(f"{contract}:") for id in listed(spec))


def test_an_id_is_found_wherever_a_test_names_it(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text('@requirement("rune:a", "rune:b")\ndef test(): ...\n@requirement("nexo:c")\n')
    assert claimed(tmp_path, "rune") == {"rune:a", "rune:b"}
