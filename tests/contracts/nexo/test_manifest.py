"""`nexo-plugin.toml` becomes a spec; every problem comes at once, with its line."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.nexo.manifest import FILE_NAME, parse
from plugbay.contracts.nexo.patience import PATIENCE, TIMEOUTS
from plugbay.contracts.nexo.rules import USUAL_VARIABLES
from plugbay.contracts.nexo.sandbox import DENIED
from plugbay.contracts.nexo.sections import Plugin
from plugbay.model.spec import Export, Lifetime, RestartPolicy, SandboxRequest
from tests.contracts.nexo.manifests import ROOT, good, manifest, problems
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
    assert spec.capabilities == ("broker",)
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
    assert spec.sandbox == SandboxRequest(read=("/etc/ssl/certs",), write=("${state_dir}",), never=DENIED)


@requirement("nexo:manifest-entrypoint")
@pytest.mark.parametrize("command", ["./bin/slack", "/opt/slack", "nexo-plugin-slack", "../shared/slack"])
def test_the_command_is_handed_on_as_written(command: str) -> None:
    assert good(manifest(entrypoint=f'command = "{command}"\nargs = ["a b"]')).command == (command, "a b")


@requirement("nexo:manifest-requires")
def test_capabilities_are_requested_once_and_no_variable_is_taken_unasked() -> None:
    text = '[plugin.requires]\nnexo_capabilities = ["broker", "memory", " broker", ""]\nenv = ["TOKEN", "HOME"]'
    spec, _ = parse(manifest(text), ROOT, {"TOKEN": "x", "HOME": "/h"})
    assert spec is not None
    assert spec.capabilities == ("broker", "memory")
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
