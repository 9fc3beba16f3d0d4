"""Secrets, settings and variables that a command refers to."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.contracts.mcp.spec import resident
from plugbay.host.config.references import declare_secrets, resolve_references
from plugbay.model.spec import PluginSpec, SettingsSpec
from plugbay.process.command import LaunchFailed
from tests.support.requirements import requirement


def spec_of(root: Path, **env: str) -> PluginSpec:
    return resident("srv", ("run", "${user_config.folder}"), root, env=tuple(env.items()))


@requirement("mcp:host-secrets")
def test_a_secret_that_is_referred_to_is_one_that_has_to_be_set(tmp_path: Path) -> None:
    spec, problems = declare_secrets(spec_of(tmp_path, KEY="secret://key", OWN="secret://srv/own", PLAIN="x"))
    assert problems == []
    schema = spec.settings.secrets_schema
    assert (list(schema["properties"]), schema["required"]) == (["key", "own"], ["key", "own"])


def test_a_plugin_refers_to_no_secret_of_anothers(tmp_path: Path) -> None:
    _, problems = declare_secrets(spec_of(tmp_path, KEY="secret://other/key", NONE="secret://"))
    assert [problem.path for problem in problems] == ["env.KEY", "env.NONE"]


@requirement("mcp:host-secrets")
def test_references_become_values_at_the_start(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, KEY="secret://srv/key", HERE="${PLACE}/x", ELSE="${NONE:-y}")
    started = resolve_references(spec, {"folder": "/data"}, {"key": "s3cret"}, {"PLACE": "here"})
    assert dict(started.env) == {"KEY": "s3cret", "HERE": "here/x", "ELSE": "y"}
    assert started.command == ("run", "/data")


def test_a_variable_that_is_not_set_fails_the_start(tmp_path: Path) -> None:
    with pytest.raises(LaunchFailed, match="HERE needs PLACE"):
        resolve_references(spec_of(tmp_path, HERE="${PLACE}"), None, None, {})


def test_contracts_without_references_are_left_alone(tmp_path: Path) -> None:
    spec = PluginSpec("p", "1", "rune", tmp_path, ("run",), env=(("A", "secret://x"), ("B", "${C}")))
    assert declare_secrets(spec) == (spec, [])
    assert resolve_references(spec, None, None, {}) is spec
    assert spec.settings == SettingsSpec()


def test_a_setting_is_used_literally(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, WORD="${user_config.word}", PLACE="${user_config.place}", NONE="${user_config.none}")
    started = resolve_references(spec, {"place": "secret://x"}, {"word": "pa${ss}word"}, {})
    assert dict(started.env) == {"WORD": "pa${ss}word", "PLACE": "secret://x"}


@pytest.mark.parametrize(
    ("command", "env", "where"),
    [
        (("run", "--token", "secret://key"), {}, "command"),
        (("run", "--token=secret://key"), {}, "command"),
        (("run",), {"AUTH": "Bearer secret://key"}, "env.AUTH"),
    ],
)
def test_a_secret_where_none_is_looked_up_is_a_mistake(
    tmp_path: Path, command: tuple[str, ...], env: dict[str, str], where: str
) -> None:
    _, problems = declare_secrets(resident("srv", command, tmp_path, env=tuple(env.items())))
    assert [(problem.path, problem.severity) for problem in problems] == [(where, "error")]
