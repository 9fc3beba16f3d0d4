"""Every section of the file is known by shape: its keys, their types, their defaults."""

from __future__ import annotations

import pytest

from plugbay.contracts.nexo.manifest import parse
from plugbay.contracts.nexo.sections import LATER_SECTIONS, Plugin, is_section
from tests.contracts.nexo.manifests import HEAD, ROOT, Found, good, manifest, problems
from tests.support.requirements import requirement

GATE = 'extension = "x"\nenv_var = "A"\nkind = "Boolean"\nrisk = "Low"\neffect = "e"\n'

EVERYTHING = f"""
[plugin.requires]
nexo_capabilities = ["broker"]
bins = ["ffmpeg"]
env = []
features = ["f"]
[[plugin.channels.register]]
kind = "slack"
adapter = "SlackChannelAdapter"
[plugin.extends]
channels = ["slack"]
llm_providers = ["cohere"]
memory_backends = ["qdrant"]
hooks = ["before_message"]
tools = ["slack_send"]
[plugin.sandbox]
enabled = true
network = "deny"
fs_read_paths = ["/etc/ssl/certs"]
fs_write_paths = ["${{state_dir}}"]
drop_user = true
[plugin.supervisor]
respawn = true
max_attempts = 5
backoff_ms = 500
stderr_tail_lines = 64
[plugin.capabilities]
provides = ["tools", "skills", "hooks"]
skills = ["triage"]
[plugin.capabilities.admin]
required = ["agents_crud"]
optional = []
[plugin.capabilities.http_server]
port = 18000
bind = "127.0.0.1"
token_env = "SLACK_TOKEN"
health_path = "/healthz"
extra_env_passthrough = ["X"]
[plugin.capabilities.broker]
subscribe = ["plugin.slack.admin.>"]
publish = ["plugin.inbound.slack"]
[plugin.tools]
expose = ["slack_send"]
deferred = ["slack_send"]
[plugin.advisors]
register = ["A"]
[plugin.agents]
contributes_dir = "agents"
allow_override = true
[plugin.skills]
contributes_dir = "skills"
[plugin.config]
schema_path = "schema.json"
hot_reload = false
[[plugin.capability_gates.gate]]
{GATE}hint = "export A=1"
[plugin.ui.fields."slack.token"]
label = "Token"
help = "h"
tags = ["t"]
advanced = true
sensitive = true
placeholder = "xoxb"
[plugin.contracts]
provides = ["a"]
consumes = []
[plugin.meta]
author = "a"
license = "MIT"
homepage = "h"
repository = "r"
"""


@requirement("nexo:manifest-sections")
def test_a_manifest_with_every_section_is_good() -> None:
    assert good("manifest_version = 2\n" + manifest(EVERYTHING, enabled_by_default="true")).id == "slack"


@requirement("nexo:manifest-sections")
def test_every_section_but_the_head_may_be_missing() -> None:
    assert good(manifest()).id == "slack"


@requirement("nexo:manifest-sections")
@pytest.mark.parametrize("field", HEAD)
def test_every_key_of_the_head_is_required_and_a_string(field: str) -> None:
    assert problems(manifest(without=field)) == [("error", "missing_field", f"plugin.{field}")]
    assert problems(manifest(**{field: "1.0"})) == [("error", "invalid_type", f"plugin.{field}")]


TABLES = [
    name for name in Plugin.model_fields if name not in {*HEAD, "contract_version", "enabled_by_default", "entrypoint"}
]


@requirement("nexo:manifest-unknown-keys")
@pytest.mark.parametrize("section", [*TABLES, "capabilities.admin", "capabilities.broker"])
def test_an_unknown_key_in_a_known_section_is_an_error(section: str) -> None:
    assert problems(manifest(f"[plugin.{section}]\nnonsense = 1")) == [
        ("error", "unknown_field", f"plugin.{section}.nonsense")
    ]


@pytest.mark.parametrize("section", TABLES)
def test_a_section_is_a_table(section: str) -> None:
    assert problems(manifest(**{section: "1"})) == [("error", "invalid_type", f"plugin.{section}")]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("[plugin.extends]\nchanels = []", "unknown key; did you mean 'channels'?"),
        ("[plugin.sandbox]\nenable = true", "unknown key; did you mean 'enabled'?"),
        ("[plugin.supervisor]\nbackof_ms = 1", "unknown key; did you mean 'backoff_ms'?"),
        ('[plugin.capabilities.broker]\nsubscribes = ["x"]', "unknown key; did you mean 'subscribe'?"),
    ],
)
def test_a_mistyped_key_comes_with_a_suggestion(lines: str, expected: str) -> None:
    _, found = parse(manifest(lines), ROOT, {})
    assert [problem.message for problem in found] == [expected]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("[plugin.requires]\nbins = [1]", ("error", "invalid_type", "plugin.requires.bins[0]")),
        ("[plugin.extends]\ntools = 'x'", ("error", "invalid_type", "plugin.extends.tools")),
        ("[[plugin.channels.register]]\nkind = 'a'", ("error", "missing_field", "plugin.channels.register[0].adapter")),
        ("[[plugin.channels.register]]\nadapter = 'A'", ("error", "missing_field", "plugin.channels.register[0].kind")),
        ("[plugin.sandbox]\nenabled = 1", ("error", "invalid_type", "plugin.sandbox.enabled")),
        ("[plugin.sandbox]\nnetwork = 'allowlist'", ("error", "invalid_value", "plugin.sandbox.network")),
        ("[plugin.supervisor]\nmax_attempts = -1", ("error", "invalid_value", "plugin.supervisor.max_attempts")),
        (
            "[plugin.supervisor]\nmax_attempts = 4294967296",
            ("error", "invalid_value", "plugin.supervisor.max_attempts"),
        ),
        ("[plugin.supervisor]\nbackoff_ms = 1.5", ("error", "invalid_type", "plugin.supervisor.backoff_ms")),
        (
            "[plugin.supervisor]\nstderr_tail_lines = -1",
            ("error", "invalid_value", "plugin.supervisor.stderr_tail_lines"),
        ),
        ("[plugin.capabilities]\nprovides = ['magic']", ("error", "invalid_value", "plugin.capabilities.provides[0]")),
        (
            "[plugin.capabilities.http_server]\nport = 65536\ntoken_env = 'T'",
            ("error", "invalid_value", "plugin.capabilities.http_server.port"),
        ),
        (
            "[plugin.capabilities.http_server]\nport = 1",
            ("error", "missing_field", "plugin.capabilities.http_server.token_env"),
        ),
        (
            f"[[plugin.capability_gates.gate]]\n{GATE.replace('Boolean', 'boolean')}",
            ("error", "invalid_value", "plugin.capability_gates.gate[0].kind"),
        ),
        (
            f"[[plugin.capability_gates.gate]]\n{GATE.replace('Low', 'Lowest')}",
            ("error", "invalid_value", "plugin.capability_gates.gate[0].risk"),
        ),
        ("[plugin.ui.fields.x]\nlabel = 1", ("error", "invalid_type", "plugin.ui.fields.x.label")),
        ("[plugin.meta]\nauthor = []", ("error", "invalid_type", "plugin.meta.author")),
    ],
)
def test_a_value_of_another_type_or_range_is_an_error(lines: str, expected: Found) -> None:
    assert [problem for problem in problems(manifest(lines)) if problem[0] == "error"] == [expected]


def test_an_environment_holds_strings_only() -> None:
    assert problems(manifest(entrypoint='command = "x"\nenv = { A = 1 }')) == [
        ("error", "invalid_type", "plugin.entrypoint.env.A")
    ]


@requirement("nexo:manifest-later-sections")
@pytest.mark.parametrize("section", sorted(LATER_SECTIONS))
def test_a_section_of_a_later_nexo_is_a_warning_whatever_it_holds(section: str) -> None:
    text = manifest(f"[plugin.{section}]\nanything = 1\n[[plugin.{section}.more]]\nx = []")
    assert problems(text) == [("warning", "later_section", f"plugin.{section}")]


def test_a_later_section_is_not_one_of_ours() -> None:
    assert LATER_SECTIONS & set(Plugin.model_fields) == set()


def test_a_section_is_what_stands_in_brackets() -> None:
    assert is_section({})
    assert is_section([{"a": 1}])
    assert not any(map(is_section, [[], ["a"], "x", 1, None]))
