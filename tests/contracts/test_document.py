"""Files as text: values, and the line of each key."""

from __future__ import annotations

import pytest

from plugbay.contracts.document import Document, dotted, parse_json, parse_toml
from plugbay.model.errors import Problem

JSON = """{
  "id": "x",
  "tools": [
    {"name": "a"},
    {
      "name": "b\\"[{,",
      "deep": {"er": [1,
        2]}
    }
  ]
}"""

TOML = '''# a comment
title = "x"
[host]
log_dir = "logs"

[plugins."a.b"]
grants = [
  "one",
  "two = 3",
]
note = """
enabled = false
"""
enabled = true
[[tools]]
name = "first"
[[tools]]
name = "second"
[tools.extra]
deep.er = 1
'''


def document(text: str, *, toml: bool = False) -> Document:
    parsed = parse_toml(text) if toml else parse_json(text)
    assert isinstance(parsed, Document)
    return parsed


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ((), 1),
        (("id",), 2),
        (("tools",), 3),
        (("tools", 0, "name"), 4),
        (("tools", 1), 5),
        (("tools", 1, "name"), 6),
    ],
)
def test_json_keys_have_their_line(path: tuple[str | int, ...], line: int) -> None:
    assert document(JSON).line(path) == line


def test_a_path_without_a_line_has_that_of_its_nearest_parent() -> None:
    assert document(JSON).line(("tools", 1, "missing", "deeper")) == 5
    assert document(JSON).line(("tools", 1, "deep", "er", 1)) == 8


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("title",), 2),
        (("host",), 3),
        (("host", "log_dir"), 4),
        (("plugins", "a.b"), 6),
        (("plugins", "a.b", "grants"), 7),
        (("plugins", "a.b", "enabled"), 14),
        (("tools", 0, "name"), 16),
        (("tools", 1, "name"), 18),
        (("tools", 1, "extra", "deep", "er"), 20),
    ],
)
def test_toml_keys_have_their_line_also_after_values_over_several_lines(path: tuple[str | int, ...], line: int) -> None:
    assert document(TOML, toml=True).line(path) == line


def test_a_path_reads_as_people_write_it() -> None:
    assert dotted(("tools", 1, "name")) == "tools[1].name"
    assert dotted(()) == ""


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('{"a": 1,\n b: 2}', 2, "not JSON"),
        ("", 1, "not JSON"),
        ('{"a": NaN}', None, "NaN is not JSON"),
        ('{"a": ["\\ud800"]}', None, "surrogate"),
        ('{"a": 1,\n"a": 2}', None, "the key 'a' appears twice"),
        ("[" * 100 + "]" * 100, None, "nested deeper"),
        ("[" * 100_000 + "]" * 100_000, None, "not usable JSON"),
    ],
)
def test_text_that_is_no_usable_json_is_one_problem(text: str, line: int | None, words: str) -> None:
    problem = parse_json(text)
    assert isinstance(problem, Problem)
    assert problem.line == line
    assert words in problem.message


@pytest.mark.parametrize(("text", "line"), [("a = \n", 1), ("a = 1\na = 2\n", 2), ("[x\n", 1)])
def test_text_that_is_no_toml_is_one_problem_with_its_line(text: str, line: int) -> None:
    problem = parse_toml(text)
    assert isinstance(problem, Problem)
    assert problem.line == line


@pytest.mark.parametrize(
    "text",
    ["a = " + "9" * 5_000, "plugin." + "a." * 20_000 + "b = 1", "a = " + "[" * 500 + "]" * 500],
    ids=["a number of 5,000 digits", "a key of 20,000 parts", "500 lists in each other"],
)
def test_toml_that_no_reader_should_meet_is_a_problem_and_no_crash(text: str) -> None:
    problem = parse_toml(text)
    assert isinstance(problem, Problem)
    assert problem.message.startswith("not usable TOML")


def test_a_key_that_would_take_minutes_to_read_is_not_read_at_all() -> None:
    problem = parse_toml("[plugin]\nx = {\n" + "a . 'b' ." * 200_000 + "c = 1}")
    assert isinstance(problem, Problem)
    assert (problem.line, problem.message) == (3, "not usable TOML: a key of more than 64 parts")


def test_tables_as_deep_as_anybody_writes_are_read() -> None:
    document = parse_toml("a." * 60 + "b = 1")
    assert not isinstance(document, Problem)


@pytest.mark.parametrize("number", ["0x" + "f" * 4000, "0b1" + "0" * 64, "18446744073709551616"])
def test_an_integer_beyond_64_bits_is_a_problem_of_its_file(number: str) -> None:
    problem = parse_toml(f"[a]\nb = [1, {{ c = {number} }}]")
    assert isinstance(problem, Problem) and "more than 64 bits" in problem.message
    assert isinstance(parse_toml("a = 0xffff_ffff_ffff_ffff"), Document)
