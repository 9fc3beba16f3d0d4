"""Names, definitions and listings."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.mcp.offers import expand_template
from plugbay.host.catalog.catalog import Catalog, Entry
from plugbay.mcp_server import listing
from plugbay.mcp_server.listing import (
    MAX_NAME_LENGTH,
    NAMING_RULES,
    NamesCollide,
    NameTable,
    build_listing,
    matches_template,
)
from plugbay.model.spec import Export, PluginSpec
from tests.support.requirements import requirement

ACCEPTED = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")

ids = st.text(min_size=1, max_size=90) | st.from_regex(r"[a-z]{1,6}(\.[a-z]{1,6}){0,2}", fullmatch=True)
exports = st.tuples(ids, ids)
rules = st.sampled_from(list(NAMING_RULES.values()))


def table_of(rule: listing.NamingRule, exports: Iterable[tuple[str, str]]) -> NameTable:
    table = NameTable(rule)
    for plugin_id, name in exports:
        table.add(plugin_id, name)
    return table


@requirement("mcp:serve-names")
@given(rule=rules, export=exports)
def test_every_client_takes_every_name(rule: listing.NamingRule, export: tuple[str, str]) -> None:
    assert ACCEPTED.match(rule(*export))


@requirement("mcp:serve-names")
@given(rule=rules, given=st.lists(exports, max_size=12, unique=True))
def test_a_name_leads_back_to_its_export_or_the_collision_is_reported(
    rule: listing.NamingRule, given: list[tuple[str, str]]
) -> None:
    served = [rule(*export) for export in given]
    if len(set(served)) < len(served):
        with pytest.raises(NamesCollide):
            table_of(rule, given)
    else:
        table = table_of(rule, given)
        assert [table.owner(name) for name in served] == given


@given(rule=rules, given=st.lists(exports, min_size=1, max_size=8, unique=True), data=st.data())
def test_a_name_does_not_depend_on_what_else_is_served(
    rule: listing.NamingRule, given: list[tuple[str, str]], data: st.DataObject
) -> None:
    alone = data.draw(st.sampled_from(given))
    assert NameTable(rule).add(*alone) == rule(*alone)


@pytest.mark.parametrize(
    ("plugin_id", "name", "full", "short"),
    [
        ("weather", "forecast", "weather__forecast", "forecast"),
        ("example.weather", "forecast", "example_weather__forecast", "forecast"),
        ("tea-shop", "tea-shop.brew", "tea-shop__tea-shop_brew", "tea-shop_brew"),
        ("wörter", "zähle mit", "w_rter__z_hle_mit", "z_hle_mit"),
        ("a", "…", "a___", "_"),
    ],
)
def test_what_no_client_takes_becomes_an_underscore(plugin_id: str, name: str, full: str, short: str) -> None:
    assert listing.qualified_name(plugin_id, name) == full
    assert listing.short_name(plugin_id, name) == short


def test_long_names_are_cut_and_stay_apart() -> None:
    one, other = (
        listing.qualified_name("p" * 40, "t" * 60 + "one"),
        listing.qualified_name("p" * 40, "t" * 60 + "other"),
    )
    assert len(one) == len(other) == MAX_NAME_LENGTH
    assert one != other
    assert listing.qualified_name("p" * 30, "t" * 32) == "p" * 30 + "__" + "t" * 32


@requirement("mcp:serve-names-collide")
def test_a_collision_names_both_exports() -> None:
    with pytest.raises(NamesCollide, match=r"a\.b/x and a_b/x would both be served as 'a_b__x'") as caught:
        table_of(listing.qualified_name, [("a.b", "x"), ("a_b", "x")])
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.served, again.exports) == ("a_b__x", ("a.b/x", "a_b/x"))


def test_an_export_that_is_added_twice_is_the_same_one() -> None:
    table = NameTable(listing.qualified_name)
    assert table.add("a", "x") == table.add("a", "x")
    assert table.owner("a__y") is None


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def tool(**fields: Any) -> dict[str, Any]:
    return listing.describe_tool(Export("tool", "forecast", **fields), "weather__forecast")


def test_a_tool_that_says_nothing_takes_any_object() -> None:
    assert tool() == {"name": "weather__forecast", "inputSchema": {"type": "object"}}


def test_description_schemas_and_title_are_the_plugins_own() -> None:
    described = tool(
        description="Tell the weather.",
        input_schema=SCHEMA,
        output_schema={"type": "object"},
        facts={"display_name": "Forecast"},
    )
    assert described == {
        "name": "weather__forecast",
        "title": "Forecast",
        "description": "Tell the weather.",
        "inputSchema": SCHEMA,
        "outputSchema": {"type": "object"},
    }


@requirement("mcp:serve-annotations")
@pytest.mark.parametrize(
    ("facts", "hints"),
    [
        ({"effect_class": "read_only"}, {"readOnlyHint": True}),
        (
            {"effect_class": "idempotent_write"},
            {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True},
        ),
        (
            {"effect_class": "non_idempotent_write"},
            {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False},
        ),
        ({"effect_class": "unknown"}, None),
        ({}, None),
        ({"approval_tier": "safe", "mutating": False}, {"readOnlyHint": True}),
        ({"approval_tier": "safe", "mutating": True}, None),
        ({"approval_tier": "moderate", "mutating": False}, None),
        (
            {"approval_tier": "destructive", "mutating": True},
            {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False},
        ),
    ],
)
def test_effects_become_hints_and_an_unknown_effect_none(facts: dict[str, Any], hints: dict[str, bool] | None) -> None:
    assert tool(facts=facts).get("annotations") == hints


@requirement("mcp:serve-schemas")
@pytest.mark.parametrize(
    ("schema", "served"),
    [
        ({"properties": {}}, {"type": "object", "properties": {}}),
        ({"type": "string"}, {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}),
        (True, {"type": "object"}),
    ],
)
def test_arguments_are_always_an_object(schema: Any, served: dict[str, Any]) -> None:
    assert tool(input_schema=schema)["inputSchema"] == served


def test_only_an_object_is_promised_as_structured_content() -> None:
    assert "outputSchema" not in tool(output_schema={"type": "array"})
    assert "outputSchema" not in tool(output_schema=True)


@requirement("mcp:serve-unchanged")
def test_the_definition_of_an_mcp_server_passes_unchanged() -> None:
    own = {"name": "forecast", "x-own": [1], "inputSchema": SCHEMA, "_meta": {"a.b/c": 1}, "icons": [{"src": "data:,"}]}
    assert tool(facts={"mcp": own}) == {**own, "name": "weather__forecast"}
    assert list(tool(facts={"mcp": own})) == list(own)
    assert listing.describe_tool(Export("tool", "forecast", facts={"mcp": own}), "forecast") is own


@requirement("mcp:serve-unchanged")
def test_a_prompt_keeps_everything_but_its_name() -> None:
    own = {"name": "greet", "arguments": [{"name": "who", "required": True}]}
    export = Export("prompt", "greet", facts={"mcp": own})
    assert listing.describe_prompt(export, "greet") is own
    assert listing.describe_prompt(export, "p__greet") == {**own, "name": "p__greet"}


def test_a_name_is_its_authors_wherever_the_host_calls_it_otherwise() -> None:
    assert listing.original_name(Export("prompt", "prompt:greet", facts={"mcp": {"name": "greet"}})) == "greet"
    assert listing.original_name(Export("tool", "t")) == "t"


def entries(**plugins: list[Export]) -> list[Entry]:
    specs = [PluginSpec(name, "1", "mcp", Path(), ("x",), exports=tuple(each)) for name, each in plugins.items()]
    return Catalog(specs).entries()


def resource(uri: str, name: str = "") -> Export:
    return Export("resource", name or uri, facts={"mcp": {"uri": uri, "name": name or uri}})


def template(uri: str) -> Export:
    return Export("resource", uri, facts={"mcp": {"uriTemplate": uri, "name": uri}})


def prompt(name: str) -> Export:
    return Export("prompt", name, facts={"mcp": {"name": name}})


def test_tools_resources_templates_and_prompts_are_served_and_nothing_else() -> None:
    listed = build_listing(
        entries(
            p=[Export("tool", "t"), Export("hook", "h"), Export("screen", "s"), resource("a://1"), template("a://{x}")],
            q=[prompt("t"), Export("tool", "old", facts={"unsupported": "made for another system"})],
        ),
        listing.qualified_name,
    )
    assert list(listed.tools) == ["p__t"]
    assert list(listed.prompts) == ["q__t"]
    assert {key: len(listed) for key, listed in listed.offer.items()} == {
        "tools": 1,
        "resources": 1,
        "resource_templates": 1,
        "prompts": 1,
    }
    assert listed.collisions == []


@pytest.mark.parametrize(
    ("only", "served"),
    [
        ([], ["p__a", "p__b", "pq__a"]),
        (["p"], ["p__a", "p__b"]),
        (["p*"], ["p__a", "p__b", "pq__a"]),
        (["*/a"], ["p__a", "pq__a"]),
        (["p/b", "pq"], ["p__b", "pq__a"]),
        (["nobody"], []),
    ],
)
@requirement("mcp:serve-only")
def test_patterns_choose_plugins_or_exports(only: list[str], served: list[str]) -> None:
    given = entries(p=[Export("tool", "a"), Export("tool", "b")], pq=[Export("tool", "a")])
    assert list(build_listing(given, listing.qualified_name, only).tools) == served


@requirement("mcp:serve-names-collide")
def test_the_first_of_a_name_or_an_address_has_it() -> None:
    listed = build_listing(
        entries(p=[Export("tool", "t"), resource("a://1")], q=[Export("tool", "t"), resource("a://1")]),
        listing.short_name,
    )
    assert listed.tools["t"].spec.id == "p"
    assert [collision.exports for collision in listed.collisions] == [("p/t", "q/t")]
    assert listed.shadowed == ["q/a://1 is left out: p/a://1 already has the address a://1"]
    assert len(listed.offer["resources"]) == 1


def asked(listed: Any, uri: str) -> list[str]:
    return [entry.spec.id for entry in listed.readers(uri)]


def test_the_plugin_that_lists_a_uri_is_asked_first_and_the_others_later() -> None:
    listed = build_listing(
        entries(
            one=[resource("memo://1")],
            two=[template("memo://{id}/text"), template("any://{+rest}")],
            three=[template("file:///{path}{?line}")],
            four=[Export("tool", "t")],
        ),
        listing.qualified_name,
    )
    assert asked(listed, "memo://1") == ["one", "two", "three"]
    assert asked(listed, "memo://2/text") == ["two", "one", "three"]
    assert asked(listed, "any://a/b?c") == ["two", "one", "three"]
    assert asked(listed, "file:///x?line=3") == ["three", "one", "two"]
    assert asked(listed, "memo://2/other") == ["one", "two", "three"]
    assert asked(build_listing([], listing.qualified_name), "memo://1") == []


@requirement("mcp:serve-hostile-templates")
def test_a_template_that_says_more_of_an_address_comes_before_one_that_takes_all() -> None:
    listed = build_listing(
        entries(evil=[template("{+everything}")], good=[template("memo://{id}")], best=[template("memo://{id}/text")]),
        listing.qualified_name,
    )
    assert asked(listed, "memo://1") == ["good", "evil", "best"]
    assert asked(listed, "memo://1/text") == ["best", "evil", "good"]


@pytest.mark.parametrize(
    ("template", "uri", "expected"),
    [
        ("a://b", "a://b", True),
        ("a://b", "a://bb", False),
        ("a://{x}", "a://", True),
        ("a://{x}", "a://b", True),
        ("a://{x}", "a://b/c", False),
        ("a://{x}", "b://", False),
        ("a://{x}a", "a://a", True),
        ("a{x}a", "a", False),
        ("a://{+x}", "a://b/c?d#e", True),
        ("a://{x}{?y}", "a://b?y=1", True),
        ("a://{x}/{y}", "a://b/c", True),
        ("a://{x}/{y}", "a://b", False),
        ("a://{x}/b/{y}", "a://c/d/e", False),
        ("{x}", "anything", True),
        ("a://{x}.txt", "a://b.txt.txt", True),
        ("a://{not an expression", "a://{not an expression", True),
    ],
)
def test_an_address_looks_like_those_of_a_template(template: str, uri: str, expected: bool) -> None:
    assert matches_template(template, uri) is expected


words = st.text("abc-.%é", max_size=6)


@given(st.lists(st.sampled_from(["{x}", "{+x}", "{/x}", "{?x}", "{#x}"]), min_size=1, max_size=4), words)
def test_every_address_of_a_template_looks_like_one(expressions: list[str], value: str) -> None:
    template = "a://" + "=!=".join(expressions)
    assert matches_template(template, expand_template(template, {"x": value}))


@requirement("mcp:serve-hostile-templates")
@pytest.mark.parametrize("piece", ["{x}", "{x}a", "{+x}a"])
def test_matching_any_template_is_fast(piece: str) -> None:
    template = "a://" + piece * 1_000 + "!"
    assert not matches_template(template, "a://" + "a" * 100_000)
    assert matches_template(template, "a://" + "a" * 100_000 + "!")


def test_names_are_in_the_alphabet_that_is_asked_for() -> None:
    lower = listing.Alphabet(re.compile(r"[^a-z0-9_]+"), 20, lower=True)
    assert listing.short_name("p", "9 Lives", lower) == "x9_lives"
    assert listing.qualified_name("My.Plugin", "Read", lower) == "my_plugin__read"
    long = listing.qualified_name("p" * 30, "t" * 30, lower)
    assert len(long) == 20
    assert long != listing.qualified_name("p" * 30, "t" * 31, lower)


def test_methods_and_command_lines_are_tools_where_that_is_asked_for() -> None:
    spec = PluginSpec(
        "p", "1.0.0", "ainb", Path(), (), exports=(Export("cli_namespace", "notes"), Export("screen", "s"))
    )
    entries = list(Catalog([spec]).entries())
    assert build_listing(entries, listing.short_name).tools == {}
    listed = build_listing(entries, listing.short_name, as_tools=listing.AS_TOOLS)
    (tool,) = listed.offer["tools"]
    assert tool["name"] == "notes"
    assert tool["inputSchema"]["properties"].keys() == {"argv"}
    assert "command line notes of p" in tool["description"]


@pytest.mark.parametrize(
    ("facts", "effect"),
    [
        ({"effect_class": "read_only"}, "read_only"),
        ({"approval_tier": "safe", "mutating": False}, "read_only"),
        ({"mcp": {"annotations": {"readOnlyHint": True}}}, "read_only"),
        (
            {"mcp": {"annotations": {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False}}},
            "non_idempotent_write",
        ),
        ({"mcp": {"annotations": {"title": "x"}}}, ""),
        ({}, ""),
    ],
)
def test_the_effect_of_a_tool_is_known_from_every_contract(facts: dict[str, Any], effect: str) -> None:
    assert listing.effect_of(Export("tool", "t", facts=facts)) == effect
