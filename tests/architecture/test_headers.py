"""Every source file opens by saying what it owns."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture import SOURCE, python_files, write_tree


def without_header(package: Path) -> list[str]:
    """The modules that do not open with a docstring; an empty `__init__.py` needs none."""
    return [str(path.relative_to(package)) for path in python_files(package) if not _has_header(path)]


def _has_header(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    if path.name == "__init__.py" and not text.strip():
        return True
    docstring = ast.get_docstring(ast.parse(text))
    return bool(docstring and docstring.strip())


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
