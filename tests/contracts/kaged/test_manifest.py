"""`kaged-plugin.yaml` becomes a spec; every problem comes at once, with its line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.kaged.manifest import FILE_NAMES, USUAL_VARIABLES, parse
from plugbay.contracts.kaged.sections import KnobEntry, Manifest
from plugbay.model.spec import Access, Export, Knob, Lifetime, RestartPolicy, SandboxRequest, SettingsSpec, Timeouts
from tests.contracts.kaged.manifests import ROOT, good, manifest, problems, reported
from tests.support.requirements import requirement

DIARY = """# Shaped like the published plugin: no methods, four tools, four hooks, knobs of seven types.
name: diary
version: 0.2.1
kaged_api: 1
description: "What an agent wrote down — in plain files."
author: somebody
license: MIT
homepage: https://example.com/diary

command:
  - /usr/bin/env
  - python3
  - ./diary.py

env:
  LOG_LEVEL: info

capabilities:
  - kaged:storage:read
  - "net:[]"

roles:
  - observer

hooks:
  - on_session_start
  - on_session_idle
  - pre_compact
  - post_compact

tools:
  - name: write
    description: >-
      Writes a page,
      over two lines.
    parameters_schema:
      type: object
      properties:
        page: {type: string}
        context: {type: string}
      required: [page]
  - {name: search, description: Finds pages., parameters_schema: {type: object, properties: {words: {type: string}}}}
  - {name: tear_out, description: Removes a page., parameters_schema: {type: object, required: [id]}}
  - name: list_topics
    description: Names all topics.
    parameters_schema:
      type: object
      properties: {}

methods: []

config_schema:
  type: object
  properties:
    scope: {type: string, enum: [agent, project], default: agent}
    folder: {type: string, default: "config:/diary"}
    keep: {type: boolean, default: true}
    shown: {type: integer, default: 10, minimum: 0, maximum: 100}
    weight: {type: integer, default: 3, minimum: 0, maximum: 10}
    title: {type: string, default: ""}
    header: {type: string, default: "Known:"}
  additionalProperties: false

system_config_schema:
  type: object
  properties:
    key: {type: string, description: Locks the diary.}
  additionalProperties: false

knobs:
  folder:
    {type: path, label: Folder, prefixes: ["config:", "project:"], default: "config:/diary", binds_to: config.folder}
  scope:
    type: enum
    label: Scope
    values: [agent, project]
    labels: {agent: Per agent, project: Shared}
    default: agent
    binds_to: config.scope
  keep: {type: boolean, label: Keep, default: true, binds_to: config.keep}
  shown: {type: int_range, label: Shown, min: 0, max: 50, step: 1, default: 10, binds_to: config.shown}
  title: {type: text, label: Title, max_length: 200, default: "", binds_to: config.title}
  weight: {type: range, label: Weight, min: 0, max: 10, step: 0.5, default: 3, binds_to: config.weight}
  header: {type: multiline, label: Header, max_length: 500, default: "Known:", binds_to: config.header}

shutdown_timeout_sec: 7
health_interval_sec: 45
hook_timeout_sec: 20
"""


def test_the_file_has_the_name_of_published_plugins_or_the_contracts() -> None:
    assert FILE_NAMES == ("kaged-plugin.yaml", "manifest.yaml")


@requirement("kaged:manifest-file")
def test_a_manifest_becomes_a_spec() -> None:
    spec = good(
        manifest(
            "env: {A: b}\ncapabilities: [kaged:storage:write, 'read:fs:/srv', net:*]\nnotifications: [added, page.torn]"
        )
    )
    assert (spec.id, spec.name, spec.version, spec.contract) == ("notes", "notes", "0.1.0", "kaged")
    assert (spec.root, spec.cwd, spec.command) == (ROOT, ROOT, ("./notes",))
    assert spec.description == "Notes for agents."
    assert (spec.env, spec.env_inherit) == ((("A", "b"),), USUAL_VARIABLES)
    assert spec.env_facts == (
        ("KAGED_PROJECT_ID", "project.id"),
        ("KAGED_PROJECT_ROOT", "project.root"),
        ("KAGED_CONFIG_ROOT", "config.root"),
    )
    assert (spec.lifetime, spec.eager, spec.respawn) == (Lifetime.RESIDENT, True, True)
    assert spec.exports == (Export("method", "notes.list"),)
    assert spec.capabilities == ("kaged:storage:write", "read:fs:/srv", "net:*")
    assert spec.access == (
        Access("storage_write", capability="kaged:storage:write"),
        Access("read_path", "/srv", capability="read:fs:/srv"),
        Access("network", capability="net:*"),
    )
    assert spec.sandbox == SandboxRequest()
    assert spec.publishes == ("plugin.notes.added", "plugin.notes.page.torn")
    assert (spec.publish_rate, spec.roles, spec.settings) == (100.0, (), SettingsSpec())


@requirement("kaged:manifest-bounds")
def test_the_contracts_defaults_and_the_hosts_numbers_are_in_the_spec() -> None:
    spec = good(manifest())
    assert spec.timeouts == Timeouts(handshake=10, call=30, farewell=3, teardown=1, term=1)
    assert spec.patience == {"RunHook": 10.0, "CheckHealth": 5.0}
    assert spec.health_interval == 30.0
    assert spec.restart == RestartPolicy(
        first_delay=1, factor=2, longest_delay=60, jitter=0.1, failures=5, window=300, healthy_after=60
    )


@requirement("kaged:manifest-published-shape")
def test_a_manifest_shaped_like_the_published_one_loads() -> None:
    spec, found = parse(DIARY, ROOT, {})
    assert spec is not None
    assert [(problem.severity, problem.code, problem.path, problem.line) for problem in found] == [
        ("warning", "knob_beyond_schema", "knobs.weight", 83)
    ]
    assert [(export.kind, export.name) for export in spec.exports] == [
        ("tool", "write"),
        ("tool", "search"),
        ("tool", "tear_out"),
        ("tool", "list_topics"),
        ("hook", "on_session_start"),
        ("hook", "on_session_idle"),
        ("hook", "pre_compact"),
        ("hook", "post_compact"),
    ]
    assert spec.exports[0].description == "Writes a page, over two lines."
    assert spec.exports[0].input_schema["required"] == ["page"]
    assert spec.capabilities == ("kaged:storage:read", "net:[]")
    assert spec.access == (
        Access("storage_read", capability="kaged:storage:read"),
        Access("no_network", capability="net:[]"),
    )
    assert spec.roles == ("observer",)
    assert (
        round(spec.timeouts.farewell + spec.timeouts.teardown + spec.timeouts.term, 9),
        spec.health_interval,
        spec.patience["RunHook"],
    ) == (7.0, 45.0, 20.0)


@requirement("kaged:manifest-knob-types")
def test_settings_of_a_manifest_are_the_schemas_and_the_knobs() -> None:
    spec, _ = parse(DIARY, ROOT, {})
    assert spec is not None
    settings = spec.settings
    assert next(iter(settings.config_schema["properties"])) == "scope"
    assert list(settings.secrets_schema["properties"]) == ["key"]
    assert [knob.name for knob in settings.knobs] == "folder scope keep shown title weight header".split()
    assert settings.knobs[3] == Knob(
        "shown", "int_range", "Shown", "shown", default=10, facts={"min": 0, "max": 50, "step": 1}
    )


@requirement("kaged:manifest-roles")
@pytest.mark.parametrize(
    ("lines", "roles", "kinds"),
    [
        ("", (), ["method"]),
        ("hooks: [post_compact]", ("observer",), ["method", "hook"]),
        ("hooks: [post_compact]\nroles: []", (), ["method", "hook"]),
        ("hooks: [pre_compact]\nroles: [compactor]", ("compactor",), ["method", "hook", "compactor"]),
        ("roles: [observer]", ("observer",), ["method"]),
    ],
)
def test_a_plugin_with_hooks_observes_unless_it_says_otherwise(
    lines: str, roles: tuple[str, ...], kinds: list[str]
) -> None:
    spec = good(manifest(lines))
    assert spec.roles == roles
    assert [export.kind for export in spec.exports] == kinds
    assert all(export.name == spec.id for export in spec.exports if export.kind == "compactor")


@requirement("kaged:manifest-tool-schema")
def test_a_tool_with_a_schema_of_no_use_is_offered_without_one() -> None:
    spec, found = parse(
        manifest(
            "tools:\n"
            "  - {name: odd, description: Odd., parameters_schema: {type: 7}}\n"
            "  - {name: even, description: Even., parameters_schema: {type: object}}\n"
        ),
        ROOT,
    )
    assert [problem.severity for problem in found] == ["warning"]
    assert spec is not None
    assert spec.exports[:2] == (Export("tool", "odd", "Odd."), Export("tool", "even", "Even.", {"type": "object"}))


def test_what_is_listed_twice_is_there_once() -> None:
    spec, _ = parse(
        manifest('capabilities: ["net:*", "net:*"]\nnotifications: [x, x]\nhooks: [pre_compact, pre_compact]'), ROOT
    )
    assert spec is not None
    assert (spec.capabilities, spec.publishes) == (("net:*",), ("plugin.notes.x",))
    assert [export.kind for export in spec.exports] == ["method", "hook"]


TEN_FAULTS = """name: Notes
version: 1.10
kaged_api: true
description: ""
command: []
homepage: notes
env: {PORT: 8080}
capabilities:
  - read:fs:relative
methods:
  - kaged.steal
roles: [compactor]
knobs:
  level:
    type: range
    label: Level
    min: 5
    max: 1
    binds_to: system_config.level
tols: []
shutdown_timeout_sec: 99
"""


@requirement("kaged:manifest-all-problems")
def test_every_mistake_is_reported_at_once_in_the_order_of_the_lines() -> None:
    found = reported(TEN_FAULTS)
    assert [(problem.line, problem.code, problem.path) for problem in found] == [
        (1, "invalid_value", "name"),
        (2, "invalid_type", "version"),
        (3, "invalid_type", "kaged_api"),
        (4, "invalid_value", "description"),
        (5, "invalid_value", "command"),
        (6, "invalid_value", "homepage"),
        (7, "invalid_type", "env.PORT"),
        (9, "invalid_capability", "capabilities[0]"),
        (11, "invalid_method", "methods[0]"),
        (12, "compactor_without_hook", "roles[0]"),
        (18, "knob_bounds", "knobs.level.max"),
        (19, "knob_binding", "knobs.level.binds_to"),
        (20, "unknown_key", "tols"),
        (21, "invalid_value", "shutdown_timeout_sec"),
    ]


@pytest.mark.parametrize("text", ["", "[]", "notes", "3", "- name: notes"])
def test_a_file_that_is_no_mapping_says_so(text: str) -> None:
    assert problems(text) == [("error", "invalid_type", "")]


@requirement("kaged:manifest-yaml-strict")
@pytest.mark.parametrize("line", ["name: again", "env: *x", "env: !!map {}", "---\nname: b", "a: ["])
def test_text_that_is_no_usable_yaml_is_one_problem(line: str) -> None:
    assert [(severity, code) for severity, code, _ in problems(manifest(line))] == [("error", "parse_error")]


@given(st.text())
def test_no_text_makes_it_raise(text: str) -> None:
    spec, found = parse(text, ROOT, {})
    assert spec is None
    assert found


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**240), 10**240)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from("object string range enum config.a pre_compact compactor net:[] a.b _context".split()),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from("name type properties a _context description".split()), inner, max_size=4)
    ),
    max_leaves=8,
)


def entries(names: Any, value: Any) -> Any:
    return st.fixed_dictionaries({}, optional=dict.fromkeys(names, value))


NUMBERS = st.integers(-3, 3) | st.integers(-(10**240), 10**240) | st.floats(allow_nan=False, allow_infinity=False)
KNOBS = st.fixed_dictionaries(
    {
        "type": st.sampled_from("range int_range enum boolean text multiline model_alias path".split()),
        "label": st.just("A"),
        "binds_to": st.just("config.a"),
    },
    optional={
        **dict.fromkeys(("min", "max", "step"), NUMBERS),
        "default": ANYTHING,
        "values": st.lists(NUMBERS | st.booleans() | st.text(max_size=2), max_size=3),
        "labels": st.dictionaries(st.text(max_size=2), st.text(max_size=2), max_size=2),
        "max_length": st.integers(1, 3),
        "prefixes": st.lists(st.text(max_size=2), max_size=2),
    },
)


@given(
    entries(Manifest.model_fields, ANYTHING),
    st.dictionaries(st.text(max_size=3), entries(KnobEntry.model_fields, ANYTHING) | KNOBS, max_size=2),
)
def test_no_document_makes_it_raise(value: dict[str, Any], knobs: dict[str, Any]) -> None:
    schema = {"properties": {"a": value.get("config_schema")}}
    for text in (json.dumps(value), json.dumps({**value, "knobs": knobs, "config_schema": schema})):
        spec, found = parse(text, ROOT, {})
        assert (spec is None) == any(problem.severity == "error" for problem in found)


@given(KNOBS)
def test_no_knob_makes_a_good_manifest_raise(knob: dict[str, Any]) -> None:
    schema: dict[str, Any] = {"properties": {"a": {}}}
    spec, found = parse(manifest(config_schema=json.dumps(schema), knobs=json.dumps({"k": knob})), ROOT, {})
    assert (spec is None) == any(problem.severity == "error" for problem in found)
