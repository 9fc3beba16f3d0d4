"""Files in YAML as text: values, the line of each key, and everything that is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.document import MAX_DEPTH, Document
from plugbay.contracts.yaml_document import MAX_CHARS, MAX_DIGITS, parse_yaml
from plugbay.model.errors import Problem
from tests.support.requirements import requirement

YAML = """# a comment
name: x
tools:
  - name: a
    text: >-
      over
      lines
  -
    name: b
    deep: {er: [1,
      2]}
empty:
last: |
  key: no key
"""


def document(text: str) -> Document:
    parsed = parse_yaml(text)
    assert isinstance(parsed, Document), parsed
    return parsed


def problem(text: str) -> Problem:
    parsed = parse_yaml(text)
    assert isinstance(parsed, Problem), parsed
    return parsed


def test_the_value_is_what_json_would_say() -> None:
    assert document(YAML).value == {
        "name": "x",
        "tools": [{"name": "a", "text": "over lines"}, {"name": "b", "deep": {"er": [1, 2]}}],
        "empty": None,
        "last": "key: no key\n",
    }


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ((), 1),
        (("name",), 2),
        (("tools",), 3),
        (("tools", 0), 4),
        (("tools", 0, "text"), 5),
        (("tools", 1, "name"), 9),
        (("tools", 1, "deep", "er", 1), 11),
        (("tools", 1, "missing"), 9),
        (("empty",), 12),
        (("last",), 13),
        (("missing", "deeper"), 1),
    ],
)
def test_keys_and_items_have_their_line(path: tuple[str | int, ...], line: int) -> None:
    assert document(YAML).line(path) == line


@requirement("kaged:manifest-yaml-core-schema")
@pytest.mark.parametrize(
    ("written", "meant"),
    [
        *((word, word) for word in ("on", "off", "yes", "no", "y", "N", "On", "tRue", "nUll")),
        *((word, word) for word in ("1_000", "12:30:00", "2001-12-14", "0b11", "1.2.3", "=", "<<", "0o8", "1e", ".")),
        *((word, True) for word in ("true", "True", "TRUE")),
        *((word, False) for word in ("false", "False", "FALSE")),
        *((word, None) for word in ("null", "Null", "NULL", "~", "")),
        *((word, 8080) for word in ("8080", "+8080", "0o17620", "0x1F90", "08080")),
        ("-0", 0),
        ("1.10", 1.1),
        ("-.5e1", -5.0),
        ("1.", 1.0),
        ("1e3", 1000.0),
        ("'8080'", "8080"),
        ('"1.10"', "1.10"),
        ("'true'", "true"),
        ("''", ""),
        ("net:[]", "net:[]"),
        ('"\\ud83d\\ude00"', "\U0001f600"),
    ],
)
def test_a_scalar_means_what_the_core_schema_of_1_2_says(written: str, meant: Any) -> None:
    found = document(f"- {written}\n").value[0]
    assert found == meant
    assert type(found) is type(meant)


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "~"])
def test_a_file_without_a_value_has_none(text: str) -> None:
    assert document(text).value is None


def test_json_is_yaml_too() -> None:
    value = {"a": [1, -2.5, "x\n\u00e9\U0001f600", None, True, {"b": {}}], "c: d": []}
    assert document(json.dumps(value, indent=1)).value == value


def test_an_anchor_that_nothing_points_to_does_no_harm() -> None:
    assert document("%YAML 1.2\n---\na: &x 1\n...\n").value == {"a": 1}


@requirement("kaged:manifest-yaml-strict")
@pytest.mark.parametrize(
    ("text", "line", "path", "words"),
    [
        ("a: 1\nb:\n  c: 1\n  c: 2\n", 4, "b.c", "'c' appears twice"),
        ('a: 1\n"a": 2\n', 2, "a", "'a' appears twice"),
        ("a: &x 1\nb: *x\n", 2, "b", "aliases"),
        ("a: &x\n  - *x\n", 2, "a[0]", "aliases"),
        ("&x a: 1\n*x : 2\n", 2, "", "aliases"),
        ("a: !!python/object:os.system x\n", 1, "a", "tags"),
        ("a:\n  - !custom {b: 1}\n", 2, "a[0]", "tags"),
        ("a: !!str 1.10\n", 1, "a", "tags"),
        ("!!str a: 1\n", 1, "", "tags"),
        ("a:\n  8080: x\n", 2, "a", "a key must be text; put it in quotes"),
        ("true: x\n", 1, "", "a key must be text"),
        ("? [a]\n: b\n", 1, "", "a key must be text"),
        ("a: 1\n---\nb: 2\n", 2, "", "a second document"),
        ("%YAML 1.1\n---\na: on\n", 2, "", "only version 1.2"),
        ("a:\n  b: .nan\n", 2, "a.b", "JSON has no number .nan"),
        ("a: -.INF\n", 1, "a", "JSON has no number -.INF"),
        ("a: 1e999\n", 1, "a", "too large"),
        (f"a: {'9' * (MAX_DIGITS + 1)}\n", 1, "a", "too large"),
        (f"a: 0x{'f' * MAX_DIGITS}\n", 1, "a", "too large"),
        ('a: "\\ud800"\n', 1, "a", "surrogate"),
        ("#" * (MAX_CHARS + 1), None, "", "longer than"),
        ("[" * 5_000, 1, "", "nested deeper"),
        ("- " * 5_000, 1, "", "nested deeper"),
    ],
)
def test_what_could_surprise_is_refused_where_it_stands(text: str, line: int | None, path: str, words: str) -> None:
    found = problem(text)
    assert (found.code, found.severity, found.line, found.path) == ("parse_error", "error", line, path)
    assert found.message.startswith("not usable YAML: ")
    assert words in found.message


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: [", 1),
        ("a: 1\nb: 'x", 2),
        ("a:\n\t- b", 2),
        ("a: b: c", 1),
        ("a: 1\nb: \0", 2),
        ("a: \ud800", 1),
        ("%YAML 2.0\n---\na", 1),
        ("%YAML 1.3\n---\na", None),
        ('"\\UFFFFFFFF"', None),
    ],
)
def test_text_that_is_no_yaml_is_one_problem_with_its_line(text: str, line: int | None) -> None:
    found = problem(text)
    assert (found.code, found.line) == ("parse_error", line)
    assert found.message.startswith("not YAML: ")


def test_what_is_as_deep_long_and_large_as_allowed_is_read() -> None:
    deep = document("[" * MAX_DEPTH + "]" * MAX_DEPTH).value
    for _ in range(MAX_DEPTH - 1):
        deep = deep[0]
    assert deep == []
    assert document("a: '" + "x" * (MAX_CHARS - 5) + "'").value["a"].startswith("xxx")
    assert document("a: " + "9" * MAX_DIGITS).value["a"] == int("9" * MAX_DIGITS)


@given(st.text())
def test_no_text_makes_it_raise(text: str) -> None:
    assert isinstance(parse_yaml(text), Document | Problem)


@given(st.text(alphabet="ab:-[]{},&*!|>%#?'\"\\ \n\tu0U1.~<", max_size=60))
def test_no_text_full_of_signs_makes_it_raise_and_every_value_is_json(text: str) -> None:
    parsed = parse_yaml(text)
    if isinstance(parsed, Document):
        json.dumps(parsed.value, allow_nan=False).encode()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_everything_json_can_say_comes_back_from_its_json(value: Any) -> None:
    assert document(json.dumps(value)).value == value
