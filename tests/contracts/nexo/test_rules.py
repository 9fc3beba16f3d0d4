"""Every rule between and within fields has its own name, and none hides another."""

from __future__ import annotations

import pytest

from plugbay.contracts.nexo.manifest import parse
from plugbay.contracts.nexo.messages import NEXO_VERSION
from plugbay.contracts.nexo.rules import HOOK_POINTS, name_problem
from tests.contracts.nexo.manifests import ROOT, Found, good, manifest, problems
from tests.support.requirements import requirement


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
