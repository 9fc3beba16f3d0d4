"""A draft reads what is there, passes over what has the wrong type, and reports with lines."""

from __future__ import annotations

import pytest

from plugbay.contracts.document import Document, parse_toml
from plugbay.contracts.nexo.draft import Draft


def draft(text: str) -> Draft:
    document = parse_toml(text)
    assert isinstance(document, Document)
    return Draft(document)


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
