"""A module stays small enough to be read in one sitting."""

from __future__ import annotations

from pathlib import Path

from tests.architecture import SOURCE, python_files, write_tree

# The code bases that are easiest to hold in the head keep nine modules of ten below about 420 lines.
MAX_LINES = 400


def too_long(package: Path) -> list[str]:
    """The modules with more than MAX_LINES lines, each with its length."""
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in python_files(package)}
    return [f"{path.relative_to(package)}: {lines}" for path, lines in lengths.items() if lines > MAX_LINES]


def test_no_module_is_longer_than_the_limit() -> None:
    assert too_long(SOURCE) == []


def test_a_module_one_line_over_the_limit_is_reported(tmp_path: Path) -> None:
    write_tree(tmp_path, {"host/full.py": "x = 1\n" * MAX_LINES, "host/over.py": "x = 1\n" * (MAX_LINES + 1)})
    assert too_long(tmp_path) == [f"host/over.py: {MAX_LINES + 1}"]
