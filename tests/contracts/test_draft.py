"""A draft reads what is there, passes over what has the wrong type, and reports with lines."""

from __future__ import annotations

import pytest

from plugbay.contracts.document import Document, parse_toml
from plugbay.contracts.draft import Draft
from plugbay.contracts.yaml_document import parse_yaml
from plugbay.model.errors import Problem


def draft(text: str) -> Draft:
    document = parse_toml(text)
    assert isinstance(document, Document)
    return Draft(document, "plugin")


WHOLE = """
[plugin]
id = "x"
size = 3
flag = true
names = ["a", 1, "b"]
[[plugin.gates.gate]]
env = "A"
[[plugin.gates.gate]]
env = "B"
"""


def test_values_are_read_from_inside_the_plugin_table() -> None:
    whole = draft(WHOLE)
    assert whole.value("id") == "x"
    assert whole.text("id") == "x"
    assert whole.table("gates") == {"gate": [{"env": "A"}, {"env": "B"}]}
    assert whole.number("size", default=9) == 3
    assert whole.texts("names") == [(("names", 0), "a"), (("names", 2), "b")]
    assert whole.tables("gates", "gate") == [(("gates", "gate", 0), {"env": "A"}), (("gates", "gate", 1), {"env": "B"})]


@pytest.mark.parametrize("text", ["", "plugin = 3", "plugin = []", "[plugin]", "[plugin]\nx = 1979-05-27"])
def test_what_is_missing_or_of_another_type_is_passed_over(text: str) -> None:
    other = draft(text)
    assert other.value("x", "y") is None
    assert other.text("x") is None
    assert other.table("x") == {}
    assert other.number("x", default=9) == 9
    assert other.texts("x") == []
    assert other.tables("x") == []


def test_a_bool_is_not_a_number() -> None:
    assert draft(WHOLE).number("flag", default=9) == 9


def test_problems_carry_their_line_and_their_whole_path() -> None:
    whole = draft(WHOLE)
    whole.error("bad", ("gates", "gate", 1, "env"), "is bad")
    whole.warn("odd", ("names", 2), "is odd")
    assert [problem.to_json() for problem in whole.problems] == [
        {"severity": "error", "code": "bad", "path": "plugin.gates.gate[1].env", "line": 10, "message": "is bad"},
        {"severity": "warning", "code": "odd", "path": "plugin.names[2]", "line": 6, "message": "is odd"},
    ]


TEXT = """name: x
env: {A: b}
tools:
  - name: t
  - 3
methods:
  - a.b
  - 7
"""


def outermost() -> Draft:
    document = parse_yaml(TEXT)
    assert isinstance(document, Document)
    return Draft(document)


def test_a_document_without_a_table_around_everything_is_read_from_its_top() -> None:
    found = outermost()
    assert (found.text("name"), found.text("env"), found.text("nothing", "here")) == ("x", None, None)
    assert (found.table("env"), found.table("name"), found.value("env", "A")) == ({"A": "b"}, {}, "b")
    assert found.texts("methods") == [(("methods", 0), "a.b")]
    assert found.tables("tools") == [(("tools", 0), {"name": "t"})]
    assert found.texts("name") == []


def test_a_report_from_the_top_has_its_path_and_its_line() -> None:
    found = outermost()
    found.error("bad", ("methods", 1), "no")
    found.warn("odd", ("tools", 0, "name"), "hm")
    assert found.problems == [
        Problem("bad", "methods[1]", "no", line=8),
        Problem("odd", "tools[0].name", "hm", line=4, severity="warning"),
    ]


def test_unknown_keys_are_warned_about_with_a_suggestion() -> None:
    found = outermost()
    found.warn_of_unknown((), found.table(), ("name", "env", "tool", "methods"))
    text = "not part of the contract, ignored; did you mean 'tool'?"
    assert found.problems == [Problem("unknown_key", "tools", text, line=3, severity="warning")]
