"""What clients read about a tool, from what its contract says."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.mcp_server import definitions
from plugbay.model.spec import Export
from tests.support.requirements import requirement

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


def tool(**fields: Any) -> dict[str, Any]:
    return definitions.tool(Export("tool", "forecast", **fields), "weather__forecast")


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
def test_effects_become_hints_and_who_does_not_know_says_nothing(
    facts: dict[str, Any], hints: dict[str, bool] | None
) -> None:
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
def test_what_an_mcp_server_said_of_its_tool_is_said_again() -> None:
    own = {"name": "forecast", "x-own": [1], "inputSchema": SCHEMA, "_meta": {"a.b/c": 1}, "icons": [{"src": "data:,"}]}
    assert tool(facts={"mcp": own}) == {**own, "name": "weather__forecast"}
    assert list(tool(facts={"mcp": own})) == list(own)
    assert definitions.tool(Export("tool", "forecast", facts={"mcp": own}), "forecast") is own


@requirement("mcp:serve-unchanged")
def test_a_prompt_keeps_everything_but_its_name() -> None:
    own = {"name": "greet", "arguments": [{"name": "who", "required": True}]}
    export = Export("prompt", "greet", facts={"mcp": own})
    assert definitions.prompt(export, "greet") is own
    assert definitions.prompt(export, "p__greet") == {**own, "name": "p__greet"}


def test_a_name_is_its_authors_wherever_the_host_calls_it_otherwise() -> None:
    assert definitions.own_name(Export("prompt", "prompt:greet", facts={"mcp": {"name": "greet"}})) == "greet"
    assert definitions.own_name(Export("tool", "t")) == "t"
