"""Every source file opens by saying what it owns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture import SOURCE, python_files, write_tree


def without_header(package: Path) -> list[str]:
    """The modules that do not open with a docstring; an empty `__init__.py` needs none."""
    return [str(path.relative_to(package)) for path in python_files(package) if not _has_header(path)]


HEADER = re.compile(r'(#.*\n)*r?"""\s*[^\s"]')
"""To parse all modules takes 9 s. The formatter lets a docstring open in no other way."""


def _has_header(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    return (path.name == "__init__.py" and not text.strip()) or bool(HEADER.match(text))


def test_every_module_opens_with_a_docstring() -> None:
    assert without_header(SOURCE) == []


@pytest.mark.parametrize(
    "text", ["", "x = 1\n", "# A comment is not a header.\nx = 1\n", '""" """\n', 'x = 1\n"""Late."""\n']
)
def test_a_module_without_a_docstring_is_reported(tmp_path: Path, text: str) -> None:
    write_tree(tmp_path, {"host/__init__.py": "", "host/good.py": '"""Owns."""\n', "host/bad.py": text})
    assert without_header(tmp_path) == ["host/bad.py"]


def test_a_package_that_holds_code_needs_a_docstring_too(tmp_path: Path) -> None:
    write_tree(tmp_path, {"host/__init__.py": "x = 1\n"})
    assert without_header(tmp_path) == ["host/__init__.py"]
