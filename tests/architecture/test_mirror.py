"""The tests mirror the source: each module has its test file, each test file its module."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture import SOURCE, TESTS, is_data, python_files, write_tree

# Folders of tests that follow a story through many modules instead of one module.
STORY_FOLDERS = frozenset(
    "architecture deploy docs e2e examples faults fuzz load mutation sandbox scripts soak support walk".split()
)
WITHOUT_OWN_TESTS = frozenset({"__init__.py", "__main__.py"})


def modules_without_tests(package: Path, tests: Path) -> list[str]:
    """The modules for which `tests/<package>/test_<module>.py` is missing."""
    modules = [path for path in python_files(package) if _needs_tests(path, package)]
    return [str(path.relative_to(package)) for path in modules if not _test_of(path, package, tests).is_file()]


def orphaned_tests(package: Path, tests: Path) -> list[str]:
    """The test files that mirror no module."""
    mirrors = [path for path in sorted(tests.rglob("test_*.py")) if _is_mirror(path, tests)]
    return [str(path.relative_to(tests)) for path in mirrors if not _module_of(path, package, tests).is_file()]


def _needs_tests(module: Path, package: Path) -> bool:
    return module.name not in WITHOUT_OWN_TESTS and not is_data(module, package)


def _is_mirror(test: Path, tests: Path) -> bool:
    return test.relative_to(tests).parts[0] not in STORY_FOLDERS


def _test_of(module: Path, package: Path, tests: Path) -> Path:
    return (tests / module.relative_to(package)).with_name(f"test_{module.name}")


def _module_of(test: Path, package: Path, tests: Path) -> Path:
    return (package / test.relative_to(tests)).with_name(test.name.removeprefix("test_"))


def test_every_module_has_its_test_file() -> None:
    assert modules_without_tests(SOURCE, TESTS) == []


def test_every_test_file_has_its_module() -> None:
    assert orphaned_tests(SOURCE, TESTS) == []


@pytest.fixture
def trees(tmp_path: Path) -> tuple[Path, Path]:
    package = write_tree(
        tmp_path / "src",
        {
            "__main__.py": "",
            "contracts/rune/__init__.py": "",
            "contracts/rune/machine.py": "",
            "conformance/bad_plugins/programs/crash.py": "",
            "conformance/scenarios/rune/greeting.py": "",
        },
    )
    tests = write_tree(tmp_path / "tests", {"contracts/rune/test_machine.py": "", "walk/test_walk.py": ""})
    return package, tests


def test_a_tree_that_mirrors_the_source_is_accepted(trees: tuple[Path, Path]) -> None:
    assert modules_without_tests(*trees) == []
    assert orphaned_tests(*trees) == []


def test_a_module_without_a_test_file_is_reported(trees: tuple[Path, Path]) -> None:
    write_tree(trees[0], {"contracts/rune/errors.py": ""})
    assert modules_without_tests(*trees) == ["contracts/rune/errors.py"]


def test_a_test_file_in_the_wrong_folder_does_not_count(trees: tuple[Path, Path]) -> None:
    write_tree(trees[0], {"contracts/nexo/machine.py": ""})
    assert modules_without_tests(*trees) == ["contracts/nexo/machine.py"]


def test_a_test_file_without_a_module_is_reported(trees: tuple[Path, Path]) -> None:
    write_tree(trees[1], {"contracts/rune/test_gone.py": "", "test_stray.py": ""})
    assert orphaned_tests(*trees) == ["contracts/rune/test_gone.py", "test_stray.py"]


def test_a_story_folder_is_free_only_at_the_top(trees: tuple[Path, Path]) -> None:
    write_tree(trees[1], {"host/walk/test_walk.py": "", "e2e/rune/test_call.py": ""})
    assert orphaned_tests(*trees) == ["host/walk/test_walk.py"]
