"""What a manifest says under vai. How it is written and read is told in test_manifests.py."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.sdk import Plugin
from plugbay.sdk.contracts.vai_manifest import manifest_of, permissions_of, schemas_of, structured
from tests.support.requirements import requirement

STRING = {"type": "string"}


def function(*_: Any) -> None: ...


@requirement("vai:sdk-permissions")
@pytest.mark.parametrize(
    ("capabilities", "asked"),
    [
        ([], {}),
        (["net:[]", "event_bus"], {}),
        (["network"], {"network": "egress"}),
        (["network=api.openai.com"], {"network": "egress"}),
        (
            ["scope=chains:read", "scope=runs:write"],
            {"network": "egress", "gateway_api_scopes": ["chains:read", "runs:write"]},
        ),
        (["filesystem=assets_ro"], {"filesystem": "assets_ro"}),
        (["filesystem=assets_ro", "filesystem=scratch"], {"filesystem": "scratch"}),
        (["secret=a", "secret=b", "secret=a"], {"secret_slots": ["a", "b"]}),
    ],
)
def test_permissions_are_asked_for_in_the_words_of_operators(capabilities: list[str], asked: dict[str, Any]) -> None:
    nothing = {"network": "none", "filesystem": "none", "gateway_api_scopes": [], "secret_slots": []}
    assert permissions_of(capabilities) == {**nothing, **asked}


@requirement("vai:sdk-permissions")
def test_an_export_asks_for_what_the_plugin_and_it_need_and_secrets_are_slots() -> None:
    plugin = Plugin("p", capabilities=["network"], secrets_schema={"properties": {"token": STRING}})
    plugin.tool("a", capabilities=["secret=key"])(lambda: 1)
    plugin.tool("b")(lambda: 1)
    first, second = (export["permissions"] for export in manifest_of(plugin, ["./p"])["exports"])
    assert (first["network"], first["secret_slots"]) == ("egress", ["key", "token"])
    assert (second["network"], second["secret_slots"]) == ("egress", ["token"])


@requirement("vai:sdk-manifest")
def test_schemas_lie_beside_the_manifest_and_one_for_all_is_there_once() -> None:
    plugin = Plugin("p", config_schema={"title": "for all"})
    plugin.tool("a", input_schema={"title": "in"}, output_schema={"type": "object"})(lambda: 1)
    plugin.harness("h", config_schema={"title": "own"})(function)
    plugin.hook("run.completed")(function)
    assert schemas_of(plugin) == {
        "schemas/h_config.json": {"title": "own"},
        "schemas/config.json": {"title": "for all"},
        "schemas/a_input.json": {"title": "in"},
        "schemas/a_output.json": {"type": "object"},
    }
    harness, tool, hook = manifest_of(plugin, ["./p"])["exports"]
    assert harness["config_schema"] == "schemas/h_config.json"
    assert tool["config_schema"] == hook["config_schema"] == "schemas/config.json"
    assert (tool["tool"]["input_schema"], tool["tool"]["output_schema"]) == (
        "schemas/a_input.json",
        "schemas/a_output.json",
    )


@requirement("vai:sdk-manifest", "vai:sdk-tool-result")
@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (None, None),
        ({}, {}),
        ({"type": "object"}, {"type": "object"}),
        ({"type": ["object", "null"]}, {"type": ["object", "null"]}),
        (STRING, {"type": "object", "properties": {"result": STRING}, "required": ["result"]}),
        (
            {"type": "array", "items": {"$ref": "#/$defs/x"}, "$defs": {"x": STRING}},
            {
                "type": "object",
                "properties": {"result": {"type": "array", "items": {"$ref": "#/$defs/x"}}},
                "required": ["result"],
                "$defs": {"x": STRING},
            },
        ),
    ],
)
def test_the_schema_of_a_value_that_is_no_object_is_that_of_the_object_it_stands_in(schema: Any, said: Any) -> None:
    assert structured(schema) == said


@requirement("vai:sdk-manifest")
def test_terms_are_in_the_manifest_and_times_are_always() -> None:
    plugin = Plugin("p")
    plugin.tool("a", timeout=0.25, max_concurrency=3, execution_class="worker")(lambda: 1)
    plugin.tool("b")(lambda: 1)
    plugin.hook("run.completed")(function)
    plugin.compactor(print)
    plugin.harness()(lambda run: 1)
    exports = {export["id"]: export for export in manifest_of(plugin, ["./p"])["exports"]}
    assert {id: export["default_timeout_ms"] for id, export in exports.items()} == {
        "harness": 1_800_000,
        "a": 250,
        "b": 20_000,
        "print": 120_000,
        "function": 15_000,
    }
    assert (exports["a"]["max_concurrency"], exports["a"]["execution_class"]) == (3, "worker")
    assert not {"max_concurrency", "execution_class", "description", "config_schema"} & set(exports["b"])
