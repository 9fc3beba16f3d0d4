"""`nexo-plugin.toml` becomes a spec; every problem comes at once, with its line."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.nexo.manifest import (
    HOOK_POINTS,
    INIT_TIMEOUT,
    PATIENCE,
    USUAL_VARIABLES,
    name_problem,
    parse,
    read_timeouts,
)
from plugbay.contracts.nexo.messages import CONTRACT_VERSION, NEXO_VERSION
from plugbay.contracts.nexo.sandbox import DENIED
from plugbay.contracts.nexo.sections import Plugin
from plugbay.contracts.nexo.spec import FILE_NAME, TIMEOUTS
from plugbay.model import operations
from plugbay.model.spec import Export, Lifetime, RestartPolicy, SandboxRequest, Timeouts
from tests.contracts.nexo.manifests import ROOT, Found, good, manifest, problems
from tests.support.requirements import requirement

CONTRACTS_OWN = """
[plugin]
id = "slack"
version = "0.2.0"
name = "Slack Channel"
description = "..."
min_nexo_version = ">=0.1.0"

[plugin.requires]
nexo_capabilities = ["broker"]

[plugin.entrypoint]
command = "/usr/local/bin/plugin-slack"  # absolute path or PATH binary
args = ["--mode", "stdio"]
env = { "RUST_LOG" = "info" }

[[plugin.channels.register]]
kind = "slack"
adapter = "SlackChannelAdapter"
"""
EXTENDS = """
[plugin.extends]
channels         = ["slack", "discord"]
llm_providers    = ["cohere", "mistral"]
memory_backends  = ["pinecone", "qdrant"]
hooks            = ["pii_redact"]
"""
SANDBOX = """
[plugin.sandbox]
enabled = true
network = "deny"
fs_read_paths = ["/etc/ssl/certs"]
fs_write_paths = ["${state_dir}"]
drop_user = true
"""


def test_the_file_has_the_contracts_name() -> None:
    assert FILE_NAME == "nexo-plugin.toml"


@requirement("nexo:manifest-file")
def test_the_contracts_own_manifest_becomes_a_spec() -> None:
    spec = good(CONTRACTS_OWN)
    assert (spec.id, spec.version, spec.contract, spec.root) == ("slack", "0.2.0", "nexo", ROOT)
    assert (spec.name, spec.description) == ("Slack Channel", "...")
    assert spec.command == ("/usr/local/bin/plugin-slack", "--mode", "stdio")
    assert spec.env == (("RUST_LOG", "info"),)
    assert spec.env_inherit == USUAL_VARIABLES
    assert spec.cwd is None
    assert (spec.lifetime, spec.eager) == (Lifetime.RESIDENT, True)
    assert not (spec.clean_exit_required or spec.cancelled_is_timeout)
    assert spec.capabilities == ()
    assert spec.optional_capabilities == ("memory.recall", "llm.complete")
    assert spec.timeouts == TIMEOUTS
    assert spec.patience == {name: value for group in PATIENCE.values() for name, value in group.items()}
    assert (spec.exports, spec.sandbox) == ((), None)
    assert (spec.respawn, spec.restart, spec.stderr_tail) == (False, RestartPolicy(), 32)
    assert spec.subscribes == ("plugin.outbound.slack", "plugin.outbound.slack.>")
    assert spec.publishes == ("plugin.inbound.slack", "plugin.inbound.slack.>")


@requirement("nexo:manifest-extends")
def test_the_contracts_own_extensions_become_exports() -> None:
    spec, found = parse(CONTRACTS_OWN + EXTENDS, ROOT, {})
    assert [(problem.severity, problem.code, problem.path) for problem in found] == [
        ("warning", "channel_not_registered", "plugin.extends.channels[1]"),
        ("warning", "unknown_hook_point", "plugin.extends.hooks[0]"),
    ]
    assert spec is not None
    assert spec.exports == (
        Export("channel", "slack"),
        Export("channel", "discord"),
        Export("llm_provider", "cohere"),
        Export("llm_provider", "mistral"),
        Export("vector_backend", "pinecone"),
        Export("vector_backend", "qdrant"),
        Export("hook", "pii_redact"),
    )


@requirement("nexo:manifest-extends")
def test_declared_tools_are_exports_that_have_no_schema_yet() -> None:
    spec = good(manifest('[plugin.extends]\ntools = ["slack_send", "ext_slack_read"]'))
    assert spec.exports == (Export("tool", "slack_send"), Export("tool", "ext_slack_read"))


@requirement("nexo:manifest-sandbox-paths")
def test_the_contracts_own_sandbox_is_a_request() -> None:
    spec = good(CONTRACTS_OWN + SANDBOX)
    assert spec.sandbox == SandboxRequest(read=("/etc/ssl/certs",), write=("${state_dir}",), never=DENIED, user=65534)


@requirement("nexo:manifest-entrypoint")
@pytest.mark.parametrize("command", ["./bin/slack", "/opt/slack", "nexo-plugin-slack", "../shared/slack"])
def test_the_command_is_handed_on_as_written(command: str) -> None:
    assert good(manifest(entrypoint=f'command = "{command}"\nargs = ["a b"]')).command == (command, "a b")


@requirement("nexo:manifest-requires")
def test_capabilities_are_requested_once_and_no_variable_is_taken_unasked() -> None:
    names = '["llm.complete", "memory.recall", " llm.complete", ""]'
    text = f'[plugin.requires]\nnexo_capabilities = {names}\nenv = ["TOKEN", "HOME"]'
    spec, _ = parse(manifest(text), ROOT, {"TOKEN": "x", "HOME": "/h"})
    assert spec is not None
    assert spec.capabilities == ("llm.complete", "memory.recall")
    assert spec.env_inherit == USUAL_VARIABLES


@requirement("nexo:manifest-respawn")
@pytest.mark.parametrize(
    ("lines", "first", "failures", "healthy_after"),
    [("", 1.0, 3, 6.0), ("max_attempts = 5\nbackoff_ms = 250", 0.25, 5, 2.5), ("backoff_ms = 300000", 300.0, 3, 600.0)],
)
def test_a_respawning_plugin_brings_its_own_numbers(
    lines: str, first: float, failures: int, healthy_after: float
) -> None:
    spec = good(manifest(f"[plugin.supervisor]\nrespawn = true\nstderr_tail_lines = 7\n{lines}"))
    assert spec.respawn
    assert spec.stderr_tail == 7
    assert spec.restart == RestartPolicy(
        first_delay=first,
        factor=2,
        longest_delay=60,
        jitter=0,
        failures=failures,
        window=math.inf,
        healthy_after=healthy_after,
    )


@requirement("nexo:manifest-respawn")
def test_a_plugin_that_does_not_respawn_has_the_hosts_numbers() -> None:
    spec = good(manifest("[plugin.supervisor]\nmax_attempts = 9"))
    assert (spec.respawn, spec.restart) == (False, RestartPolicy())


@requirement("nexo:manifest-timeouts")
def test_the_operators_variables_reach_the_spec() -> None:
    spec = good(manifest(), {"NEXO_PLUGIN_INIT_TIMEOUT_MS": "100", "NEXO_PLUGIN_LLM_TIMEOUT_MS": "2000"})
    assert spec.timeouts.handshake == 0.1
    assert (spec.patience["Chat"], spec.patience["Chat.stream"], spec.patience["InvokeTool"]) == (2, 2, 60)
    assert problems(manifest(), {"NEXO_PLUGIN_LLM_TIMEOUT_MS": "soon"}) == [
        ("warning", "invalid_timeout", "NEXO_PLUGIN_LLM_TIMEOUT_MS")
    ]


@requirement("nexo:manifest-unknown-keys")
def test_an_unknown_key_of_the_plugin_table_is_an_error_and_an_unknown_section_a_warning() -> None:
    assert problems(manifest(verison='"1.0.0"')) == [("error", "unknown_field", "plugin.verison")]
    assert problems(manifest("[plugin.extend]\ntools = []\n[[plugin.things]]\na = 1")) == [
        ("warning", "unknown_key", "plugin.extend"),
        ("warning", "unknown_key", "plugin.things"),
    ]
    assert problems("colour = 1\n" + manifest("[tool]\nx = 1")) == [
        ("warning", "unknown_key", "colour"),
        ("warning", "unknown_key", "tool"),
    ]


def test_a_mistyped_section_comes_with_a_suggestion() -> None:
    _, found = parse(manifest("[plugin.extend]\ntools = []"), ROOT, {})
    assert [problem.message for problem in found] == ["not part of the contract, ignored; did you mean 'extends'?"]


@pytest.mark.parametrize(("version", "known"), [("1", True), ("2", True), ("3", False)])
def test_a_newer_kind_of_manifest_is_read_with_a_warning(version: str, known: bool) -> None:
    found = problems(f"manifest_version = {version}\n" + manifest())
    assert found == ([] if known else [("warning", "manifest_version_unknown", "manifest_version")])


@pytest.mark.parametrize("text", ["", "plugin = 3", "[[plugin]]\nid = 'x'", "[plugins]\nid = 'x'"])
def test_a_file_without_a_plugin_table_says_so(text: str) -> None:
    assert "plugin" in [path for severity, _, path in problems(text) if severity == "error"]


@pytest.mark.parametrize("text", ["[plugin", "a = ", "a = 1\na = 2", "\x00", "a = " + "[" * 5000])
def test_text_that_is_no_toml_is_one_problem(text: str) -> None:
    assert [(severity, code) for severity, code, _ in problems(text)] == [("error", "parse_error")]


EVERYTHING_WRONG = """[plugin]
id = "Slack"
version = "0.2"
name = " "
description = ""
min_nexo_version = ">=99"
color = 1
[plugin.entrypoint]
command = ""
args = "x"
[plugin.entrypoint.env]
NEXO_X = "1"
[[plugin.channels.register]]
kind = "S"
[plugin.extends]
llm_providers = ["a", "a"]
memory_backends = ["b"]
hooks = ["before_message", "B"]
tools = ["b", "c"]
[plugin.sandbox]
enabled = true
network = "host"
fs_read_paths = [
  "/etc",
  "x",
]
fs_write_paths = ["/${state_dir}"]
[plugin.supervisor]
respawn = true
max_attempts = 0
backoff_ms = 1
stderr_tail_lines = 999
[plugin.tools]
deferred = ["x"]
[plugin.agents]
contributes_dir = "/x"
[plugin.skills]
contributes_dir = "../x"
[plugin.capabilities]
provides = ["advisors"]
[plugin.mystery]
x = 1
"""


@requirement("nexo:manifest-all-problems")
def test_every_mistake_is_reported_at_once_in_the_order_of_the_lines() -> None:
    spec, found = parse(EVERYTHING_WRONG, ROOT, {})
    assert spec is None
    assert [(problem.line, problem.code, problem.path.removeprefix("plugin.")) for problem in found] == [
        (2, "id_invalid", "id"),
        (3, "version_invalid", "version"),
        (4, "name_empty", "name"),
        (5, "description_empty", "description"),
        (6, "min_nexo_version_mismatch", "min_nexo_version"),
        (7, "unknown_field", "color"),
        (9, "no_entrypoint", "entrypoint.command"),
        (10, "invalid_type", "entrypoint.args"),
        (12, "reserved_env", "entrypoint.env.NEXO_X"),
        (13, "missing_field", "channels.register[0].adapter"),
        (14, "channel_kind_invalid", "channels.register[0].kind"),
        (16, "extends_duplicate", "extends.llm_providers[1]"),
        (18, "extends_id_invalid", "extends.hooks[1]"),
        (19, "extends_cross_list_conflict", "extends.tools[0]"),
        (22, "sandbox_host_network_without_capability", "sandbox.network"),
        (23, "sandbox_allowlist_touches_denylist", "sandbox.fs_read_paths[0]"),
        (23, "sandbox_relative_path", "sandbox.fs_read_paths[1]"),
        (27, "sandbox_invalid_state_dir_interpolation", "sandbox.fs_write_paths[0]"),
        (30, "supervisor_max_attempts_zero", "supervisor.max_attempts"),
        (31, "supervisor_backoff_ms_below_floor", "supervisor.backoff_ms"),
        (32, "supervisor_stderr_tail_exceeds_cap", "supervisor.stderr_tail_lines"),
        (34, "deferred_not_in_expose", "tools.deferred[0]"),
        (36, "path_absolute_forbidden", "agents.contributes_dir"),
        (38, "path_traversal", "skills.contributes_dir"),
        (40, "capability_without_impl", "capabilities.provides[0]"),
        (41, "unknown_key", "mystery"),
    ]


TEMPLATE = """
[plugin]
id = "template_echo"
version = "0.1.0"
name = "Template"
description = "A skeleton to start from."
min_nexo_version = ">=0.1.0"
[plugin.requires]
nexo_capabilities = ["broker"]
[[plugin.channels.register]]
kind = "template_echo_py"
adapter = "EchoAdapter"
[plugin.entrypoint]
command = "./bin/template_echo"
args = []
"""
SEARCH = """
manifest_version = 2
[plugin]
id               = "find_it"
version          = "0.1.1"
name             = "Find it"
description      = "Searches in several places."
min_nexo_version = ">=0.1.0"
[plugin.entrypoint]
command = "nexo-plugin-find-it"
[plugin.requires]
nexo_capabilities = ["broker"]
[plugin.capabilities.broker]
subscribe = [
    "plugin.outbound.find_it",
    "plugin.outbound.find_it.>",
    "plugin.find_it.admin.>",
]
publish = []
[plugin.tools]
expose = ["find_it"]
[plugin.extends]
tools = ["find_it"]
[plugin.admin]
method_prefix = "nexo/admin/find_it/"
[plugin.config_schema]
shape  = "object"
schema = '''{
  "type": "object"
}'''
[plugin.credentials_schema]
enabled = false
[plugin.dashboard.layout]
kind = "workspace_walk"
[[plugin.admin_ui.screens]]
id = "settings"
[[plugin.admin_ui.screens.fields]]
key = "instances"
"""
MAIL = """
[plugin]
id = "mail"
version = "0.6.1"
name = "Mail"
description = "Mail — several accounts."
min_nexo_version = ">=0.1.0"
[plugin.capabilities.broker]
subscribe = ["plugin.outbound.mail", "plugin.mail.pairing.send_reply"]
publish   = ["plugin.inbound.mail", "plugin.inbound.mail.>"]
[plugin.extends]
channels = ["mail"]
[plugin.pairing]
kind = "form"
[[plugin.pairing.fields]]
name = "password"
sensitive = true
[plugin.entrypoint]
command = "nexo-plugin-mail"
[plugin.http]
mount_prefix = "/mail"
[plugin.metrics]
prometheus = true
"""
CONSOLE = """
manifest_version = 2
[plugin]
id          = "console"
version     = "0.1.18"
name        = "Console"
description = "Pages for whoever runs the agents."
min_nexo_version = ">=0.1.0"
[plugin.entrypoint]
command = "nexo-plugin-console"
args    = []
[plugin.capabilities.http_server]
port        = 18000
bind        = "127.0.0.1"
token_env   = "NEXO_CONSOLE_TOKEN"
health_path = "/healthz"
[plugin.capabilities.admin]
required = ["agents_crud", "audit_read"]
optional = ["auth_rotate"]
[plugin.meta]
author  = "somebody"
license = "MIT OR Apache-2.0"
"""


@requirement("nexo:manifest-later-sections")
@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (TEMPLATE, set()),
        (SEARCH, {"later_section", "tool_namespace_violation"}),
        (MAIL, {"later_section"}),
        (CONSOLE, set()),
    ],
    ids=["template", "search", "mail", "console"],
)
def test_manifests_shaped_like_shipped_ones_load(text: str, codes: set[str]) -> None:
    spec, found = parse(text, ROOT, {})
    assert spec is not None
    assert {problem.severity for problem in found} <= {"warning"}
    assert {problem.code for problem in found} == codes


def as_toml(value: Any) -> str:
    """A value as TOML writes it inline."""
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{key}" = {as_toml(item)}' for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + "".join(f"\\U{ord(char):08x}" for char in value) + '"'
    return repr(value)


words = st.sampled_from(["slack", "slack_x", "a", "Slack", "", "0.1.0", ">=0.1", "/etc", "..", "${state_dir}", "host"])
scalars = st.one_of(words, st.text(max_size=5), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats())
keys = st.sampled_from(
    [
        *Plugin.model_fields,
        "register",
        "kind",
        "tools",
        "hooks",
        "env",
        "command",
        "enabled",
        "network",
        "gate",
        "outbound",
        "fs_read_paths",
        "fs_write_paths",
        "broker",
        "subscribe",
        "respawn",
        "backoff_ms",
        "provides",
        "pairing",
        "x",
    ]
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4))


@given(st.dictionaries(keys, values, max_size=8), st.dictionaries(keys, values, max_size=2))
def test_no_document_raises_and_every_spec_is_free_of_errors(plugin: dict[str, Any], rest: dict[str, Any]) -> None:
    text = "".join(f"{key} = {as_toml(value)}\n" for key, value in {**rest, "plugin": plugin}.items())
    tomllib.loads(text)
    problems(text, {"HOME": "/home/x"})


@given(st.text(max_size=60), st.integers(0, len(EVERYTHING_WRONG)))
def test_no_text_raises(noise: str, at: int) -> None:
    problems(EVERYTHING_WRONG[:at] + noise + EVERYTHING_WRONG[at:])


def test_a_relative_root_is_kept() -> None:
    spec, _ = parse(manifest(), Path("plugins/slack"), {})
    assert spec is not None
    assert spec.root == Path("plugins/slack")


def error(code: str, path: str) -> Found:
    return ("error", code, f"plugin.{path}")


def warning(code: str, path: str) -> Found:
    return ("warning", code, f"plugin.{path}")


@requirement("nexo:manifest-id")
@pytest.mark.parametrize("name", ["a", "a1", "a_", "slack", "a" * 32])
def test_a_name_is_a_letter_and_more(name: str) -> None:
    assert name_problem(name) is None


@requirement("nexo:manifest-id")
@pytest.mark.parametrize("name", ["", "1a", "_a", "A", "aB", "a-b", "a.b", "a b", "a\n", "á", "a" * 33])
def test_anything_else_is_no_name(name: str) -> None:
    assert name_problem(name) is not None


@requirement("nexo:manifest-id")
@pytest.mark.parametrize("id", ['""', '"Slack"', '"1slack"', '"sla-ck"', '"slack\\n"', f'"{"a" * 65}"'])
def test_an_id_outside_the_alphabet_is_invalid(id: str) -> None:
    assert problems(manifest(id=id)) == [error("id_invalid", "id")]


def test_an_id_that_only_later_hosts_take_is_a_warning() -> None:
    assert problems(manifest(id=f'"{"a" * 33}"')) == [warning("name_beyond_contract", "id")]
    assert problems(manifest(id=f'"{"a" * 64}"')) == [warning("name_beyond_contract", "id")]
    assert problems(manifest(id=f'"{"a" * 32}"')) == []


@requirement("nexo:manifest-name")
@pytest.mark.parametrize("field", ["name", "description"])
@pytest.mark.parametrize("value", ['""', '" \\t"'])
def test_a_blank_name_or_description_is_refused(field: str, value: str) -> None:
    assert problems(manifest(**{field: value})) == [error(f"{field}_empty", field)]


@requirement("nexo:manifest-version")
def test_a_version_has_three_parts() -> None:
    assert problems(manifest(version='"0.2"')) == [error("version_invalid", "version")]


@requirement("nexo:manifest-min-version")
@pytest.mark.parametrize("required", [">=99.0.0", "^99", "<0.0.1", f">{NEXO_VERSION}"])
def test_a_plugin_for_another_nexo_is_refused(required: str) -> None:
    assert problems(manifest(min_nexo_version=f'"{required}"')) == [
        error("min_nexo_version_mismatch", "min_nexo_version")
    ]


@requirement("nexo:manifest-min-version")
@pytest.mark.parametrize("required", [">=0.0.0", ">=0.1.0", "*", f"={NEXO_VERSION}", NEXO_VERSION])
def test_a_plugin_for_this_nexo_is_taken(required: str) -> None:
    assert problems(manifest(min_nexo_version=f'"{required}"')) == []


def test_a_requirement_that_is_none_is_invalid() -> None:
    assert problems(manifest(min_nexo_version='"latest"')) == [error("version_invalid", "min_nexo_version")]


@requirement("nexo:manifest-requires")
@pytest.mark.parametrize("environ", [{}, {"TOKEN": "secret"}])
def test_a_variable_of_the_host_is_the_operators_to_give(environ: dict[str, str]) -> None:
    text = manifest('[plugin.requires]\nenv = ["TOKEN", "OTHER"]', entrypoint='command = "x"\nenv = { OTHER = "1" }')
    assert problems(text, environ) == [warning("required_env", "requires.env[0]")]
    spec, _ = parse(text, ROOT, environ)
    assert spec is not None and "TOKEN" not in spec.env_inherit


@requirement("nexo:manifest-entrypoint")
@pytest.mark.parametrize("entrypoint", ["", 'command = ""', 'command = " "', 'args = ["x"]'])
def test_a_plugin_without_a_command_cannot_be_started(entrypoint: str) -> None:
    assert problems(manifest(entrypoint=entrypoint)) == [error("no_entrypoint", "entrypoint.command")]


@requirement("nexo:manifest-env-reserved")
@pytest.mark.parametrize("name", ["NEXO_", "NEXO_X", "NEXO_PLUGIN_INIT_TIMEOUT_MS"])
def test_a_variable_of_the_hosts_own_is_refused(name: str) -> None:
    text = manifest(entrypoint=f'command = "x"\nenv = {{ {name} = "1", RUST_LOG = "info" }}')
    assert problems(text) == [error("reserved_env", f"entrypoint.env.{name}")]


@requirement("nexo:manifest-env-reserved")
@pytest.mark.parametrize("name", ["nexo_x", "NEXO", "XNEXO_", "RUST_LOG"])
def test_a_variable_that_only_looks_like_it_is_given(name: str) -> None:
    assert good(manifest(entrypoint=f'command = "x"\nenv = {{ {name} = "1" }}')).env == ((name, "1"),)


@pytest.mark.parametrize("name", ['""', '"A=B"', '"A\\u0000"'])
def test_a_name_no_variable_can_have_is_refused(name: str) -> None:
    text = manifest(entrypoint=f'command = "x"\nenv = {{ {name} = "1" }}')
    assert [(severity, code) for severity, code, _ in problems(text)] == [("error", "invalid_value")]


def test_a_nul_in_a_command_line_is_refused() -> None:
    entrypoint = 'command = "x\\u0000"\nargs = ["ok", "\\u0000"]\nenv = { A = "\\u0000" }'
    assert problems(manifest(entrypoint=entrypoint)) == [
        error("invalid_value", "entrypoint.command"),
        error("invalid_value", "entrypoint.args[1]"),
        error("invalid_value", "entrypoint.env.A"),
    ]


@requirement("nexo:manifest-channels")
@pytest.mark.parametrize("kind", ["", "Slack", "sl-ack", "1", "a" * 33])
def test_a_channel_kind_follows_the_rule_of_ids(kind: str) -> None:
    channel = f'[[plugin.channels.register]]\nkind = "{kind}"\nadapter = "A"'
    assert problems(manifest(channel)) == [error("channel_kind_invalid", "channels.register[0].kind")]


LISTS = ("llm_providers", "memory_backends")


@requirement("nexo:manifest-extends-id")
@pytest.mark.parametrize("section", ["channels", "llm_providers", "memory_backends", "hooks"])
@pytest.mark.parametrize("name", ["", "Cohere", "co-here", "1", "a" * 33])
def test_an_extension_follows_the_rule_of_ids(section: str, name: str) -> None:
    found = problems(manifest(f'[plugin.extends]\n{section} = ["{name}"]'))
    assert [problem for problem in found if problem[0] == "error"] == [
        error("extends_id_invalid", f"extends.{section}[0]")
    ]


@requirement("nexo:manifest-extends-duplicate")
@pytest.mark.parametrize("section", LISTS)
def test_an_id_is_in_a_list_once(section: str) -> None:
    text = f'[plugin.extends]\n{section} = ["cohere", "mistral", "cohere", "cohere"]'
    assert problems(manifest(text)) == [
        error("extends_duplicate", f"extends.{section}[2]"),
        error("extends_duplicate", f"extends.{section}[3]"),
    ]


@requirement("nexo:manifest-extends-cross-list")
def test_an_id_is_in_one_list_and_each_conflict_is_one_problem() -> None:
    text = '[plugin.extends]\nllm_providers = ["x", "y"]\nmemory_backends = ["x"]\nchannels = ["x"]'
    channel = '\n[[plugin.channels.register]]\nkind = "x"\nadapter = "A"'
    assert problems(manifest(text + channel)) == [error("extends_cross_list_conflict", "extends.memory_backends[0]")]


@requirement("nexo:manifest-extends-cross-list")
def test_tools_count_as_the_fifth_list() -> None:
    text = '[plugin.extends]\nllm_providers = ["slack_x"]\ntools = ["slack_x"]'
    assert problems(manifest(text)) == [error("extends_cross_list_conflict", "extends.tools[0]")]


@requirement("nexo:manifest-extends-cross-list")
def test_an_invalid_or_repeated_id_is_not_a_conflict_too() -> None:
    text = '[plugin.extends]\nllm_providers = ["X", "y", "y"]\nmemory_backends = ["X"]'
    assert problems(manifest(text)) == [
        error("extends_id_invalid", "extends.llm_providers[0]"),
        error("extends_duplicate", "extends.llm_providers[2]"),
        error("extends_id_invalid", "extends.memory_backends[0]"),
    ]


@requirement("nexo:manifest-hooks")
def test_a_hook_that_never_fires_is_a_warning() -> None:
    names = ", ".join(f'"{name}"' for name in (*HOOK_POINTS, "pii_redact"))
    text = manifest(f"[plugin.extends]\nhooks = [{names}]")
    assert problems(text) == [warning("unknown_hook_point", "extends.hooks[4]")]


@requirement("nexo:manifest-tool-namespace")
@pytest.mark.parametrize("name", ["slack_send", "ext_slack_send", "slack_"])
def test_a_tool_is_named_after_its_plugin(name: str) -> None:
    assert problems(manifest(f'[plugin.extends]\ntools = ["{name}"]')) == []


@requirement("nexo:manifest-tool-namespace")
@pytest.mark.parametrize("name", ["send", "slacksend", "ext_send", "ext_slack", "my_slack_send"])
@pytest.mark.parametrize("section", ["extends", "tools"])
def test_a_tool_with_another_name_is_refused(section: str, name: str) -> None:
    key = {"extends": "tools", "tools": "expose"}[section]
    assert problems(manifest(f'[plugin.{section}]\n{key} = ["{name}"]')) == [
        error("tool_namespace_violation", f"{section}.{key}[0]")
    ]


def test_a_tool_named_exactly_like_its_plugin_is_a_warning() -> None:
    assert problems(manifest('[plugin.extends]\ntools = ["slack"]')) == [
        warning("tool_namespace_violation", "extends.tools[0]")
    ]


def test_tools_are_not_blamed_for_an_id_that_is_wrong_itself() -> None:
    assert problems(manifest('[plugin.extends]\ntools = ["x"]', id='"X"')) == [error("id_invalid", "id")]


def test_a_tools_name_may_be_as_long_as_later_hosts_allow() -> None:
    def named(length: int) -> list[Found]:
        return problems(manifest(f'[plugin.extends]\ntools = ["{"slack_".ljust(length, "x")}"]'))

    assert named(32) == []
    assert named(33) == named(64) == [warning("name_beyond_contract", "extends.tools[0]")]
    assert named(65) == [error("extends_id_invalid", "extends.tools[0]")]


def test_a_deferred_tool_is_an_exposed_one() -> None:
    text = (
        '[plugin.extends]\ntools = ["slack_a"]\n[plugin.tools]\nexpose = ["slack_a"]\ndeferred = ["slack_a", "slack_b"]'
    )
    assert problems(manifest(text)) == [error("deferred_not_in_expose", "tools.deferred[1]")]


def test_tools_that_this_host_does_not_offer_are_warned_about() -> None:
    text = (
        '[plugin.tools]\nexpose = ["slack_a"]\n'
        '[[plugin.tools.outbound]]\nname = "slack_a"\ndescription = "d"\ninput_schema = "{}"'
    )
    assert problems(manifest(text)) == [
        warning("tool_not_offered", "tools.expose[0]"),
        warning("tool_not_offered", "tools.outbound"),
    ]


@pytest.mark.parametrize(
    ("claim", "proof"),
    [
        ("tools", '[plugin.extends]\ntools = ["slack_a"]'),
        ("advisors", '[plugin.advisors]\nregister = ["A"]'),
        ("agents", '[plugin.agents]\ncontributes_dir = "agents"'),
        ("skills", '[plugin.skills]\ncontributes_dir = "skills"'),
        ("channels", '[[plugin.channels.register]]\nkind = "slack"\nadapter = "A"'),
    ],
)
def test_a_claim_needs_its_section(claim: str, proof: str) -> None:
    text = f'[plugin.capabilities]\nprovides = ["{claim}"]\n'
    assert problems(manifest(text)) == [error("capability_without_impl", "capabilities.provides[0]")]
    assert problems(manifest(text + proof)) == []


@pytest.mark.parametrize("claim", ["hooks", "mcp_servers", "webhooks", "poller_drivers", "llm_providers"])
def test_other_claims_stand_by_themselves(claim: str) -> None:
    assert problems(manifest(f'[plugin.capabilities]\nprovides = ["{claim}"]')) == []


def test_a_skill_is_a_slug() -> None:
    names = ", ".join(f'"{name}"' for name in ["ok-1", "", "No", "a_b", "x" * 64, "x" * 65])
    assert problems(manifest(f"[plugin.capabilities]\nskills = [{names}]")) == [
        error("invalid_slug", f"capabilities.skills[{at}]") for at in (1, 2, 3, 5)
    ]


@pytest.mark.parametrize("field", ["agents.contributes_dir", "skills.contributes_dir", "config.schema_path"])
@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/etc", "path_absolute_forbidden"),
        ("C:\\x", "path_absolute_forbidden"),
        ("c:x", "path_absolute_forbidden"),
        ("\\\\share", "path_absolute_forbidden"),
        ("..", "path_traversal"),
        ("a/../b", "path_traversal"),
        ("a\\..\\b", "path_traversal"),
        ("a/b", None),
        ("a..b/...", None),
    ],
)
def test_a_path_stays_in_the_plugins_folder(field: str, path: str, code: str | None) -> None:
    section, key = field.split(".")
    expected = [error(code, field)] if code else []
    assert problems(manifest(f"[plugin.{section}]\n{key} = '{path}'")) == expected


def test_a_variable_gates_one_thing() -> None:
    gate = (
        '[[plugin.capability_gates.gate]]\nextension = "x"\nenv_var = "%s"\n'
        'kind = "Boolean"\nrisk = "High"\neffect = "e"\n'
    )
    assert problems(manifest(gate % "A" + gate % "B")) == []
    assert problems(manifest(gate % "A" + gate % "A")) == [
        error("duplicate_gate_env_var", "capability_gates.gate[1].env_var")
    ]


@requirement("nexo:manifest-supervisor")
@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ("stderr_tail_lines = 512", None),
        ("stderr_tail_lines = 513", "supervisor_stderr_tail_exceeds_cap"),
        ("respawn = true", None),
        ("respawn = true\nmax_attempts = 0", "supervisor_max_attempts_zero"),
        ("respawn = true\nbackoff_ms = 99", "supervisor_backoff_ms_below_floor"),
        ("respawn = true\nbackoff_ms = 100", None),
        ("respawn = true\nbackoff_ms = 300000", None),
        ("respawn = true\nbackoff_ms = 300001", "supervisor_backoff_ms_exceeds_cap"),
        ("max_attempts = 0\nbackoff_ms = 0", None),
        ("respawn = false\nbackoff_ms = 300001", None),
    ],
)
def test_a_supervisor_keeps_within_its_limits(lines: str, code: str | None) -> None:
    found = [(severity, name) for severity, name, _ in problems(manifest(f"[plugin.supervisor]\n{lines}"))]
    assert found == ([("error", code)] if code else [])


DEFAULTS = {
    "InvokeTool": 60,
    "StartChannel": 30,
    "StopChannel": 30,
    "SendOutbound": 60,
    "Chat": 60,
    "Chat.stream": 300,
    "RunHook": 5,
    "UpsertVectors": 30,
    "DeleteVectors": 30,
    "SearchVectors": 10,
}


@requirement("nexo:manifest-timeouts")
def test_the_contracts_defaults_hold_when_nothing_is_set() -> None:
    assert read_timeouts({}) == (Timeouts(handshake=5, call=60, farewell=5, teardown=1, kill=2), DEFAULTS, [])


def test_every_name_is_an_operation() -> None:
    assert [name for name in DEFAULTS if not hasattr(operations, name.removesuffix(".stream"))] == []


@requirement("nexo:manifest-timeouts")
@pytest.mark.parametrize("variable", PATIENCE)
def test_a_variable_overrides_its_own_operations_and_no_others(variable: str) -> None:
    timeouts, seconds, problems = read_timeouts({variable: "1500"})
    assert seconds == DEFAULTS | dict.fromkeys(PATIENCE[variable], 1.5)
    assert timeouts == TIMEOUTS
    assert problems == []


@requirement("nexo:manifest-init-timeout")
def test_the_greeting_has_a_variable_of_its_own() -> None:
    timeouts, seconds, problems = read_timeouts({INIT_TIMEOUT: "250"})
    assert timeouts == Timeouts(handshake=0.25, call=60, farewell=5, teardown=1, kill=2)
    assert (seconds, problems) == (DEFAULTS, [])


@pytest.mark.parametrize(("text", "seconds"), [("0", 0), ("+7", 0.007), ("007", 0.007), (str(2**64 - 1), 2**64 / 1000)])
def test_every_unsigned_number_of_64_bits_counts(text: str, seconds: float) -> None:
    timeouts, _, problems = read_timeouts({INIT_TIMEOUT: text})
    assert timeouts.handshake == seconds
    assert problems == []


@requirement("nexo:manifest-timeouts")
@pytest.mark.parametrize("text", ["", " 5", "5s", "-1", "1.5", "1_000", "٣", str(2**64), "9" * 5000])
def test_anything_else_falls_back_with_a_warning(text: str) -> None:
    for variable in (INIT_TIMEOUT, *PATIENCE):
        timeouts, seconds, problems = read_timeouts({variable: text})
        assert (timeouts, seconds) == (TIMEOUTS, DEFAULTS)
        assert [(problem.severity, problem.code, problem.path) for problem in problems] == [
            ("warning", "invalid_timeout", variable)
        ]


SLACK = '[[plugin.channels.register]]\nkind = "slack"\nadapter = "SlackChannelAdapter"\n'


@requirement("nexo:manifest-topics")
def test_a_registered_kind_is_heard_outbound_and_published_inbound() -> None:
    spec = good(manifest(SLACK + '[[plugin.channels.register]]\nkind = "discord"\nadapter = "D"'))
    assert spec.subscribes == (
        "plugin.outbound.slack",
        "plugin.outbound.slack.>",
        "plugin.outbound.discord",
        "plugin.outbound.discord.>",
    )
    assert spec.publishes == (
        "plugin.inbound.slack",
        "plugin.inbound.slack.>",
        "plugin.inbound.discord",
        "plugin.inbound.discord.>",
    )


@requirement("nexo:manifest-topics")
def test_a_plugin_without_a_registered_kind_hears_and_says_nothing() -> None:
    spec = good(manifest())
    assert (spec.subscribes, spec.publishes) == ((), ())


def test_a_kind_registered_twice_yields_its_patterns_once() -> None:
    assert good(manifest(SLACK * 2)).subscribes == ("plugin.outbound.slack", "plugin.outbound.slack.>")


def test_patterns_of_later_hosts_are_added_without_repeats() -> None:
    text = (
        SLACK
        + '[plugin.capabilities.broker]\nsubscribe = ["plugin.outbound.slack", "plugin.slack.admin.>"]\n'
        + 'publish = ["plugin.slack.done", "plugin.slack.done", "plugin.inbound.*.news"]'
    )
    spec = good(manifest(text))
    assert spec.subscribes == ("plugin.outbound.slack", "plugin.outbound.slack.>", "plugin.slack.admin.>")
    assert spec.publishes == (
        "plugin.inbound.slack",
        "plugin.inbound.slack.>",
        "plugin.slack.done",
        "plugin.inbound.*.news",
    )


@requirement("nexo:manifest-topics-own")
@pytest.mark.parametrize("key", ["subscribe", "publish"])
@pytest.mark.parametrize(
    "pattern",
    [
        ">",
        "*",
        "agent.route.>",
        "command.x",
        "plugin.>",
        "plugin.*.x",
        "plugin.lifecycle.slack.crashed",
        "plugin.other.x",
        "plugin.slacker.x",
        "",
        ".",
        "plugin.slack.",
        "plugin.slack..x",
        "plugin.slack.>.x",
        " plugin.slack.x",
    ],
)
def test_a_pattern_beyond_the_plugins_own_names_is_not_honoured(key: str, pattern: str) -> None:
    text = manifest(f'[plugin.capabilities.broker]\n{key} = ["{pattern}", "plugin.slack.x"]')
    assert problems(text) == [("warning", "topic_not_allowed", f"plugin.capabilities.broker.{key}[0]")]
    spec, _ = parse(text, ROOT, {})
    assert spec is not None
    assert {"subscribe": spec.subscribes, "publish": spec.publishes}[key] == ("plugin.slack.x",)


@requirement("nexo:manifest-topics-own")
def test_a_plugin_hears_only_what_is_outbound_and_says_only_what_is_inbound() -> None:
    assert problems(manifest('[plugin.capabilities.broker]\nsubscribe = ["plugin.inbound.x"]'))
    assert problems(manifest('[plugin.capabilities.broker]\npublish = ["plugin.outbound.x"]'))


def test_a_channel_that_no_event_reaches_is_a_warning() -> None:
    extends = '[plugin.extends]\nchannels = ["slack", "discord"]\n'
    assert problems(manifest(extends)) == [
        ("warning", "channel_not_registered", "plugin.extends.channels[0]"),
        ("warning", "channel_not_registered", "plugin.extends.channels[1]"),
    ]
    assert problems(manifest(extends + SLACK)) == [("warning", "channel_not_registered", "plugin.extends.channels[1]")]
    broker = '[plugin.capabilities.broker]\nsubscribe = ["plugin.outbound.discord"]'
    assert problems(manifest(extends + SLACK + broker)) == []


@requirement("nexo:manifest-capabilities-gated")
def test_a_capability_that_no_grant_opens_is_not_requested() -> None:
    text = manifest('[plugin.requires]\nnexo_capabilities = ["broker", "memory", "memory.recall"]')
    assert problems(text) == [warning("unknown_capability", "requires.nexo_capabilities[1]")]
    spec, _ = parse(text, ROOT, {})
    assert spec is not None and spec.capabilities == ("memory.recall",)
    assert good(CONTRACTS_OWN).capabilities == ()


@requirement("nexo:manifest-contract-version")
@pytest.mark.parametrize(
    ("version", "found"),
    [
        ("1.0.0", []),
        (CONTRACT_VERSION, []),
        ("1.99.0", [warning("contract_version_newer", "contract_version")]),
        ("2.0.0", [error("contract_version_mismatch", "contract_version")]),
        ("0.9.0", [error("contract_version_mismatch", "contract_version")]),
        ("1.10", [error("version_invalid", "contract_version")]),
    ],
)
def test_the_contract_version_of_a_manifest_has_the_hosts_major_version(version: str, found: list[Found]) -> None:
    text = manifest().replace("[plugin]\n", f'[plugin]\ncontract_version = "{version}"\n', 1)
    assert problems(text) == found


@requirement("nexo:host-version-setting")
def test_the_presented_version_is_the_operators_and_decides_what_a_manifest_may_require() -> None:
    text = manifest().replace(">=0.1.0", ">=0.9.0", 1)
    assert problems(text) == [error("min_nexo_version_mismatch", "min_nexo_version")]
    spec, found = parse(text, ROOT, {"NEXO_VERSION": "0.9.3"})
    assert spec is not None and (spec.host_version, found) == ("0.9.3", [])
    assert good(manifest()).host_version == NEXO_VERSION
    assert problems(manifest(), {"NEXO_VERSION": "new"}) == [("warning", "version_invalid", "NEXO_VERSION")]


@requirement("nexo:manifest-hooks-custom")
def test_a_hook_of_another_name_is_said_to_be_called_when_the_application_fires_it() -> None:
    _, found = parse(manifest('[plugin.extends]\nhooks = ["pii_redact"]'), ROOT, {})
    (problem,) = found
    assert "called only when the application fires 'pii_redact'" in problem.message
    assert "never" not in problem.message
