"""A manifest that is written from code, as a host reads it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from plugbay.contracts.ainb.manifest import parse as parse_ainb
from plugbay.contracts.kaged.manifest import parse
from plugbay.contracts.mcp.manifest import parse as parse_mcp
from plugbay.contracts.nexo.manifest import parse as parse_nexo
from plugbay.contracts.rune.manifest import parse as parse_rune
from plugbay.contracts.vai.manifest import parse as parse_vai
from plugbay.model.errors import Problem
from plugbay.model.spec import PluginSpec
from plugbay.sdk import Plugin
from plugbay.sdk.manifests import (
    ainb_manifest,
    ainb_program,
    kaged_manifest,
    mcp_manifest,
    nexo_manifest,
    permissions_of,
    rune_manifest,
    schemas_of,
    structured,
    vai_manifest,
    vai_manifest_object,
    vai_program,
    write_ainb,
    write_vai,
)
from tests.sdk.processes import PROLOGUE, Framed, Vai
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


# rune.


@requirement("rune:sdk-manifest")
def test_a_rune_manifest_says_what_is_declared() -> None:
    spec, problems = parse_rune(rune_manifest(everything(), ["python3", "plugin.py"]), Path("/plugins/p"))
    assert problems == []
    assert spec is not None
    assert (spec.id, spec.version, spec.command) == ("example.weather", "1.10.0", ("python3", "plugin.py"))
    assert spec.description == "Says: 'how' warm it \"is\" # there\n"
    assert [export.name for export in spec.exports] == ["forecast", "bare"]
    assert spec.exports[0].description == "- tomorrow: ü€😀\u2028\x85\x7f"
    assert spec.exports[0].input_schema == CITY
    assert spec.capabilities == ("net:[]", "kaged:storage:read", "filesystem.read")


@pytest.mark.parametrize(
    ("effect", "tier", "mutating"),
    [
        ("read_only", "safe", False),
        ("idempotent_write", "moderate", True),
        ("non_idempotent_write", "dangerous", True),
        ("unknown", "moderate", False),
    ],
)
def test_how_much_approval_a_tool_needs_follows_from_its_effect(effect: str, tier: str, mutating: bool) -> None:
    plugin = Plugin("p")
    plugin.tool("act", effect=effect)(lambda: 1)
    spec, _ = parse_rune(rune_manifest(plugin, ["p"]), Path("/plugins/p"))
    assert spec is not None
    facts = spec.exports[0].facts
    assert (facts["approval_tier"], facts["mutating"]) == (tier, mutating)


def test_a_tool_asks_for_what_the_plugin_asks_for_and_nothing_else() -> None:
    plugin = Plugin("p", capabilities=["files.read", "files.write"])
    plugin.tool("read", capabilities=["files.read", "network"])(lambda: 1)
    spec, problems = parse_rune(rune_manifest(plugin, ["p"]), Path("/plugins/p"))
    assert problems == []
    assert spec is not None
    assert spec.exports[0].capabilities == ("files.read",)


# nexo.


class Post:
    def start(self, instance: str) -> None: ...
    def stop(self) -> None: ...
    def send(self, message: object) -> str:
        return "1"


@requirement("nexo:sdk-manifest")
def test_a_nexo_manifest_says_what_is_declared() -> None:
    plugin = everything()
    plugin.capabilities = ("memory.recall", "net:[]")
    plugin.channel("post")(Post)
    plugin.llm_provider("toy")(lambda request: "")
    plugin.vector_backend("shelf")(object())
    plugin.on_event("plugin.outbound.other")(lambda event: None)
    plugin.on_event("elsewhere")(lambda event: None)
    plugin.on_event()(lambda event: None)
    spec, problems = parse_nexo(nexo_manifest(plugin, ["python3", "plugin.py"]), Path("/plugins/p"), {})
    assert problems == []
    assert spec is not None
    assert (spec.id, spec.version, spec.command) == ("example_weather", "1.10.0", ("python3", "plugin.py"))
    assert [(export.kind, export.name) for export in spec.exports] == [
        ("tool", "example_weather_forecast"),
        ("tool", "example_weather_bare"),
        ("channel", "post"),
        ("llm_provider", "toy"),
        ("vector_backend", "shelf"),
        ("hook", "before_message"),
    ]
    assert spec.capabilities == ("memory.recall",)
    assert spec.subscribes == ("plugin.outbound.post", "plugin.outbound.post.>", "plugin.outbound.other")


def test_a_nexo_manifest_without_a_description_has_the_name() -> None:
    plugin = Plugin("p")
    plugin.tool("look")(lambda: 1)
    assert nexo_manifest(plugin, ["./p"]) == (
        '[plugin]\nid = "p"\nversion = "0.1.0"\nname = "p"\ndescription = "p"\nmin_nexo_version = ">=0.1.0"\n\n'
        '[plugin.entrypoint]\ncommand = "./p"\n\n'
        '[plugin.extends]\ntools = ["p_look"]\n'
    )


# ainb.


def usage() -> Plugin:
    plugin = Plugin(
        "usage",
        "1.0.0",
        description='Shows "how much" \\ \x7f\n ü😀',
        capabilities=["event_bus", "network=a.b", "network=c.d:81", "secrets:read=key", "net:[]"],
        eager=True,
        idle_seconds=0,
    )
    plugin.screen("usage")(print)
    plugin.cli("usage")(print)
    plugin.action("usage.total")(print)
    plugin.on_action("refresh")(print)
    plugin.on_snapshot("in", latest=True)(print)
    plugin.publishes("out")
    plugin.tool("echo")(lambda: 1)
    plugin.knob("depth", type="int_range", label="Depth", min=1, max=9, default=3)
    plugin.knob("loud", type="boolean", label="Loud", default=True)
    plugin.knob("how", type="enum", label="Mode", binds_to="config.mode", values=["on", "off"], default="on")
    plugin.knob("folder", type="path", label="Folder")
    plugin.knob("speed", type="range", label="Speed", min=0, max=1)
    return plugin


@requirement("ainb:sdk-manifest")
def test_everything_that_ainb_carries_is_in_its_manifest() -> None:
    spec, problems = parse_ainb(ainb_manifest(usage()), Path("/plugins/usage"))
    assert problems == []
    assert spec is not None
    assert (spec.id, spec.version, spec.eager, spec.idle_seconds) == ("usage", "1.0.0", True, None)
    assert spec.description == 'Shows "how much" \\ \x7f\n ü😀'
    assert spec.capabilities == ("event_bus", "network=a.b", "network=c.d:81", "secrets:read=key")
    assert [(export.kind, export.name) for export in spec.exports] == [
        ("screen", "usage"),
        ("cli_namespace", "usage"),
        ("cli_namespace", "usage.total"),
    ]
    assert (spec.commands, spec.snapshots, spec.latest_state) == (("refresh",), ("in",), ("in",))
    knobs = [(knob.binds_to, knob.type, knob.label, knob.default) for knob in spec.settings.knobs]
    assert knobs == [
        ("depth", "int_range", "Depth", 3),
        ("loud", "boolean", "Loud", True),
        ("mode", "enum", "Mode", "on"),
        ("folder", "path", "Folder", None),
    ]


@requirement("ainb:sdk-manifest")
def test_what_is_not_declared_is_not_in_an_ainb_manifest() -> None:
    assert ainb_manifest(Plugin("p", "1.2.3")) == '[plugin]\nname = "p"\nversion = "1.2.3"\nabi_version = 2\n'


@requirement("ainb:sdk-program")
def test_the_program_beside_the_manifest_is_the_plugin_from_wherever_it_is_started(tmp_path: Path) -> None:
    folder = tmp_path / "my usage"
    folder.mkdir()
    (folder / "the source.py").write_text(f"{PROLOGUE}\nPlugin('my usage', '1.0.0').run()\n")
    write_ainb(Plugin("my usage", "1.0.0"), folder, "the source.py", sys.executable)
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.toml", "my usage", "the source.py"]
    spec, problems = parse_ainb((folder / "manifest.toml").read_text(), folder)
    assert spec is not None
    assert problems == []
    assert os.access(spec.command[0], os.X_OK)
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(spec.command, cwd="/", **pipes) as process:
        plugin = Framed(process)
        assert plugin.greet()["name"] == "my usage"
        plugin.close()
        assert plugin.status() == 0


@requirement("ainb:sdk-program")
def test_a_program_needs_a_folder_of_its_own_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the folder of this plugin must be called 'usage'"):
        write_ainb(usage(), tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert ainb_program() == '#!/bin/sh\nexec python3 "${0%/*}"/plugin.py\n'


# MCP.


@requirement("mcp:sdk-manifest")
def test_the_entry_of_a_client_starts_the_plugin_and_says_nothing_else(tmp_path: Path) -> None:
    plugin = Plugin("example.weather/now", version="1.0.0")
    plugin.tool("look")(lambda: 1)
    text = mcp_manifest(plugin, ["python3", "plugin.py"])
    assert json.loads(text) == {"mcpServers": {"example-weather-now": {"command": "python3", "args": ["plugin.py"]}}}
    spec, problems = parse_mcp(text, tmp_path, {})
    assert problems == []
    assert spec is not None and (spec.id, spec.command) == ("example-weather-now", ("python3", "plugin.py"))


def test_tools_that_mcp_cannot_tell_apart_are_an_error() -> None:
    plugin = Plugin("p")
    plugin.tool("look at")(lambda: 1)
    plugin.tool("look/at")(lambda: 1)
    with pytest.raises(ValueError, match="two tools of p have one name in MCP's alphabet: look at, look/at"):
        mcp_manifest(plugin, ["python3", "plugin.py"])


# vai.


class FolderSite:
    """A folder as a host reads it, on a machine that every package can run on."""

    platform = ("linux", "amd64")

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, path: str, limit: int) -> bytes | Problem:
        return (self._folder / path).read_bytes()

    def program_problem(self, path: str) -> str | None:
        return None if os.access(self._folder / path, os.X_OK) else "it cannot be started"


def devkit() -> Plugin:
    plugin = Plugin(
        "acme/devkit",
        "0.1.0",
        name='The "kit" \\ ü😀',
        description="Two\nlines",
        capabilities=["network", "net:[]"],
        config_schema=CONFIG,
    )
    facts: Any = {"timeout": 5, "max_concurrency": 4, "execution_class": "isolated"}
    plugin.tool("search", effect="read_only", input_schema=CITY, output_schema={"type": "array"}, **facts)(lambda: 1)
    plugin.hook("run.completed", "chain.compacted", export="notify", capabilities=["secret=webhook"])(print)
    plugin.hook("before_message")(print)
    plugin.compactor(export="window", target_context="coding", capabilities=["filesystem=scratch"])(print)
    plugin.harness("triage", supports=["continue"], capabilities=["scope=chains:read"])(print)
    return plugin


@requirement("vai:sdk-manifest")
def test_everything_that_vai_carries_is_in_its_manifest(tmp_path: Path) -> None:
    write_vai(devkit(), tmp_path)
    spec, problems = parse_vai((tmp_path / "vai-plugin.toml").read_text(), tmp_path, {}, FolderSite(tmp_path))
    assert problems == []
    assert spec is not None
    assert (spec.id, spec.version, spec.name) == ("acme/devkit", "0.1.0", 'The "kit" \\ ü😀')
    assert spec.description == "Two\nlines"
    exports = {export.name: export for export in spec.exports}
    assert {name: export.kind for name, export in exports.items()} == {
        "triage": "harness",
        "search": "tool",
        "window": "compactor",
        "notify": "hook",
    }
    search = exports["search"]
    assert search.input_schema == CITY
    assert search.output_schema == {
        "type": "object",
        "properties": {"result": {"type": "array"}},
        "required": ["result"],
    }
    facts = [search.facts[name] for name in ("effect_class", "timeout_ms", "max_concurrency", "execution_class")]
    assert facts == ["read_only", 5000, 4, "isolated"]
    assert search.facts["config_schema"] == CONFIG
    assert exports["notify"].capabilities == ("network", "secret=webhook")
    assert exports["window"].capabilities == ("network", "filesystem=scratch")
    assert exports["triage"].capabilities == ("network", "scope=chains:read")


@requirement("vai:sdk-manifest")
def test_what_is_not_declared_is_not_in_a_vai_manifest() -> None:
    plugin = Plugin("p", "1.2.3")
    plugin.hook("run.completed", export="notify")(lambda event: None)
    assert vai_manifest(plugin, ["python3", "plugin.py"]) == (
        'api_version = "vai.plugin.v1"\n'
        'package_id = "local/p"\n'
        'version = "1.2.3"\n'
        'name = "p"\n'
        "\n[runtime]\n"
        'protocol = "vai.rpc.v1"\n'
        'transport = "stdio"\n'
        'entrypoint = ["python3", "plugin.py"]\n'
        'os = ["linux", "darwin"]\n'
        'arch = ["amd64", "arm64"]\n'
        "\n[[exports]]\n"
        'id = "notify"\n'
        'kind = "hook"\n'
        'display_name = "Notify"\n'
        "default_timeout_ms = 15000\n"
        "\n[exports.permissions]\n"
        'network = "none"\n'
        'filesystem = "none"\n'
        "gateway_api_scopes = []\n"
        "secret_slots = []\n"
        "\n[exports.hook]\n"
        'subscribes_to = ["run.completed"]\n'
    )


@requirement("vai:sdk-program")
def test_the_program_of_a_package_is_the_plugin_from_wherever_it_is_started(tmp_path: Path) -> None:
    folder = tmp_path / "my kit"
    folder.mkdir()
    (folder / "the source.py").write_text(f"{PROLOGUE}\nPlugin('acme/devkit', '0.1.0').run()\n")
    write_vai(devkit(), folder, "the source.py", sys.executable)
    write_vai(devkit(), folder, "the source.py", sys.executable)  # a second time is as good as the first
    assert sorted(path.name for path in folder.iterdir()) == ["bin", "schemas", "the source.py", "vai-plugin.toml"]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([folder / "bin" / "plugin"], cwd="/", **pipes) as process:
        plugin = Vai(process)
        assert plugin.greet()["plugin"] == {"package_id": "acme/devkit", "version": "0.1.0"}
        plugin.close()
        assert plugin.status() == 0
    assert vai_program() == '#!/bin/sh\nexec python3 "${0%/*}"/../plugin.py\n'


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
    first, second = (export["permissions"] for export in vai_manifest_object(plugin, ["./p"])["exports"])
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
    harness, tool, hook = vai_manifest_object(plugin, ["./p"])["exports"]
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
    exports = {export["id"]: export for export in vai_manifest_object(plugin, ["./p"])["exports"]}
    assert {id: export["default_timeout_ms"] for id, export in exports.items()} == {
        "harness": 1_800_000,
        "a": 250,
        "b": 20_000,
        "print": 120_000,
        "function": 15_000,
    }
    assert (exports["a"]["max_concurrency"], exports["a"]["execution_class"]) == (3, "worker")
    assert not {"max_concurrency", "execution_class", "description", "config_schema"} & set(exports["b"])
