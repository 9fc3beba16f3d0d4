"""What is said to a server of MCP follows from what it says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plugbay.conformance.engine.inputs import may_be_called
from plugbay.conformance.engine.mcp_facts import GREETINGS, NO_OBJECT, about, apply_hello, facts
from plugbay.contracts.schemas import compile_schema
from plugbay.model.spec import Export, PluginSpec
from tests.support.requirements import requirement

SPEC = PluginSpec("p", "0", "mcp", Path("/"), ("p",))
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def hello(era: str = "handshake", **offer: Any) -> dict[str, Any]:
    lists = {"tools": [], "resources": [], "resource_templates": [], "prompts": [], **offer}
    return {"era": era, "capabilities": {"logging": {}}, "offer": lists}


def tool(**more: Any) -> dict[str, Any]:
    return {"name": "t", "inputSchema": TEXT, **more}


def test_until_a_server_has_spoken_it_wants_to_be_greeted_and_offers_nothing() -> None:
    assert facts(SPEC) == {**GREETINGS, "handshake": ["handshake"], "schemas": []}


def test_a_server_says_its_era_its_exports_and_whether_it_logs() -> None:
    spec, known = apply_hello(SPEC, hello("modern", tools=[tool(outputSchema=TEXT)]))
    assert [(export.kind, export.name) for export in spec.exports] == [("tool", "t")]
    assert (known["handshake"], known["logging"], known["schemas"]) == ([], ["logging"], ["t"])


def test_a_template_is_no_resource_that_could_be_read() -> None:
    one, many = {"uri": "note://one", "name": "one"}, {"uriTemplate": "note://{name}", "name": "note"}
    spec, _ = apply_hello(SPEC, hello(resources=[one], resource_templates=[many]))
    assert [export.name for export in spec.exports] == ["one"]
    assert about(spec.exports[0], "")["address"] == "note://one"


@pytest.mark.parametrize(
    ("more", "may"),
    [
        ({}, False),
        ({"annotations": {"readOnlyHint": True}}, True),
        ({"annotations": {"readOnlyHint": "yes"}}, False),
        ({"annotations": {"destructiveHint": False}}, False),
        ({"inputSchema": {**TEXT, "examples": [{"text": "hi"}]}}, True),
    ],
)
@requirement("mcp:kit-harmless")
def test_only_a_tool_that_reads_or_has_an_example_is_called(more: dict[str, Any], may: bool) -> None:
    spec, _ = apply_hello(SPEC, hello(tools=[tool(**more)]))
    assert may_be_called(spec.exports[0]) is may


def test_a_prompt_is_filled_in_where_it_must_be() -> None:
    arguments = [{"name": "who", "required": True}, {"name": "how"}, 7]
    spec, _ = apply_hello(SPEC, hello(prompts=[{"name": "greet", "arguments": arguments}]))
    assert about(spec.exports[0], "")["filled_in"] == {"who": "text"}


@pytest.mark.parametrize(
    "schema",
    [
        TEXT,
        {"type": "object", "properties": {"n": {"type": "integer"}}},
        {"type": "object", "required": ["a"]},
        {"type": "object", "additionalProperties": False},
    ],
)
def test_a_misfit_is_something_that_the_schema_refuses(schema: dict[str, Any]) -> None:
    misfit = about(Export("tool", "t", input_schema=schema), "")["misfit"]
    assert not compile_schema(schema).is_valid(misfit)
    assert isinstance(misfit, dict)


@pytest.mark.parametrize("schema", [{"type": "object"}, {"type": "nonsense"}])
def test_where_a_schema_refuses_nothing_arguments_that_are_no_object_are_a_misfit(schema: dict[str, Any]) -> None:
    assert about(Export("tool", "t", input_schema=schema), "")["misfit"] == NO_OBJECT


def test_there_is_something_to_say_about_nothing() -> None:
    assert about(None, "") == {"address": "", "filled_in": {}, "misfit": NO_OBJECT, "output_schema": {}}
