"""The rules of a manifest that its shape cannot say."""

from __future__ import annotations

import pytest

from plugbay.contracts.kaged.rules import MAX_NOTIFICATION
from tests.contracts.kaged.manifests import good, manifest, problems, reported
from tests.support.requirements import requirement

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
