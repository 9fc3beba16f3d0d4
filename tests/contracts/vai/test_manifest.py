"""`vai-plugin.toml` becomes a spec; every problem comes at once, with its line."""

from __future__ import annotations

from typing import Any

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.vai.manifest import FILE_NAME, INHERITED, parse
from plugbay.contracts.vai.sections import Compactor, Entry, Harness, Hook, Manifest, Permissions, Runtime, Tool
from plugbay.model.spec import Access, Lifetime, RestartPolicy, SandboxRequest, SettingsSpec, Timeouts
from tests.contracts.vai.manifests import EXAMPLE, ROOT, MemorySite, export, good, manifest, parsed, reported
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
    ("a schema that is no JSON", schema("text.json"), "invalid_schema", "exports[0].tool.input_schema"),
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
