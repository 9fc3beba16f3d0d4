"""What a server offers as exports, and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.mcp.messages import empty_offer
from plugbay.contracts.mcp.offers import FACT, address, expand_template, exports_of, list_variables, offer_of
from tests.contracts.mcp.talk import OFFER
from tests.support.requirements import requirement


def offer(**lists: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    return {**empty_offer(), **lists}


@requirement("mcp:offer-exports")
def test_every_kind_becomes_an_export() -> None:
    exports, warnings = exports_of(OFFER)
    assert [(export.kind, export.name) for export in exports] == [
        ("tool", "echo"),
        ("resource", "a"),
        ("resource", "note"),
        ("prompt", "greet"),
    ]
    assert warnings == []


@requirement("mcp:offer-unchanged")
def test_the_definitions_are_the_servers_own() -> None:
    tool = {
        "name": "t",
        "title": "T",
        "description": None,
        "inputSchema": {"type": "object"},
        "x-odd": [1, {"a": None}],
    }
    exports, _ = exports_of(offer(tools=[tool]))
    assert exports[0].facts[FACT] == tool


names = st.sampled_from(["a", "b", "note:a", ""])
definitions = st.fixed_dictionaries(
    {}, optional={"name": names, "uri": names, "uriTemplate": names, "x": st.integers()}
)


@requirement("mcp:offer-unchanged")
@given(st.fixed_dictionaries({key: st.lists(definitions, max_size=3) for key in OFFER}))
def test_no_definition_is_lost_without_a_warning(given_offer: dict[str, list[dict[str, Any]]]) -> None:
    exports, warnings = exports_of(given_offer)
    back = offer_of(exports)
    assert len({export.name for export in exports}) == len(exports)
    assert sum(map(len, back.values())) + len(warnings) == sum(map(len, given_offer.values()))
    assert all(entry in given_offer[name] for name, entries in back.items() for entry in entries)


@requirement("mcp:offer-unchanged")
def test_an_offer_comes_back_as_it_was() -> None:
    assert offer_of(exports_of(OFFER)[0]) == OFFER


@requirement("mcp:offer-names")
def test_where_names_collide_each_still_has_one() -> None:
    exports, warnings = exports_of(
        offer(
            tools=[{"name": "notes"}],
            resources=[
                {"uri": "note:1", "name": "notes"},
                {"uri": "note:2", "name": "x"},
                {"uri": "note:3", "name": "x"},
            ],
            resource_templates=[{"uriTemplate": "note:{n}", "name": "x"}],
            prompts=[{"name": "notes"}],
        )
    )
    named = [(export.kind, export.name) for export in exports]
    assert named == [
        ("tool", "notes"),
        ("resource", "note:1"),
        ("resource", "note:2"),
        ("resource", "note:3"),
        ("resource", "note:{n}"),
        ("prompt", "prompt:notes"),
    ]
    assert warnings == []


@requirement("mcp:offer-names")
def test_a_resource_without_a_name_has_its_address() -> None:
    exports, _ = exports_of(offer(resources=[{"uri": "note:1"}, {"uri": "note:2", "name": None}]))
    assert [export.name for export in exports] == ["note:1", "note:2"]


@requirement("mcp:offer-names")
def test_what_has_no_name_left_cannot_be_called() -> None:
    exports, warnings = exports_of(offer(tools=[{"name": "a"}, {"name": "a"}, {}]))
    assert (len(exports), len(warnings)) == (1, 2)


@requirement("mcp:offer-schemas")
def test_the_schema_of_a_tool_is_its_own() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    exports, warnings = exports_of(
        offer(tools=[{"name": "t", "inputSchema": schema, "outputSchema": {"type": "object"}}])
    )
    assert (exports[0].input_schema, exports[0].output_schema) == (schema, {"type": "object"})
    assert warnings == []


@requirement("mcp:offer-schemas")
@pytest.mark.parametrize("schema", [{"type": "nonsense"}, {"$ref": "https://example.com/x"}, "x", 5])
@pytest.mark.parametrize("key", ["inputSchema", "outputSchema"])
def test_a_schema_that_cannot_be_enforced_is_not_and_that_is_said(schema: Any, key: str) -> None:
    exports, warnings = exports_of(offer(tools=[{"name": "t", key: schema}]))
    assert (exports[0].input_schema, exports[0].output_schema) == (None, None)
    assert len(warnings) == 1 and key in warnings[0]


def test_a_tool_without_a_schema_takes_anything() -> None:
    exports, warnings = exports_of(offer(tools=[{"name": "t", "inputSchema": None}]))
    assert (exports[0].input_schema, warnings) == (None, [])


@requirement("mcp:offer-schemas")
def test_a_resource_takes_nothing_and_a_template_its_variables() -> None:
    exports, _ = exports_of(
        offer(
            resources=[{"uri": "note:a", "name": "a"}],
            resource_templates=[{"uriTemplate": "note:{+path}{?q}", "name": "t"}],
        )
    )
    assert exports[0].input_schema == {"type": "object", "properties": {}}
    assert exports[1].input_schema == {
        "type": "object",
        "properties": {"path": {"type": "string"}, "q": {"type": "string"}},
    }
    assert address(exports[0], {}) == "note:a"
    assert address(exports[1], {"path": "x/y", "q": "a b"}) == "note:x/y?q=a%20b"


def test_an_export_of_another_contract_has_no_address() -> None:
    exports, _ = exports_of(offer(tools=[{"name": "t"}]))
    assert address(exports[0], {}) is None


@requirement("mcp:offer-schemas")
@pytest.mark.parametrize(
    ("arguments", "schema"),
    [
        (None, {"type": "object", "properties": {}}),
        ("x", {"type": "object", "properties": {}}),
        (
            [{"name": "a", "required": True, "description": "d"}, {"name": "b"}, {}, 5],
            {
                "type": "object",
                "properties": {"a": {"type": "string", "description": "d"}, "b": {"type": "string"}},
                "required": ["a"],
            },
        ),
    ],
)
def test_a_prompt_takes_its_arguments(arguments: Any, schema: dict[str, Any]) -> None:
    exports, _ = exports_of(offer(prompts=[{"name": "p", "arguments": arguments}]))
    assert exports[0].input_schema == schema


@pytest.mark.parametrize(
    ("definition", "text"),
    [({"description": "d", "title": "t"}, "d"), ({"title": "t"}, "t"), ({"description": None}, ""), ({}, "")],
)
def test_an_export_says_what_its_definition_says(definition: dict[str, Any], text: str) -> None:
    exports, _ = exports_of(offer(tools=[{"name": "t", **definition}]))
    assert exports[0].description == text


def test_of_very_many_schemas_most_are_judged_later_and_kept_as_they_are() -> None:
    schema = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(100)}}
    tools = [{"name": f"t{n}", "inputSchema": schema} for n in range(99)]
    unusable = {"name": "last", "inputSchema": {"type": "nonsense"}}
    exports, warnings = exports_of(offer(tools=[*tools, unusable]))
    assert [export.input_schema for export in exports[:99]] == [schema] * 99
    assert exports[99].input_schema == unusable["inputSchema"]
    assert warnings == ["51 of its schemas, too many or too large, are checked at their first use"]
    exports, warnings = exports_of(offer(tools=[*tools[:9], unusable]))
    assert exports[9].input_schema is None and "cannot be enforced" in warnings[0]


VALUES: dict[str, Any] = {
    "var": "value",
    "hello": "Hello World!",
    "path": "/foo/bar",
    "x": 1024,
    "y": 768,
    "empty": "",
    "list": ["red", "green", "blue"],
    "on": True,
    "none": None,
}


@pytest.mark.parametrize(
    ("template", "address"),
    [
        ("{var}", "value"),
        ("{hello}", "Hello%20World%21"),
        ("{+hello}", "Hello%20World!"),
        ("{+path}/here", "/foo/bar/here"),
        ("{path}", "%2Ffoo%2Fbar"),
        ("X{#hello}", "X#Hello%20World!"),
        ("map?{x,y}", "map?1024,768"),
        ("{x,hello,y}", "1024,Hello%20World%21,768"),
        ("X{.x,y}", "X.1024.768"),
        ("{/var,x}/here", "/value/1024/here"),
        ("{;x,y,empty}", ";x=1024;y=768;empty"),
        ("{?x,y,empty}", "?x=1024&y=768&empty="),
        ("?fixed=yes{&x}", "?fixed=yes&x=1024"),
        ("{var:3}", "val"),
        ("{list}", "red,green,blue"),
        ("{/list*}", "/red/green/blue"),
        ("{?list*}", "?list=red&list=green&list=blue"),
        ("{?list}", "?list=red,green,blue"),
        ("{none}{missing}{?none,missing}", ""),
        ("{on}", "true"),
        ("no variables", "no variables"),
    ],
)
def test_an_address_is_filled_in(template: str, address: str) -> None:
    assert expand_template(template, VALUES) == address


@pytest.mark.parametrize(
    ("template", "names"),
    [
        ("file:///{path}", ["path"]),
        ("a:{x}{?y,z*}{#x:3}", ["x", "y", "z"]),
        ("a:b", []),
        ("a:{}", []),
        ("a:{ x , y }", ["x", "y"]),
        ("a:{unclosed", []),
        (f"a:{{x:{'9' * 5000}}}", ["x"]),
    ],
)
def test_the_names_in_a_template_are_known(template: str, names: list[str]) -> None:
    assert list_variables(template) == names
