"""A manifest that is written from code, as a host reads it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from plugbay.contracts.kaged.manifest import parse
from plugbay.model.spec import PluginSpec
from plugbay.sdk import Plugin
from plugbay.sdk.manifests import kaged_manifest
from tests.support.requirements import requirement

CONFIG = {"type": "object", "properties": {"depth": {"type": "integer"}, "mode": {"enum": ["on", "off"]}}}
SECRETS = {"type": "object", "properties": {"token": {"type": "string"}}}
CITY = {"type": "object", "properties": {"city": {"type": "string"}, "on": {}}, "required": ["city"]}


def everything() -> Plugin:
    plugin = Plugin(
        "example.weather",
        "1.10.0",
        description="Says: 'how' warm it \"is\" # there\n",
        capabilities=["net:[]", "kaged:storage:read", "filesystem.read"],
        config_schema=CONFIG,
        secrets_schema=SECRETS,
    )
    plugin.tool("forecast", description="- tomorrow: ü€😀\u2028\x85\x7f", input_schema=CITY)(lambda city: city)
    plugin.tool("bare")(lambda: 1)
    plugin.method("index.rebuild")(lambda: 1)
    plugin.notifies("changed")
    plugin.hook("on_session_start")(lambda event: "hi")
    plugin.hook("before_message")(lambda event: None)
    plugin.compactor(lambda messages: messages)
    plugin.knob("depth", type="int_range", label="Depth", min=1, max=9, default=3)
    plugin.knob("how", type="enum", label="Mode", binds_to="config.mode", values=["on", "off"], default="on")
    return plugin


def read(text: str) -> PluginSpec:
    spec, problems = parse(text, Path("/plugins/p"))
    assert problems == []
    assert spec is not None
    return spec


@requirement("kaged:sdk-manifest")
def test_everything_that_is_declared_is_in_the_manifest() -> None:
    spec = read(kaged_manifest(everything(), command=[sys.executable, "plugin.py"]))
    assert (spec.id, spec.version) == ("example-weather", "1.10.0")
    assert spec.description == "Says: 'how' warm it \"is\" # there\n"
    assert spec.command == (sys.executable, "plugin.py")
    assert spec.capabilities == ("net:[]", "kaged:storage:read")
    exports = {(export.kind, export.name): export for export in spec.exports}
    assert list(exports) == [
        ("tool", "forecast"),
        ("tool", "bare"),
        ("method", "index.rebuild"),
        ("hook", "on_session_start"),
        ("hook", "pre_compact"),
        ("compactor", "example-weather"),
    ]
    forecast = exports["tool", "forecast"]
    assert forecast.description == "- tomorrow: ü€😀\u2028\x85\x7f"
    assert forecast.input_schema == CITY
    assert spec.roles == ("observer", "compactor")
    assert spec.publishes == ("plugin.example-weather.changed",)
    assert (spec.settings.config_schema, spec.settings.secrets_schema) == (CONFIG, SECRETS)
    depth, mode = spec.settings.knobs
    assert (depth.binds_to, depth.default, depth.facts) == ("depth", 3, {"min": 1, "max": 9})
    assert (mode.name, mode.binds_to, mode.facts) == ("how", "mode", {"values": ["on", "off"]})


@requirement("kaged:sdk-manifest")
def test_what_is_not_declared_is_not_in_it() -> None:
    plugin = Plugin("p")
    plugin.tool("echo", description="says it again")(lambda: 1)
    assert kaged_manifest(plugin, command=["./p"]) == (
        'name: "p"\n'
        'version: "0.1.0"\n'
        "kaged_api: 1\n"
        'description: "p"\n'
        "command:\n"
        '  - "./p"\n'
        "tools:\n"
        '  - name: "echo"\n'
        '    description: "says it again"\n'
        "    parameters_schema:\n"
        '      type: "object"\n'
    )


@pytest.mark.parametrize(
    ("declare", "roles"),
    [
        (lambda plugin: plugin.hook("post_compact")(print), ("observer",)),
        (lambda plugin: plugin.compactor(print), ("compactor",)),
        (lambda plugin: plugin.tool("echo")(lambda: 1), ()),
    ],
)
def test_roles_follow_from_what_is_declared(declare: Any, roles: tuple[str, ...]) -> None:
    plugin = Plugin("p")
    declare(plugin)
    assert read(kaged_manifest(plugin, command=["p"])).roles == roles


@pytest.mark.parametrize(
    "schema", [{}, {"type": "object", "additionalProperties": False, "x": [[1, [2]], [], {}, None]}]
)
def test_a_schema_is_written_as_it_is(schema: dict[str, Any]) -> None:
    plugin = Plugin("p", config_schema=schema)
    plugin.tool("echo")(lambda: 1)
    assert read(kaged_manifest(plugin, command=["p"])).settings.config_schema == schema


def test_a_long_description_is_cut_to_what_the_contract_allows() -> None:
    plugin = Plugin("p", description="x" * 300)
    plugin.tool("echo")(lambda: 1)
    assert read(kaged_manifest(plugin, command=["p"])).description == "x" * 200
