"""File names that mean the same on every file system, and no others."""

from __future__ import annotations

import pytest

from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.rules import MAX_DEPTH, MAX_PART, MAX_PATH, Names, name_problem
from tests.support.requirements import requirement


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "bin/plugin",
        ".hidden",
        "schemas/triage config.json",
        "naïve/été.txt",
        "日本語.md",
        "a" * MAX_PART,
        "x-._~!",
    ],
)
def test_an_honest_name_is_fine(name: str) -> None:
    assert name_problem(name) is None


@requirement("vai:package-unsafe-names")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "empty"),
        ("/etc/passwd", "absolute"),
        ("../x", "'..'"),
        ("a/../../x", "'..'"),
        ("a/./b", "'.'"),
        ("a//b", "''"),
        ("a/", "''"),
        ("..\\x", "special meaning"),
        ("C:/x", "special meaning"),
        ("a\x00b", "cannot be printed"),
        ("a\nb", "cannot be printed"),
        ("a\u202eb", "cannot be printed"),
        ("a ", "space"),
        ("a./b", "dot"),
        ("nul.txt", "Windows"),
        ("b/COM1", "Windows"),
        ("com\u00b9.txt", "Windows"),
        ("con .txt", "Windows"),
        ("what?", "special meaning"),
        ("a\u3164", "cannot be printed"),
        ("a\ufe0f", "cannot be printed"),
        ("a" * (MAX_PART + 1), "part"),
        ("/".join(["ab"] * (MAX_DEPTH + 1)), "deep"),
        ("/".join(["x" * 100] * (MAX_PATH // 100 + 1)), "bytes"),
    ],
)
def test_a_name_that_means_something_else_somewhere_is_refused(name: str, words: str) -> None:
    assert words in (name_problem(name) or "")
    with pytest.raises(PackageRefused) as caught:
        Names().add(name)
    assert caught.value.reason is Reason.UNSAFE_NAME


@requirement("vai:package-unsafe-names")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a", "a"),
        ("README", "readme"),
        ("bin/plugin", "BIN/other"),
        ("straße", "STRASSE"),
        ("caf\u00e9", "cafe\u0301"),
        ("\ufb01le", "file"),
        ("a", "a/b"),
        ("a/b", "a"),
        ("A/b", "a"),
    ],
)
def test_two_names_that_are_one_to_some_file_system_are_refused(first: str, second: str) -> None:
    names = Names()
    names.add(first)
    with pytest.raises(PackageRefused) as caught:
        names.add(second)
    assert caught.value.reason is Reason.DUPLICATE_NAME


def test_names_side_by_side_and_folders_listed_twice_are_fine() -> None:
    names = Names()
    names.add_folder("a/b")
    names.add_folder("a")
    for name in ("a/b/c", "a/b/d", "a/bc", "ab"):
        names.add(name)
    assert len(names) == 6


def test_a_folder_with_the_name_of_a_file_is_refused() -> None:
    names = Names()
    names.add("a")
    with pytest.raises(PackageRefused, match="twice"):
        names.add_folder("a")
