"""`kaged-plugin.yaml` becomes a spec; every problem comes at once, with its line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.kaged.manifest import (
    MAX_NOTIFICATION,
    USUAL_VARIABLES,
    conflicts,
    parse,
    parse_capability,
)
from plugbay.contracts.kaged.sections import KnobEntry, Manifest
from plugbay.contracts.kaged.spec import FILE_NAMES
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
    assert spec.sandbox == SandboxRequest(fenced=True, tools=("mkdir",))
    assert spec.publishes == ("plugin.notes.added", "plugin.notes.page.torn")
    assert (spec.publish_rate, spec.roles, spec.settings) == (100, (), SettingsSpec())


@requirement("kaged:manifest-bounds")
def test_the_contracts_defaults_and_the_hosts_numbers_are_in_the_spec() -> None:
    spec = good(manifest())
    assert spec.timeouts == Timeouts(handshake=10, call=30, farewell=5, teardown=0, term=2)
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
        spec.timeouts.farewell + spec.timeouts.teardown,
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
    assert [(export.name, export.description, export.input_schema) for export in spec.exports[:2]] == [
        ("odd", "Odd.", None),
        ("even", "Even.", {"type": "object"}),
    ]


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


TOOL = "{name: add, description: Adds., parameters_schema: {type: object}}"


@requirement("kaged:manifest-reserved-names")
@pytest.mark.parametrize("name", ["kaged", "system"])
def test_a_plugin_cannot_have_the_daemons_names(name: str) -> None:
    assert problems(manifest(name=name)) == [("error", "reserved_name", "name")]
    good(manifest(name=f"{name}-notes"))


@requirement("kaged:manifest-api-version")
def test_a_plugin_for_another_api_is_refused() -> None:
    (found,) = reported(manifest(kaged_api="2"))
    assert (found.code, found.path) == ("kaged_api_unsupported", "kaged_api")
    assert "this host speaks 1" in found.message


@pytest.mark.parametrize(
    ("version", "fine"), [("1.2.3", True), ("1.2.3-rc.1+b5", True), ("v1", False), ("latest", False)]
)
def test_a_version_that_is_not_semantic_is_warned_about_only(version: str, fine: bool) -> None:
    assert problems(manifest(version=version)) == ([] if fine else [("warning", "version_not_semver", "version")])


@requirement("kaged:manifest-homepage")
@pytest.mark.parametrize(
    ("url", "fine"),
    [
        ("https://example.com", True),
        ("http://localhost:8080/a?b#c", True),
        ("https://[::1]/", True),
        ("example.com", False),
        ("ftp://example.com", False),
        ("javascript:alert(1)", False),
        ("https://", False),
        ("https:///path", False),
        ("https://exa mple.com", False),
        ("https://example.com:port", False),
        ("https://example.com:99999", False),
        ("https://[::1", False),
        ("", False),
    ],
)
def test_a_homepage_is_a_url_of_the_web(url: str, fine: bool) -> None:
    expected = [] if fine else [("error", "invalid_value", "homepage")]
    assert problems(manifest(homepage=f"'{url}'")) == expected


@requirement("kaged:manifest-command")
@pytest.mark.parametrize(("command", "path"), [("['  ', x]", "command[0]"), ('[a, "b\\0"]', "command[1]")])
def test_a_command_that_cannot_be_started_is_an_error(command: str, path: str) -> None:
    assert problems(manifest(command=command)) == [("error", "invalid_value", path)]


@requirement("kaged:manifest-env")
@pytest.mark.parametrize("env", ["{'': x}", "{A=B: x}", '{"A\\0": x}', '{A: "x\\0"}'])
def test_a_variable_that_cannot_be_set_is_an_error(env: str) -> None:
    ((severity, code, _),) = problems(manifest(env=env))
    assert (severity, code) == ("error", "invalid_value")


def test_hiding_a_variable_of_the_host_is_warned_about() -> None:
    assert problems(manifest(env="{KAGED_PROJECT_ID: x}")) == [("warning", "host_env", "env.KAGED_PROJECT_ID")]


@requirement("kaged:manifest-capability-grammar")
def test_every_bad_capability_is_named() -> None:
    text = manifest('capabilities:\n  - kaged:storage:read\n  - "net:x:0"\n  - fs\n')
    assert [(problem.code, problem.path, problem.line) for problem in reported(text)] == [
        ("invalid_capability", "capabilities[1]", 9),
        ("invalid_capability", "capabilities[2]", 10),
    ]


@requirement("kaged:manifest-capability-conflict")
def test_denying_the_network_and_asking_for_it_is_an_error() -> None:
    assert problems(manifest(capabilities='["net:*", "net:[]"]')) == [
        ("error", "capability_conflict", "capabilities[1]")
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("capabilities", '["net:*", "net:*"]'),
        ("methods", "[a.b, a.b]"),
        ("notifications", "[x, x]"),
        ("hooks", "[pre_compact, pre_compact]"),
        ("roles", "[observer, observer]"),
    ],
)
def test_what_is_listed_twice_is_warned_about_and_counts_once(field: str, value: str) -> None:
    assert problems(manifest(**{field: value})) == [("warning", "duplicate", f"{field}[1]")]


@requirement("kaged:manifest-methods")
@pytest.mark.parametrize(
    "method", ["a.b", "a.b.c.d", "notes.list_all", "my-notes.x-1", "kagedx.list", "a.kaged.system"]
)
def test_a_method_has_two_to_four_segments(method: str) -> None:
    assert [export.name for export in good(manifest(methods=f"[{method}]")).exports] == [method]


@requirement("kaged:manifest-methods")
@pytest.mark.parametrize(
    "method",
    [
        "list",
        "a.b.c.d.e",
        "Notes.list",
        "notes.List",
        "notes..list",
        ".list",
        "notes.",
        "notes.1",
        "a b.c",
        "a.b ",
        "",
        "é.a",
    ],
)
def test_any_other_name_is_no_method(method: str) -> None:
    assert problems(manifest(methods=f"['{method}']")) == [("error", "invalid_method", "methods[0]")]


@requirement("kaged:manifest-reserved-methods")
@pytest.mark.parametrize("method", ["kaged.storage.get", "kaged.x", "system.reboot"])
def test_the_daemons_prefixes_are_reserved(method: str) -> None:
    (found,) = reported(manifest(methods=f"[{method}]"))
    assert (found.severity, found.code, found.path) == ("error", "invalid_method", "methods[0]")
    assert "reserved" in found.message


def test_the_probe_among_the_methods_is_warned_about() -> None:
    assert problems(manifest(methods="[health.check]")) == [("warning", "protocol_method", "methods[0]")]


@requirement("kaged:manifest-notifications")
@pytest.mark.parametrize("name", ["note", "note.added", "Note.Added-1", "a/b", "x" * MAX_NOTIFICATION])
def test_a_notification_can_be_a_topic(name: str) -> None:
    assert good(manifest(notifications=f"['{name}']")).publishes == (f"plugin.notes.{name}",)


@requirement("kaged:manifest-notifications")
@pytest.mark.parametrize(
    "name", ["", "a b", "a.*", "*", "a.>", "a>b", "a..b", ".a", "a.", "\\t", "\\x7f", "x" * (MAX_NOTIFICATION + 1)]
)
def test_a_notification_that_can_be_no_topic_is_an_error(name: str) -> None:
    assert problems(manifest(notifications=f'["{name}"]')) == [("error", "invalid_notification", "notifications[0]")]


@requirement("kaged:manifest-tools")
@pytest.mark.parametrize("name", ["retain", "list_tags", "a-1"])
def test_a_tool_is_one_segment(name: str) -> None:
    good(manifest(tools=f"[{TOOL.replace('add', name)}]"))


@requirement("kaged:manifest-tools")
@pytest.mark.parametrize("name", ["notes.add", "Add", "1st", "_add", "a b", "-a"])
def test_any_other_name_is_no_tool(name: str) -> None:
    assert problems(manifest(tools=f"[{TOOL.replace('add', name)}]")) == [
        ("error", "invalid_tool_name", "tools[0].name")
    ]


@requirement("kaged:manifest-tools")
def test_two_tools_have_two_names() -> None:
    assert problems(manifest(tools=f"[{TOOL}, {TOOL}]")) == [("error", "duplicate_tool", "tools[1].name")]


def test_a_tool_cannot_take_the_place_of_the_probe() -> None:
    tools = f"[{TOOL.replace('add', 'check')}]"
    assert problems(manifest(name="health", tools=tools)) == [("error", "reserved_name", "tools[0].name")]
    good(manifest(tools=tools))


@requirement("kaged:manifest-context-reserved")
def test_a_tool_cannot_have_a_parameter_named_as_the_context_is() -> None:
    def tools(parameter: str) -> str:
        return f"[{{name: a, description: A., parameters_schema: {{properties: {{{parameter}: {{}}}}}}}}]"

    good(manifest(tools=tools("context")))
    (found,) = reported(manifest(tools=tools("_context")))
    assert (found.severity, found.code) == ("error", "reserved_parameter")
    assert found.path == "tools[0].parameters_schema.properties._context"


@requirement("kaged:manifest-tool-schema")
@pytest.mark.parametrize(
    "schema", ["{type: 3}", "{$ref: 'https://example.com/x'}", "{type: string}", "{type: [array]}"]
)
def test_a_tool_whose_schema_cannot_be_enforced_goes_unchecked(schema: str) -> None:
    (found,) = reported(manifest(tools=f"[{{name: a, description: A., parameters_schema: {schema}}}]"))
    assert (found.severity, found.code, found.path) == ("warning", "invalid_schema", "tools[0].parameters_schema")


@requirement("kaged:manifest-roles")
@pytest.mark.parametrize(
    ("roles", "hooks", "codes"),
    [
        ("[compactor]", "[]", ["compactor_without_hook"]),
        ("[observer, compactor]", "[post_compact]", ["compactor_without_hook"]),
        ("[compactor]", "[pre_compact]", []),
        ("[observer]", "[]", []),
    ],
)
def test_a_compactor_needs_the_hook_before_compaction(roles: str, hooks: str, codes: list[str]) -> None:
    assert [problem.code for problem in reported(manifest(roles=roles, hooks=hooks))] == codes


@requirement("kaged:manifest-config-schema")
@pytest.mark.parametrize("field", ["config_schema", "system_config_schema"])
@pytest.mark.parametrize(
    "schema", ["{type: 3}", "{properties: 7}", "{$ref: 'https://example.com/x'}", "{type: string}"]
)
def test_a_schema_of_settings_that_cannot_be_enforced_is_an_error(field: str, schema: str) -> None:
    assert problems(manifest(**{field: schema})) == [("error", "invalid_schema", field)]


@requirement("kaged:manifest-disjoint-schemas")
def test_a_setting_is_a_secret_or_it_is_not() -> None:
    text = manifest(
        config_schema="{properties: {a: {}, token: {}}}", system_config_schema="{properties: {token: {}, b: {}}}"
    )
    assert problems(text) == [("error", "schemas_overlap", "system_config_schema.properties.token")]
    good(text.replace("a: {}, token", "a: {}, title"))


@requirement("kaged:manifest-offers-something")
@pytest.mark.parametrize(
    ("methods", "tools", "hooks", "fine"),
    [
        ("[]", "[]", "[]", False),
        ("[a.b]", "[]", "[]", True),
        ("[]", f"[{TOOL}]", "[]", True),
        ("[]", "[]", "[pre_compact]", True),
    ],
)
def test_a_plugin_offers_a_method_a_tool_or_a_hook(methods: str, tools: str, hooks: str, fine: bool) -> None:
    expected = [] if fine else [("error", "nothing_offered", "methods")]
    assert problems(manifest(methods=methods, tools=tools, hooks=hooks)) == expected


def test_a_manifest_that_is_silent_about_all_three_offers_nothing() -> None:
    assert problems(manifest(without="methods")) == [("error", "nothing_offered", "methods")]


@requirement("kaged:manifest-unknown-keys")
def test_unknown_keys_are_warned_about_with_a_suggestion() -> None:
    found = reported(manifest(role="[observer]", tools=f"[{TOOL[:-1]}, timeout: 3}}]"))
    assert [(problem.severity, problem.path, problem.message) for problem in found] == [
        ("warning", "role", "not part of the contract, ignored; did you mean 'roles'?"),
        ("warning", "tools[0].timeout", "not part of the contract, ignored"),
    ]


@requirement("kaged:manifest-capability-grammar")
@pytest.mark.parametrize(
    ("text", "access"),
    [
        ("read:fs:/srv/data", Access("read_path", "/srv/data")),
        ("read:fs:/", Access("read_path", "/")),
        ("read:fs://srv//data/./x/", Access("read_path", "/srv/data/x")),
        ("read:fs:/with space:and colon", Access("read_path", "/with space:and colon")),
        ("write:fs:/srv/data..old", Access("write_path", "/srv/data..old")),
        ("exec:git:/usr/bin/git", Access("run", "/usr/bin/git")),
        ("exec:/usr/bin/git:/usr/bin/git", Access("run", "/usr/bin/git")),
        ("net:api.example.com:443", Access("network", "api.example.com", 443)),
        ("net:API.Example.com:1", Access("network", "api.example.com", 1)),
        ("net:localhost:65535", Access("network", "localhost", 65535)),
        ("net:127.0.0.1:80", Access("network", "127.0.0.1", 80)),
        ("net:my_service:80", Access("network", "my_service", 80)),
        ("net:[::1]:8080", Access("network", "::1", 8080)),
        ("net:[2001:DB8::1]:*", Access("network", "2001:db8::1")),
        ("net:example.com:*", Access("network", "example.com")),
        ("net:*", Access("network")),
        ("net:[]", Access("no_network")),
        ("kaged:storage:read", Access("storage_read")),
        ("kaged:storage:write", Access("storage_write")),
    ],
)
def test_a_capability_of_the_contract_says_what_it_gives_access_to(text: str, access: Access) -> None:
    assert parse_capability(text) == access


@requirement("kaged:manifest-capability-grammar")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not a capability"),
        ("filesystem", "is not a capability"),
        ("fs:read:/x", "is not a capability"),
        ("read:/x", "is not a capability"),
        ("READ:fs:/x", "is not a capability"),
        (" net:*", "is not a capability"),
        ("kaged:storage", "is not a capability"),
        ("kaged:storage:delete", "is not a capability"),
        ("kaged:storage:read ", "is not a capability"),
        ("read:fs:", "absolute path"),
        ("read:fs:data", "absolute path"),
        ("read:fs:./data", "absolute path"),
        ("read:fs:~/data", "absolute path"),
        ("write:fs:../data", "absolute path"),
        ("write:fs:/srv/../etc", "'..'"),
        ("write:fs:/srv/\0", "NUL"),
        ("exec:", "has no binary"),
        ("exec::/usr/bin/git", "has no binary"),
        ("exec: :/usr/bin/git", "has no binary"),
        ("exec:git", "lacks the path"),
        ("exec:git:", "lacks the path"),
        ("exec:git:bin/git", "absolute path"),
        ("net:", "needs a host"),
        ("net:example.com", "needs a host and a port"),
        ("net::443", "needs a host"),
        ("net:example.com:", "needs a port"),
        ("net:example.com:0", "needs a port"),
        ("net:example.com:70000", "needs a port"),
        ("net:example.com:65536", "needs a port"),
        ("net:example.com:-1", "needs a port"),
        ("net:example.com:0443", "needs a port"),
        ("net:example.com:http", "needs a port"),
        ("net:example.com:\u0663", "needs a port"),
        ("net:*:443", "one host"),
        ("net:*:*", "one host"),
        ("net:*.example.com:443", "one host"),
        ("net:https://example.com:443", "brackets"),
        ("net:exa mple.com:443", "one host"),
        ("net:example..com:443", "one host"),
        ("net:.example.com:443", "one host"),
        ("net:-x:443", "one host"),
        ("net:" + "a" * 64 + ":443", "one host"),
        ("net:" + "a." * 130 + "b:443", "one host"),
        ("net:::1:443", "brackets"),
        ("net:[]:443", "brackets"),
        ("net:[example.com]:443", "brackets"),
        ("net:[::1%eth0]:443", "brackets"),
        ("net:[::1]", "a port after its brackets"),
    ],
)
def test_anything_else_is_refused_by_name(text: str, words: str) -> None:
    problem = parse_capability(text)
    assert isinstance(problem, str)
    assert problem.startswith(repr(text))
    assert words in problem


@given(st.text() | st.from_regex(r"(read:fs:|write:fs:|exec:|net:|kaged:storage:).{0,20}"))
def test_no_capability_makes_it_raise(text: str) -> None:
    assert isinstance(parse_capability(text), Access | str)


@requirement("kaged:manifest-capability-conflict")
@pytest.mark.parametrize(
    ("capabilities", "count"),
    [
        ([], 0),
        (["net:[]"], 0),
        (["net:[]", "net:[]"], 0),
        (["net:*", "net:example.com:443"], 0),
        (["net:[]", "kaged:storage:read", "read:fs:/x"], 0),
        (["net:[]", "net:*"], 1),
        (["net:example.com:443", "net:[]", "net:*"], 1),
    ],
)
def test_no_network_stands_beside_no_other_network(capabilities: list[str], count: int) -> None:
    assert len(conflicts(capabilities)) == count
