"""The tables of proofs are true: each test that they name exists, and a row without a test says so."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from tests.architecture import write_tree
from tests.docs.test_snippets import ROOT

HEADING = "\n## Proof of each defence\n"
COLUMNS = 4
UNTESTED = "not tested"
NAMED = re.compile(r"`(tests/[^`]+)`")


def proofs(text: str) -> dict[str, list[str]]:
    """The tests that each row names, by the row's id; raises ValueError for a row that is none."""
    found: dict[str, list[str]] = {}
    for line in text.partition(HEADING)[2].partition("\n## ")[0].splitlines():
        if not line.startswith("| ") or line.startswith("| id "):
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != COLUMNS or not all(cells) or cells[0] in found:
            raise ValueError(f"not a row of its own with {COLUMNS} cells: {line}")
        found[cells[0]] = NAMED.findall(cells[3])
        if bool(found[cells[0]]) == (UNTESTED in cells[3]):
            raise ValueError(f"neither a test nor {UNTESTED!r}, or both: {line}")
    return found


def missing(root: Path, named: list[str]) -> list[str]:
    """The named tests that are not there, as `path` or as `path::function`."""
    return [name for name in named if not _exists(root, *name.split("::"))]


def _exists(root: Path, path: str, function: str | None = None) -> bool:
    file = root / path
    is_test_file = file.is_file() and re.fullmatch(r"test_\w+\.py", file.name) is not None
    return is_test_file and (function is None or function in _functions(file))


@functools.cache
def _functions(file: Path) -> set[str]:
    return set(re.findall(r"^def (test_\w+)\(", file.read_text("utf-8"), re.MULTILINE))


def test_each_named_test_exists() -> None:
    found = proofs((ROOT / "docs" / "security.md").read_text("utf-8"))
    assert found, "the page has no tables of proofs"
    assert missing(ROOT, [name for names in found.values() for name in names]) == []


def test_a_name_that_is_no_test_is_reported(tmp_path: Path) -> None:
    code = "def test_one() -> None: ...\ndef helper() -> None:\n    def test_inner() -> None: ...\n"
    write_tree(tmp_path, {"tests/test_a.py": code, "tests/driver.py": code})
    good = ["tests/test_a.py", "tests/test_a.py::test_one"]
    bad = [
        "tests/test_b.py",
        "tests/test_a.py::test_two",
        "tests/test_a.py::helper",
        "tests/test_a.py::test_inner",
        "tests/driver.py::test_one",
    ]
    assert missing(tmp_path, [*good, *bad]) == bad


@pytest.mark.parametrize(
    "row",
    [
        "| Z1 | attack | outcome |",
        "| Z1 | attack | outcome | |",
        "| Z1 | attack | outcome | soon |",
        "| Z1 | attack | outcome | `tests/test_a.py`, not tested |",
        "| Z0 | attack | outcome | not tested |",
    ],
)
def test_a_row_that_proves_nothing_is_refused(row: str) -> None:
    head = f"{HEADING}\n| id | attack | outcome | test |\n|---|---|---|---|\n"
    good = "| Z0 | attack | outcome | `tests/test_a.py::test_one`, `tests/test_b.py` |\n"
    assert proofs(head + good) == {"Z0": ["tests/test_a.py::test_one", "tests/test_b.py"]}
    with pytest.raises(ValueError, match="Z"):
        proofs(f"{head}{good}{row}\n")
