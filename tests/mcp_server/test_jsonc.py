"""One member changes, and not a byte of anything else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.mcp_server import jsonc
from plugbay.mcp_server.jsonc import Unreadable, set_member
from tests.support.requirements import requirement

PATH = ("mcpServers", "plugbay")
ENTRY = {"command": "plugbay", "args": ["mcp"]}

COMMENTED = """\
// my settings
{
    "theme": "dark", // nice
    /* servers
       of mine */
    "mcpServers": {
        "other": { "command": "x" }, // stays
        // "off": {}
    },
}
"""


def test_comments_order_and_layout_stay() -> None:
    after = set_member(COMMENTED, PATH, ENTRY)
    assert after == COMMENTED.replace(
        '        // "off": {}\n',
        '        // "off": {}\n'
        '        "plugbay": {\n'
        '            "command": "plugbay",\n'
        '            "args": [\n'
        '                "mcp"\n'
        "            ]\n"
        "        }\n",
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{}", '{\n  "a": {\n    "b": 1\n  }\n}'),
        ('{"x":1}', '{"x":1, "a": {"b": 1}}'),
        ('{"a":{}}', '{"a":{\n  "b": 1\n}}'),
        ('{\n\t"x": 1\n}\n', '{\n\t"x": 1,\n\t"a": {\n\t\t"b": 1\n\t}\n}\n'),
        ('{\r\n  "x": 1\r\n}', '{\r\n  "x": 1,\r\n  "a": {\r\n    "b": 1\r\n  }\r\n}'),
        ('{\n  "a": {\n    "b": 2 // two\n  }\n}', '{\n  "a": {\n    "b": 1 // two\n  }\n}'),
        ('{\n  "a": {\n    "c": 2 // two\n  }\n}', '{\n  "a": {\n    "c": 2, // two\n    "b": 1\n  }\n}'),
        ("", '{\n  "a": {\n    "b": 1\n  }\n}\n'),
        ("\ufeff{}", '\ufeff{\n  "a": {\n    "b": 1\n  }\n}'),
    ],
)
def test_the_member_is_put_where_a_person_would_put_it(before: str, after: str) -> None:
    assert set_member(before, ("a", "b"), 1) == after


keys = st.text(max_size=6)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(keys, values, max_size=4)


@requirement("mcp:install-keeps-the-rest")
@given(
    whole=objects,
    servers=st.none() | objects,
    name=keys,
    value=values,
    indent=st.sampled_from([None, 1, 2, 4, "\t"]),
)
def test_the_result_says_what_was_meant_and_nothing_else_changed(
    whole: dict[str, Any], servers: dict[str, Any] | None, name: str, value: Any, indent: int | str | None
) -> None:
    whole = {**whole, **({} if servers is None else {"mcpServers": servers})}
    if not isinstance(whole.get("mcpServers", {}), dict):
        return
    after = set_member(json.dumps(whole, indent=indent), ("mcpServers", name), value)
    assert json.loads(after) == {**whole, "mcpServers": {**whole.get("mcpServers", {}), name: value}}
    assert set_member(after, ("mcpServers", name), value) == after


@given(values)
def test_reading_agrees_with_json(value: Any) -> None:
    assert jsonc.read(json.dumps(value, indent=1)) == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "line 1: a value was expected"),
        ('{\n"a": }', "line 2: a value was expected"),
        ('{"a": 1 "b": 2}', "line 1: a comma or } was expected"),
        ('{"a" 1}', "line 1: : was expected"),
        ("{1: 2}", "line 1: a name was expected"),
        ("{} {}", "line 1: there is data after the end"),
        ("[1 2]", "line 1: a comma or ] was expected"),
        ('{"a": 01}', "line 1: this is not a value"),
        ("[" * 300, "line 1: it is nested too deeply"),
        ("{,}", "line 1: a value was expected"),
        ('{"a": "\n"}', "line 1: a value was expected"),
    ],
)
def test_what_is_no_json_is_refused_with_its_line(text: str, why: str) -> None:
    with pytest.raises(Unreadable, match=f"^{why.replace('}', '[}]')}$"):
        jsonc.read(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "line 1: the whole is not an object"),
        ('{"a": []}', "line 1: a is not an object"),
        ('{"a": {},\n"a": {}}', "line 2: 'a' appears twice"),
    ],
)
def test_a_place_that_is_not_certain_is_refused(text: str, why: str) -> None:
    with pytest.raises(Unreadable, match=f"^{why}$"):
        set_member(text, ("a", "b"), 1)
