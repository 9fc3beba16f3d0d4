"""`vai-plugin.toml` becomes a spec; every problem comes at once, with its line."""

from __future__ import annotations

import json
from typing import Any

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.vai.manifest import (
    CLASSES,
    EFFECTS,
    FIDELITIES,
    INHERITED,
    INTERPRETERS,
    KINDS,
    LONGEST_MS,
    MAX_SCHEMA,
    parse,
    path_problem,
)
from plugbay.contracts.vai.sections import Compactor, Entry, Harness, Hook, Manifest, Permissions, Runtime, Tool
from plugbay.contracts.vai.spec import FILE_NAME
from plugbay.model.spec import Access, Lifetime, RestartPolicy, SandboxRequest, SettingsSpec, Timeouts
from tests.contracts.vai.manifests import (
    EXAMPLE,
    OBJECT,
    ROOT,
    TABLES,
    Found,
    MemorySite,
    export,
    good,
    manifest,
    parsed,
    problems,
    reported,
)
from tests.support.requirements import requirement


@requirement("vai:manifest-file")
def test_the_contracts_own_example_has_four_exports_and_no_problem() -> None:
    assert FILE_NAME == "vai-plugin.toml"
    assert len(EXAMPLE.splitlines()) == 98
    spec = good(EXAMPLE)
    assert (spec.id, spec.version, spec.contract, spec.name) == ("acme/devkit", "0.1.0", "vai", "Acme Dev Kit")
    assert spec.description == "Harnesses, tools, hooks, and compaction strategies"
    assert (spec.root, spec.cwd, spec.command) == (ROOT, ROOT, ("./bin/plugin",))
    assert [(each.kind, each.name) for each in spec.exports] == [
        ("harness", "triage"),
        ("tool", "jira_search"),
        ("hook", "slack_notify"),
        ("compactor", "coder_window"),
    ]
    triage, jira, slack, coder = (each.facts for each in spec.exports)
    assert (triage["execution_class"], triage["timeout_ms"], triage["max_concurrency"]) == ("isolated", 1_800_000, 4)
    assert (triage["mode"], triage["fidelity"]) == ("composite", "checkpoint")
    assert triage["supports"] == ["continue", "branch_session", "compact", "tool"]
    assert (jira["effect_class"], jira["streaming"], jira["timeout_ms"]) == ("read_only", False, 20_000)
    assert slack["subscribes_to"] == ["run.completed", "chain.compacted"]
    assert (coder["target_context"], coder["supports_pinned_items"]) == ("coding", True)
    assert spec.exports[1].capabilities == ("network", "secret=jira_token")
    assert spec.exports[3].capabilities == ("filesystem=scratch",)
    assert spec.access == (Access("network", capability="network"), Access("scratch", capability="filesystem=scratch"))
    assert spec.sandbox == SandboxRequest()


def test_an_export_without_a_description_has_its_label() -> None:
    described, bare = good(manifest(export(description='"Does x."'), export(id="y"))).exports
    assert (described.description, bare.description) == ("Does x.", "X")
    assert described.facts["display_name"] == "X"


@requirement("vai:manifest-process")
def test_what_a_host_needs_to_run_it_is_in_the_spec() -> None:
    spec = good(manifest(export(default_timeout_ms="5000"), export("hook", id="y")))
    assert spec.lifetime == Lifetime.RESIDENT
    assert (spec.env, spec.env_inherit) == ((), INHERITED)
    assert spec.env_facts == (("PATH", "search.path"),)
    assert spec.timeouts == Timeouts(handshake=10, call=15, grace=5, farewell=0, teardown=5, term=2)
    assert (spec.restart, spec.settings) == (RestartPolicy(), SettingsSpec())
    assert (spec.eager, spec.respawn) == (False, False)


FAULTS = """api_version = "vai.plugin.v2"
package_id = "devkit"
version = "1.0"
colour = "red"

[runtime]
protocol = "vai.rpc.v2"
transport = "http"
entrypoint = [
  "/bin/sh",
]
os = []
arch = "amd64"

[[exports]]
id = "a"
kind = "tool"
display_name = "A"
default_timeout_ms = true

[exports.permissions]
network = "all"
secret_slots = [
  "A",
]

[exports.tool]
effect_class = "pure"
input_schema = "../a.json"

[[exports]]
id = "a"
kind = "widget"
max_concurrency = 0

[[exports]]
id = "c"
kind = "hook"
display_name = "C"

[exports.tool]
"""


@requirement("vai:manifest-all-problems")
def test_every_mistake_is_reported_at_once_in_the_order_of_the_lines() -> None:
    assert [(item.line, item.code, item.path) for item in reported(FAULTS)] == [
        (1, "missing_field", "name"),
        (1, "unsupported_api_version", "api_version"),
        (2, "invalid_package_id", "package_id"),
        (3, "invalid_version", "version"),
        (4, "unknown_field", "colour"),
        (7, "unsupported_protocol", "runtime.protocol"),
        (8, "unsupported_transport", "runtime.transport"),
        (9, "invalid_entrypoint", "runtime.entrypoint[0]"),
        (12, "invalid_value", "runtime.os"),
        (13, "invalid_type", "runtime.arch"),
        (19, "invalid_timeout", "exports[0].default_timeout_ms"),
        (22, "invalid_enum", "exports[0].permissions.network"),
        (23, "invalid_secret_slot", "exports[0].permissions.secret_slots[0]"),
        (28, "invalid_enum", "exports[0].tool.effect_class"),
        (29, "path_escape", "exports[0].tool.input_schema"),
        (31, "missing_field", "exports[1].display_name"),
        (32, "duplicate_export_id", "exports[1].id"),
        (33, "unknown_kind", "exports[1].kind"),
        (34, "invalid_concurrency", "exports[1].max_concurrency"),
        (36, "missing_kind_table", "exports[2]"),
        (41, "missing_field", "exports[2].tool.input_schema"),
        (41, "unexpected_kind_table", "exports[2].tool"),
    ]


@requirement("vai:manifest-parse-error")
@pytest.mark.parametrize(
    "text",
    [
        manifest() + "a = ",
        manifest() + "[runtime]\n",
        manifest() + "[exports.tool]\na = 1",
        "[exports.permissions]\nnetwork = 'none'\n" + manifest(),
        manifest(name='"a"\nname = "b"'),
        "\0",
    ],
    ids=["no value", "a table twice", "a kind twice", "permissions first", "a key twice", "NUL"],
)
def test_text_that_is_no_toml_is_one_problem(text: str) -> None:
    (found,) = reported(text)
    assert (found.severity, found.code, found.path) == ("error", "parse_error", "")


def asking(lines: str) -> str:
    return manifest(export("tool", f"[exports.permissions]\n{lines}"))


def timeout(value: str) -> str:
    return manifest(export(default_timeout_ms=value))


def program(words: str) -> str:
    return manifest(runtime={"entrypoint": words})


def schema(path: str) -> str:
    return manifest(export(own=f'input_schema = "{path}"'))


NO_TABLE = '[[exports]]\nid = "x"\nkind = "hook"\ndisplay_name = "X"'
BAD = [
    ("exports written as a table", manifest("[exports]\nid = 'x'"), "invalid_type", "exports"),
    ("no api_version", manifest(without="api_version"), "missing_field", "api_version"),
    ("another api_version", manifest(api_version='"v2"'), "unsupported_api_version", "api_version"),
    ("another protocol", manifest(runtime={"protocol": '"vai.rpc.v2"'}), "unsupported_protocol", "runtime.protocol"),
    ("another transport", manifest(runtime={"transport": '"http"'}), "unsupported_transport", "runtime.transport"),
    ("an id without a slash", manifest(package_id='"devkit"'), "invalid_package_id", "package_id"),
    ("an id in upper case", manifest(package_id='"Acme/devkit"'), "invalid_package_id", "package_id"),
    ("an id with two slashes", manifest(package_id='"a/b/c"'), "invalid_package_id", "package_id"),
    ("a version of two numbers", manifest(version='"1.0"'), "invalid_version", "version"),
    ("a version with a v", manifest(version='"v1.0.0"'), "invalid_version", "version"),
    ("a version in words", manifest(version='"latest"'), "invalid_version", "version"),
    ("an id twice across kinds", manifest(export(), export("hook")), "duplicate_export_id", "exports[1].id"),
    ("an unknown kind", manifest(export("widget")), "unknown_kind", "exports[0].kind"),
    ("no table of its kind", manifest(NO_TABLE), "missing_kind_table", "exports[0]"),
    (
        "a table of another kind",
        manifest(export("tool", "[exports.compactor]")),
        "unexpected_kind_table",
        "exports[0].compactor",
    ),
    ("an unknown class", manifest(export(execution_class='"x"')), "invalid_enum", "exports[0].execution_class"),
    ("an unknown network", asking('network = "x"'), "invalid_enum", "exports[0].permissions.network"),
    ("an unknown filesystem", asking('filesystem = "x"'), "invalid_enum", "exports[0].permissions.filesystem"),
    (
        "an unknown effect",
        manifest(export(own='effect_class = "x"\ninput_schema = "in.json"')),
        "invalid_enum",
        "exports[0].tool.effect_class",
    ),
    (
        "an unknown fidelity",
        manifest(export("harness", own='fidelity = "x"')),
        "invalid_enum",
        "exports[0].harness.fidelity",
    ),
    *(
        (f"the timeout {value}", timeout(value), "invalid_timeout", "exports[0].default_timeout_ms")
        for value in ("0", "-1", "1.5", "true", '"1"')
    ),
    ("no concurrency", manifest(export(max_concurrency="0")), "invalid_concurrency", "exports[0].max_concurrency"),
    *(
        (
            f"the scopes {scopes}",
            asking(f'network = "egress"\ngateway_api_scopes = ["runs:read", "{scopes}"]'),
            "invalid_scope",
            "exports[0].permissions.gateway_api_scopes[1]",
        )
        for scopes in ("read", "runs:read", "tools:read")
    ),
    *(
        (
            f"the slots {slot}",
            asking(f'secret_slots = ["a", "{slot}"]'),
            "invalid_secret_slot",
            "exports[0].permissions.secret_slots[1]",
        )
        for slot in ("A-B", "a")
    ),
    (
        "no subscriptions",
        manifest(export("hook", own="subscribes_to = []")),
        "no_subscriptions",
        "exports[0].hook.subscribes_to",
    ),
    ("an absolute schema", schema("/in.json"), "path_escape", "exports[0].tool.input_schema"),
    ("a schema outside", schema("../in.json"), "path_escape", "exports[0].tool.input_schema"),
    ("a missing schema", schema("gone.json"), "file_missing", "exports[0].tool.input_schema"),
    ("a schema that is not JSON", schema("text.json"), "invalid_schema", "exports[0].tool.input_schema"),
    ("a schema that is none", schema("none.json"), "invalid_schema", "exports[0].tool.input_schema"),
    ("an empty entrypoint", program("[]"), "invalid_entrypoint", "runtime.entrypoint"),
    ("an entrypoint outside", program('["../x"]'), "invalid_entrypoint", "runtime.entrypoint[0]"),
    ("a missing entrypoint", program('["./x"]'), "invalid_entrypoint", "runtime.entrypoint[0]"),
    ("no input_schema", manifest(export(own="")), "missing_field", "exports[0].tool.input_schema"),
    ("an unknown key", manifest(colour="1"), "unknown_field", "colour"),
]
"""Every way the contract's notes name in which one thing is wrong."""
FILES = {"in.json": b'{"type": "object"}', "text.json": b"type: object", "none.json": b'{"properties": 7}'}


@requirement("vai:manifest-bad")
@pytest.mark.parametrize(("text", "code", "path"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_one_mistake_is_one_error_with_its_own_code_place_and_line(text: str, code: str, path: str) -> None:
    spec, (found,) = parsed(text, MemorySite(FILES))
    assert spec is None
    assert (found.severity, found.code, found.path) == ("error", code, path)
    assert found.line is not None


@given(st.text())
def test_no_text_makes_it_raise(text: str) -> None:
    spec, found = parsed(text)
    assert spec is None
    assert found


WORDS = (
    "acme/devkit 1.2.3 vai.plugin.v1 vai.rpc.v1 stdio ./bin/plugin linux tool hook none egress in.json ../x a:b".split()
)
SCALARS = (
    st.booleans()
    | st.integers()
    | st.floats()
    | st.dates()
    | st.times()
    | st.datetimes()
    | st.text(max_size=8)
    | st.sampled_from(WORDS)
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def table(model: Any, **more: Any) -> Any:
    fields = {**dict.fromkeys([*model.model_fields, "other", "x-other"], ANYTHING), **more}
    return st.fixed_dictionaries({}, optional=fields) | ANYTHING


ENTRIES = table(
    Entry,
    kind=st.sampled_from(["tool", "hook", "harness", "compactor"]) | ANYTHING,
    permissions=table(Permissions),
    tool=table(Tool),
    hook=table(Hook),
    harness=table(Harness),
    compactor=table(Compactor),
)
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(Manifest.model_fields, ANYTHING),
        "runtime": table(Runtime),
        "exports": st.lists(ENTRIES, max_size=2) | ANYTHING,
        "other": ANYTHING,
    },
)
GOOD = tomlkit.parse(manifest()).unwrap()


@given(DOCUMENTS, st.sets(st.sampled_from(sorted(GOOD))))
def test_no_document_makes_it_raise(value: dict[str, Any], kept: set[str]) -> None:
    text = tomlkit.dumps({**value, **{key: GOOD[key] for key in kept}})
    spec, found = parse(text, ROOT, {}, MemorySite())
    assert (spec is None) == any(problem.severity == "error" for problem in found)


def error(code: str, path: str) -> list[Found]:
    return [("error", code, path)]


def warning(code: str, path: str) -> list[Found]:
    return [("warning", code, path)]


@requirement("vai:manifest-package-id")
@pytest.mark.parametrize("id", ["acme/devkit", "a/b", "0/1", "a.b/c-d_e", "a./b", f"{'a' * 64}/{'b' * 64}"])
def test_a_package_is_named_by_its_publisher_and_its_own_name(id: str) -> None:
    assert good(manifest(package_id=f'"{id}"')).id == id


@requirement("vai:manifest-package-id")
@pytest.mark.parametrize(
    "id",
    [
        "devkit",
        "Acme/devkit",
        "acme/devkit/x",
        "acme/",
        "/devkit",
        "../etc",
        "acme/..",
        ".a/b",
        "a/.b",
        "a..b/c",
        "a/b.",
        "a /b",
        f"{'a' * 65}/b",
        "a\\\\b/c",
        "",
        "ä/b",
    ],
)
def test_anything_else_is_no_package_id(id: str) -> None:
    assert problems(manifest(package_id=f'"{id}"')) == error("invalid_package_id", "package_id")


@requirement("vai:manifest-version")
@pytest.mark.parametrize("version", ["0.1.0", "1.0.0-rc.1", "1.0.0+b.7", "10.20.30-a-b.0+x"])
def test_a_version_is_semantic(version: str) -> None:
    assert good(manifest(version=f'"{version}"')).version == version


@requirement("vai:manifest-version")
@pytest.mark.parametrize(
    "version", ["1.0", "v1.0.0", "latest", "1.0.0.0", "01.0.0", "1.0.0-01", ">=1.0.0", "", "1.0.0\\n"]
)
def test_anything_else_is_no_version(version: str) -> None:
    assert problems(manifest(version=f'"{version}"')) == error("invalid_version", "version")


@requirement("vai:manifest-versions-of-the-contract")
def test_another_contract_protocol_or_transport_is_refused() -> None:
    assert problems(manifest(api_version='"vai.plugin.v2"')) == error("unsupported_api_version", "api_version")
    runtime = {"protocol": '"vai.rpc.v2"', "transport": '"http"'}
    assert problems(manifest(runtime=runtime)) == [
        ("error", "unsupported_protocol", "runtime.protocol"),
        ("error", "unsupported_transport", "runtime.transport"),
    ]


DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("oci://ghcr.io/acme/devkit:1.2.3", []),
        (f"oci://localhost:5000/acme/devkit@{DIGEST}", []),
        (f"oci://ghcr.io/acme/devkit:1.2.3@{DIGEST}", []),
        ("oci://ghcr.io/acme/devkit:1.2.4", warning("source_mismatch", "source")),
        ("https://example.com/devkit", warning("invalid_source", "source")),
        ("", warning("invalid_source", "source")),
    ],
)
def test_a_source_is_only_ever_warned_about(source: str, found: list[Found]) -> None:
    assert problems(manifest(source=f'"{source}"')) == found


def test_a_tag_writes_the_plus_of_a_version_as_an_underscore() -> None:
    good(manifest(version='"1.0.0+b7"', source='"oci://r/a/b:1.0.0_b7"'))


@requirement("vai:manifest-entrypoint")
@pytest.mark.parametrize("words", ['["./bin/plugin"]', '["./bin/plugin", "--fast", "a b"]'])
def test_the_program_is_in_the_package(words: str) -> None:
    spec = good(manifest(runtime={"entrypoint": words}))
    assert spec.command[0] == "./bin/plugin"


@requirement("vai:manifest-entrypoint")
@pytest.mark.parametrize("name", INTERPRETERS)
def test_or_it_is_started_by_an_interpreter_of_the_host(name: str) -> None:
    assert good(manifest(runtime={"entrypoint": f'["{name}", "main.py"]'})).command == (name, "main.py")


@requirement("vai:manifest-entrypoint")
@pytest.mark.parametrize(
    ("words", "at"),
    [
        ("[]", ""),
        ('[""]', "[0]"),
        ('["/usr/bin/env", "x"]', "[0]"),
        ('["../plugin"]', "[0]"),
        ('["./bin/../../plugin"]', "[0]"),
        ('["./bin/other"]', "[0]"),
        ('["plugin"]', "[0]"),
        ('["bash", "-c", "x"]', "[0]"),
        ('["./bin/plugin", "a\\u0000b"]', "[1]"),
    ],
)
def test_any_other_program_is_refused(words: str, at: str) -> None:
    assert problems(manifest(runtime={"entrypoint": words})) == error("invalid_entrypoint", f"runtime.entrypoint{at}")


@requirement("vai:manifest-exports")
def test_a_package_without_exports_is_refused() -> None:
    text = manifest().partition("[runtime]")
    assert problems(f"{text[0]}exports = []\n[runtime]{text[2].partition('[[exports]]')[0]}") == error(
        "no_exports", "exports"
    )
    assert problems(f"{text[0]}[runtime]{text[2].partition('[[exports]]')[0]}") == error("missing_field", "exports")


@requirement("vai:manifest-exports")
def test_no_two_exports_have_one_id_whatever_their_kinds() -> None:
    assert problems(manifest(export("tool"), export("hook"))) == error("duplicate_export_id", "exports[1].id")


@requirement("vai:manifest-exports")
@pytest.mark.parametrize("id", ["", "X", "1a", "a-b", "a.b", "a/b", "a" * 65])
def test_the_id_of_an_export_is_one_lower_case_word(id: str) -> None:
    assert problems(manifest(export(id=id))) == error("invalid_export_id", "exports[0].id")


@requirement("vai:manifest-timeout")
@pytest.mark.parametrize("value", ["0", "-1", "1.5", "20000.0", "true", '"20000"', "[1]"])
def test_a_timeout_is_a_whole_number_of_milliseconds(value: str) -> None:
    assert problems(manifest(export(default_timeout_ms=value))) == error(
        "invalid_timeout", "exports[0].default_timeout_ms"
    )


@requirement("vai:manifest-timeout")
def test_a_timeout_beyond_an_hour_is_cut_and_warned_about() -> None:
    assert good(manifest(export(default_timeout_ms=str(LONGEST_MS)))).exports[0].facts["timeout_ms"] == LONGEST_MS
    spec, found = parsed(manifest(export(default_timeout_ms=str(LONGEST_MS + 1))))
    assert [(item.severity, item.code) for item in found] == [("warning", "timeout_clamped")]
    assert spec is not None
    assert spec.exports[0].facts["timeout_ms"] == LONGEST_MS


@requirement("vai:manifest-concurrency")
@pytest.mark.parametrize("value", ["0", "-1", "1.0", "true", '"4"'])
def test_at_least_one_at_a_time(value: str) -> None:
    assert problems(manifest(export(max_concurrency=value))) == error(
        "invalid_concurrency", "exports[0].max_concurrency"
    )
    assert good(manifest(export(max_concurrency="4"))).exports[0].facts["max_concurrency"] == 4


@requirement("vai:manifest-execution-class")
def test_a_class_the_contract_does_not_have_is_refused() -> None:
    assert problems(manifest(export(execution_class='"fast"'))) == error("invalid_enum", "exports[0].execution_class")


@requirement("vai:manifest-execution-class")
def test_inline_code_that_wants_the_network_is_warned_about() -> None:
    text = manifest(export("tool", '[exports.permissions]\nnetwork = "egress"', execution_class='"inline"'))
    assert problems(text) == warning("inline_egress", "exports[0].execution_class")


BOTH = '[exports.permissions]\nnetwork = "egress"\ngateway_api_scopes = ["chains:write", "compactions:write"]'


@requirement("vai:manifest-kinds")
@pytest.mark.parametrize(
    ("kind", "usual", "timeout", "own"),
    [
        ("harness", "isolated", 1_800_000, {"mode": "composite", "fidelity": "checkpoint", "supports": []}),
        ("tool", "isolated", 20_000, {"effect_class": "unknown", "streaming": False}),
        ("hook", "worker", 15_000, {"subscribes_to": ["run.completed"]}),
        ("compactor", "worker", 120_000, {"target_context": "coding", "supports_pinned_items": False}),
    ],
)
def test_every_kind_has_its_own_class_time_and_facts(kind: str, usual: str, timeout: int, own: dict[str, Any]) -> None:
    (found,) = good(manifest(export(kind))).exports
    assert (found.kind, found.name) == (kind, "x")
    assert (found.facts["execution_class"], found.facts["timeout_ms"], found.facts["max_concurrency"]) == (
        usual,
        timeout,
        1,
    )
    assert {name: found.facts[name] for name in own} == own


@requirement("vai:manifest-execution-class")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CLASSES)
def test_every_kind_may_be_of_every_class(kind: str, name: str) -> None:
    (found,) = good(manifest(export(kind, execution_class=f'"{name}"'))).exports
    assert found.facts["execution_class"] == name


@requirement("vai:manifest-kinds")
@pytest.mark.parametrize("kind", ["", "Tool", "screen"])
def test_there_is_no_fifth_kind(kind: str) -> None:
    assert problems(manifest(export(kind))) == [("error", "unknown_kind", "exports[0].kind")]


@requirement("vai:manifest-kind-table")
@pytest.mark.parametrize("kind", KINDS)
def test_an_export_needs_the_table_of_its_kind(kind: str) -> None:
    text = manifest(f'[[exports]]\nid = "x"\nkind = "{kind}"\ndisplay_name = "X"')
    assert ("error", "missing_kind_table", "exports[0]") in problems(text)


@requirement("vai:manifest-kind-table")
@pytest.mark.parametrize("kind", KINDS)
def test_an_export_has_no_table_of_another_kind(kind: str) -> None:
    other = "hook" if kind != "hook" else "tool"
    text = manifest(
        export(kind, f"[exports.{other}]\n{TABLES[other]}", '[exports.permissions]\nfilesystem = "scratch"')
    )
    assert problems(text) == [("error", "unexpected_kind_table", f"exports[0].{other}")]


@requirement("vai:manifest-effect-class")
@pytest.mark.parametrize("effect", EFFECTS)
def test_a_tool_says_what_it_does_to_the_world(effect: str) -> None:
    own = f'effect_class = "{effect}"\nstreaming = true\n{TABLES["tool"]}'
    (found,) = good(manifest(export(own=own))).exports
    assert (found.facts["effect_class"], found.facts["streaming"]) == (effect, True)


@requirement("vai:manifest-fidelity")
@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_a_harness_says_what_of_it_survives(fidelity: str) -> None:
    (found,) = good(manifest(export("harness", own=f'fidelity = "{fidelity}"'))).exports
    assert found.facts["fidelity"] == fidelity


@pytest.mark.parametrize(
    ("kind", "own", "path"),
    [
        ("tool", f'effect_class = "pure"\n{TABLES["tool"]}', "tool.effect_class"),
        ("harness", 'fidelity = "exact"', "harness.fidelity"),
    ],
)
def test_a_word_that_is_in_no_list_is_refused(kind: str, own: str, path: str) -> None:
    assert problems(manifest(export(kind, own=own))) == [("error", "invalid_enum", f"exports[0].{path}")]


@requirement("vai:manifest-subscriptions")
def test_a_hook_that_hears_of_nothing_is_refused() -> None:
    text = manifest(export("hook", own="subscribes_to = []"))
    assert problems(text) == [("error", "no_subscriptions", "exports[0].hook.subscribes_to")]


@requirement("vai:manifest-subscriptions")
def test_an_event_that_never_happens_and_one_that_is_named_twice_are_warned_about() -> None:
    text = manifest(export("hook", own='subscribes_to = ["run.completed", "run.complete", "run.completed"]'))
    spec, found = parsed(text)
    assert [(item.severity, item.code, item.path) for item in found] == [
        ("warning", "unknown_event", "exports[0].hook.subscribes_to[1]"),
        ("warning", "duplicate", "exports[0].hook.subscribes_to[2]"),
    ]
    assert "did you mean 'run.completed'?" in found[0].message
    assert spec is not None
    assert spec.exports[0].facts["subscribes_to"] == ["run.completed", "run.complete"]


def test_words_of_a_harness_that_the_contract_does_not_show_are_warned_about() -> None:
    own = 'fidelity = "lossless"\nmode = "solo"\nsupports = ["continue", "tool", "tols"]'
    assert problems(manifest(export("harness", own=own))) == [
        ("warning", "unknown_mode", "exports[0].harness.mode"),
        ("warning", "unknown_support", "exports[0].harness.supports[2]"),
    ]


@requirement("vai:manifest-supports-scopes")
def test_a_harness_without_the_scope_for_what_it_supports_is_warned_about() -> None:
    own = 'fidelity = "lossless"\nsupports = ["compact", "branch_session"]'
    good(manifest(export("harness", BOTH, own=own)))
    text = manifest(export("harness", BOTH.replace('"chains:write", ', ""), own=own))
    (found,) = reported(text)
    assert (found.severity, found.code, found.path) == (
        "warning",
        "supports_without_scope",
        "exports[0].harness.supports[1]",
    )
    assert "chains:write" in found.message


@requirement("vai:manifest-compactor-scratch")
def test_a_compactor_without_scratch_is_warned_about() -> None:
    text = manifest(export("compactor", '[exports.permissions]\nfilesystem = "none"'))
    assert problems(text) == [("warning", "inline_projection_only", "exports[0].permissions")]


# Files beside the manifest.

INPUT = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}


def schema_site(**files: Any) -> MemorySite:
    encoded = {
        f"{name}.json": value if isinstance(value, bytes) else json.dumps(value).encode()
        for name, value in files.items()
    }
    return MemorySite({"in.json": OBJECT, **encoded})


def tool_with(path: str, key: str = "input_schema") -> str:
    more = "" if key == "input_schema" else '\ninput_schema = "in.json"'
    return manifest(export(own=f"{key} = {json.dumps(path)}{more}"))


@requirement("vai:manifest-schemas")
def test_schemas_are_loaded_into_the_spec() -> None:
    text = manifest(export(own='input_schema = "a.json"\noutput_schema = "b.json"', config_schema='"./c.json"'))
    here = MemorySite({"a.json": json.dumps(INPUT).encode(), "b.json": OBJECT, "./c.json": OBJECT})
    (found,) = good(text, here).exports
    assert (found.input_schema, found.output_schema) == (INPUT, {"type": "object"})
    assert found.facts["config_schema"] == {"type": "object"}
    (bare,) = good(manifest()).exports
    assert (bare.output_schema, bare.facts["config_schema"]) == (None, None)
    assert "input_schema" not in found.facts


@requirement("vai:manifest-schema-paths")
@pytest.mark.parametrize("key", ["input_schema", "output_schema"])
@pytest.mark.parametrize("path", ["/etc/passwd", "../in.json", "a/../../b", "a\\..\\b", "C:/a", "", " ", "a\0b"])
def test_a_path_that_leads_out_is_refused(path: str, key: str) -> None:
    assert problems(tool_with(path, key)) == [("error", "path_escape", f"exports[0].tool.{key}")]


@pytest.mark.parametrize("path", ["a.json", "./a.json", "schemas/a b.json", "..a/b..c", "ä.json"])
def test_a_path_within_the_folder_is_fine(path: str) -> None:
    assert path_problem(path) is None


@requirement("vai:manifest-schema-paths")
def test_a_schema_that_is_not_there_is_refused() -> None:
    (found,) = reported(manifest(export(config_schema='"gone.json"')))
    assert (found.code, found.path) == ("file_missing", "exports[0].config_schema")
    assert "'gone.json'" in found.message


REFS = {"$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(20)} | {"d20": {}}}


@requirement("vai:manifest-schemas")
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"a": 1, "a": 2}', "appears twice"),
        (b"\xff", "not UTF-8"),
        (b"[" * 5_000, "not"),
        ([], "a schema must be an object"),
        (True, "a schema must be an object"),
        ({"type": "string"}, "must describe an object, not 'string'"),
        ({"type": "objekt"}, "must describe an object"),
        ({"properties": 7}, "cannot be used"),
        ({"properties": {"a": {"type": "nothing"}}}, "cannot be used"),
        ({"$ref": "https://example.com/schema.json"}, "outside itself"),
        ({"properties": {"a": {"pattern": "(?=a)"}}}, "cannot be used"),
        ({**REFS, "$ref": "#/$defs/d0"}, "paths when references are followed"),
    ],
)
def test_a_file_that_is_no_schema_anybody_can_use_is_refused(content: Any, words: str) -> None:
    (found,) = reported(tool_with("s.json"), schema_site(s=content))
    assert (found.code, found.path) == ("invalid_schema", "exports[0].tool.input_schema")
    assert words in found.message


def test_a_schema_that_also_admits_other_things_than_objects_is_fine() -> None:
    good(tool_with("s.json"), schema_site(s={"type": ["object", "null"]}))
    good(tool_with("s.json"), schema_site(s={}))


def test_a_schema_of_the_largest_size_is_read_and_a_larger_one_refused() -> None:
    good(tool_with("s.json"), schema_site(s=OBJECT.ljust(MAX_SCHEMA)))
    assert problems(tool_with("s.json"), schema_site(s=OBJECT.ljust(MAX_SCHEMA + 1))) == [
        ("error", "too_large", "exports[0].tool.input_schema")
    ]


class CountingSite(MemorySite):
    reads = 0

    def read(self, path: str, limit: int) -> Any:
        self.reads += 1
        return super().read(path, limit)


def test_a_schema_that_many_exports_name_is_read_once() -> None:
    here = CountingSite()
    good(manifest(*(export(id=f"x{number}") for number in range(20))), here)
    assert here.reads == 1
