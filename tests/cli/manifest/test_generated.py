"""The mark and the digest of generated files."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest

from plugbay.cli.manifest.generated import (
    Change,
    Mark,
    add_mark,
    digest_source,
    plan_files,
    read_mark,
    strip_mark,
    write,
)

MARK = Mark("plugin.py", "0123456789abcdef")
SOURCE = b'@tool()\ndef look(city: str = "Lima"):\n    """Look out."""\n    return 1\n'


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("rterm-plugin.json", '{\n  "plugin_id": "p"\n}\n'),
        ("nexo-plugin.toml", '[plugin]\nid = "p"\n'),
        ("kaged-plugin.yaml", 'name: "p"\n'),
    ],
)
def test_a_mark_can_be_read_and_taken_away_again(path: str, text: str) -> None:
    said = add_mark(path, text, MARK)
    assert said != text
    assert read_mark(said) == MARK
    assert strip_mark(said) == text


@pytest.mark.parametrize(
    ("left_out", "read"),
    [("hooks before_message; screens usage", None), ('a"b\n# c', "a?b?? c"), ("x" * 1500, "x" * 1000), ("a. b", None)],
    ids=["words", "what ends a comment or a string", "too much", "a full stop"],
)
@pytest.mark.parametrize("path", ["rterm-plugin.json", "nexo-plugin.toml"])
def test_a_mark_says_what_was_left_out(path: str, left_out: str, read: str | None) -> None:
    text = '{\n  "a": 1\n}\n' if path.endswith(".json") else "a = 1\n"
    said = add_mark(path, text, MARK._replace(left_out=left_out))
    assert read_mark(said) == MARK._replace(left_out=read or left_out)
    assert strip_mark(said) == text
    assert (json.loads(said) if path.endswith(".json") else tomllib.loads(said))["a"] == 1


def test_a_marked_file_is_still_what_it_was() -> None:
    assert json.loads(add_mark("rterm-plugin.json", '{\n  "a": 1\n}\n', MARK))["a"] == 1
    assert tomllib.loads(add_mark("manifest.toml", "a = 1\n", MARK)) == {"a": 1}


def test_a_program_is_marked_below_its_first_line_and_without_the_digest() -> None:
    said = add_mark("bin/plugin", "#!/bin/sh\nexit 0\n", MARK)
    assert said.startswith("#!/bin/sh\n# Written by plugbay from plugin.py. ")
    assert read_mark(said) == Mark("plugin.py", "")
    assert strip_mark(said) == "#!/bin/sh\nexit 0\n"


def test_a_schema_is_not_marked() -> None:
    assert add_mark("schemas/look_input.json", "{}\n", MARK) == "{}\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# written by hand\n",
        "x" * 5000 + add_mark("a.toml", "", MARK),
        add_mark("a.toml", "", Mark("../../etc/passwd", MARK.digest)),
    ],
    ids=["empty", "another comment", "far below", "a file elsewhere"],
)
def test_what_looks_like_a_mark_is_none(text: str) -> None:
    assert read_mark(text) is None
    assert strip_mark(text) == text


# The digest.


@pytest.mark.parametrize(
    "other",
    [
        SOURCE.replace(b"return 1", b"x = 2\n    return x"),
        SOURCE.replace(b"\n    return", b"\n\n    # a comment\n    return"),
        SOURCE.replace(b'"""Look out."""', b"'Look out.'"),
        b"# a comment\n" + SOURCE,
    ],
    ids=["a body", "a comment in it", "other quotes", "a comment above"],
)
def test_what_a_function_does_is_not_in_the_digest(other: bytes) -> None:
    assert other != SOURCE
    assert digest_source(other) == digest_source(SOURCE)


@pytest.mark.parametrize(
    "other",
    [
        SOURCE.replace(b"look", b"see"),
        SOURCE.replace(b"str", b"int"),
        SOURCE.replace(b'"Lima"', b'"Oslo"'),
        SOURCE.replace(b"Look out", b"Look in"),
        SOURCE.replace(b"@tool()", b"@tool(name='x')"),
        SOURCE.replace(b"def", b"async def"),
        SOURCE + b"VERSION = 2\n",
        SOURCE + b"class A:\n    def f(self, x: int): ...\n",
    ],
    ids=["name", "type", "default", "docstring", "decorator", "async", "constant", "class"],
)
def test_what_a_source_declares_is_in_the_digest(other: bytes) -> None:
    assert digest_source(other) != digest_source(SOURCE)


@pytest.mark.parametrize(
    "source",
    [b"def", b"\xff", b"x = '\0'", b"-" * 100_000 + b"1", b"a." * 100_000 + b"b", b"(" * 1000],
    ids=["half", "bytes", "a NUL", "many signs", "many names", "many brackets"],
)
def test_what_is_no_python_has_no_digest(source: bytes) -> None:
    with pytest.raises(ValueError):
        digest_source(source)


# What writing would do.


TEXTS = {"manifest.toml": "a = 1\n", "lamp": "#!/bin/sh\n", "schemas/x.json": "{}\n"}


def changes(folder: Path, texts: dict[str, str] = TEXTS, mark: Mark = MARK) -> dict[str, str]:
    return {plan.path: plan.change for plan in plan_files(folder, texts, mark)}


def write_all(folder: Path, texts: dict[str, str] = TEXTS) -> None:
    for plan in plan_files(folder, texts, MARK):
        write(folder, plan)


def test_files_that_are_not_there_are_new_and_then_the_same(tmp_path: Path) -> None:
    assert set(changes(tmp_path).values()) == {Change.NEW}
    write_all(tmp_path)
    assert set(changes(tmp_path).values()) == {Change.SAME}
    assert os.access(tmp_path / "lamp", os.X_OK)
    assert not os.access(tmp_path / "manifest.toml", os.X_OK)


def test_files_of_ours_that_would_say_something_else_are_changed(tmp_path: Path) -> None:
    write_all(tmp_path)
    other = {"manifest.toml": "a = 2\n", "lamp": "#!/bin/dash\n", "schemas/x.json": '{"type": "object"}\n'}
    assert set(changes(tmp_path, other).values()) == {Change.CHANGED}


def test_another_digest_changes_the_mark_and_is_no_drift(tmp_path: Path) -> None:
    write_all(tmp_path)
    plans = plan_files(tmp_path, TEXTS, Mark("plugin.py", "f" * 16))
    assert [plan.change for plan in plans] == [Change.REMARKED, Change.SAME, Change.SAME]
    assert not any(plan.drifted for plan in plans)


def test_files_without_a_mark_are_written_by_hand(tmp_path: Path) -> None:
    write_all(tmp_path)
    (tmp_path / "manifest.toml").write_text("a = 3\n")
    (tmp_path / "lamp").write_text("#!/bin/false\n")
    (tmp_path / "schemas" / "x.json").write_text("[]\n")
    assert set(changes(tmp_path).values()) == {Change.FOREIGN}


def test_a_file_without_a_mark_that_says_the_same_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "manifest.toml").write_text("a = 1\n")
    assert changes(tmp_path)["manifest.toml"] == Change.REMARKED


def test_a_difference_is_shown_without_the_marks(tmp_path: Path) -> None:
    write_all(tmp_path)
    plan = plan_files(tmp_path, {"manifest.toml": "a = 2\n"}, Mark("plugin.py", "f" * 16))[0]
    assert plan.difference()[2:] == ["@@ -1 +1 @@", "-a = 1", "+a = 2"]
