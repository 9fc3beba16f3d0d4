"""ARCHITECTURE.md is a true map: what it names exists, and every package is on it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture import ROOT, is_data, python_files, write_tree

MAP = "ARCHITECTURE.md"
PACKAGE = "src/plugbay"

FENCE = re.compile(r"^(?:```|~~~).*?^(?:```|~~~)", re.MULTILINE | re.DOTALL)
INLINE_CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[\w.*-]+(?:/[\w.*-]+)*/?")
TOP_FOLDERS = (".ci/", "bench/", "distributions/", "docs/", "examples/", "scripts/", "specs/", "src/", "tests/")
FILE_SUFFIXES = (".cfg", ".html", ".ini", ".json", ".md", ".py", ".sql", ".toml", ".txt", ".yaml", ".yml")


def paths_that_are_gone(root: Path) -> list[str]:
    """The paths in backticks for which there is no file, seen from the root or from the package."""
    text = FENCE.sub("", _map_text(root))
    named = sorted({code for code in INLINE_CODE.findall(text) if _looks_like_a_path(code)})
    return [path for path in named if not _exists(root, path)]


def packages_off_the_map(root: Path) -> list[str]:
    """The packages, at any depth, whose name no code on the map contains."""
    text = _map_text(root)
    code = "\n".join([*FENCE.findall(text), *INLINE_CODE.findall(FENCE.sub("", text))])
    return [package for package in _packages(root) if not _is_named(package.rsplit("/")[-1], code)]


def _map_text(root: Path) -> str:
    return (root / MAP).read_text(encoding="utf-8")


def _looks_like_a_path(code: str) -> bool:
    """A path starts in a folder of the repository, or has a folder and a suffix, or is a page at the root.

    `plugin/init` is a method of a contract and `plugbay.toml` a file of the operator: neither is a path here.
    """
    if not PATH.fullmatch(code):
        return False
    return code.startswith(TOP_FOLDERS) or ("/" in code and code.endswith(FILE_SUFFIXES)) or code.endswith(".md")


def _exists(root: Path, path: str) -> bool:
    return any(next(base.glob(path.rstrip("/")), None) is not None for base in (root, root / PACKAGE))


def _packages(root: Path) -> list[str]:
    source = root / PACKAGE
    inits = [path for path in python_files(source) if path.name == "__init__.py" and path.parent != source]
    return [str(path.parent.relative_to(source)) for path in inits if not is_data(path, source)]


def _is_named(name: str, code: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", code) is not None


def test_every_path_on_the_map_exists() -> None:
    assert paths_that_are_gone(ROOT) == []


def test_every_package_is_on_the_map() -> None:
    assert packages_off_the_map(ROOT) == []


def _tree(root: Path, text: str) -> Path:
    files = {MAP: text, "tests/walk/test_walk.py": "", f"{PACKAGE}/__init__.py": ""}
    modules = {
        f"{PACKAGE}/host/__init__.py": "",
        f"{PACKAGE}/host/host.py": "",
        f"{PACKAGE}/host/services/__init__.py": "",
    }
    return write_tree(root, files | modules)


@pytest.mark.parametrize(
    "path",
    [
        "tests/walk/",
        "tests/walk/test_walk.py",
        "src/plugbay/host/host.py",
        "host/host.py",
        "src/plugbay/*/host.py",
        MAP,
    ],
)
def test_a_path_that_exists_is_accepted(tmp_path: Path, path: str) -> None:
    assert paths_that_are_gone(_tree(tmp_path, f"See `{path}`.")) == []


@pytest.mark.parametrize(
    "path", ["tests/wlak", "src/plugbay/host/gone.py", "host/gone.py", "src/plugbay/*/gone.py", "GONE.md"]
)
def test_a_path_that_is_gone_is_reported(tmp_path: Path, path: str) -> None:
    assert paths_that_are_gone(_tree(tmp_path, f"See `{path}` and `host/host.py`.")) == [path]


@pytest.mark.parametrize("code", ["plugin/init", "plugbay.toml", "host.Host.call", "a | b", "specs/<contract>/x.toml"])
def test_code_that_is_no_path_is_left_alone(tmp_path: Path, code: str) -> None:
    assert paths_that_are_gone(_tree(tmp_path, f"See `{code}`.")) == []


def test_a_package_is_on_the_map_when_code_names_it(tmp_path: Path) -> None:
    assert packages_off_the_map(_tree(tmp_path, "```\nhost | sdk   customers\n```\n`host/services`")) == []


def test_a_package_that_only_prose_names_is_reported(tmp_path: Path) -> None:
    assert packages_off_the_map(_tree(tmp_path, "The host has `services`, not a `host-thing`.")) == ["host"]
