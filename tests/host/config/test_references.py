"""Secrets, settings and variables that a command refers to."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.contracts.mcp.spec import resident
from plugbay.host.config.references import resolved, with_secrets
from plugbay.model.spec import PluginSpec, SettingsSpec
from plugbay.process.command import LaunchFailed
from tests.support.requirements import requirement


def spec_of(root: Path, **env: str) -> PluginSpec:
    return resident("srv", ("run", "${user_config.folder}"), root, env=tuple(env.items()))


@requirement("mcp:host-secrets")
def test_a_secret_that_is_referred_to_is_one_that_has_to_be_set(tmp_path: Path) -> None:
    spec, problems = with_secrets(spec_of(tmp_path, KEY="secret://key", OWN="secret://srv/own", PLAIN="x"))
    assert problems == []
    schema = spec.settings.secrets_schema
    assert (list(schema["properties"]), schema["required"]) == (["key", "own"], ["key", "own"])


def test_a_plugin_refers_to_no_secret_of_anothers(tmp_path: Path) -> None:
    _, problems = with_secrets(spec_of(tmp_path, KEY="secret://other/key", NONE="secret://"))
    assert [problem.path for problem in problems] == ["env.KEY", "env.NONE"]


@requirement("mcp:host-secrets")
def test_references_become_values_at_the_start(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, KEY="secret://srv/key", HERE="${PLACE}/x", ELSE="${NONE:-y}")
    started = resolved(spec, {"folder": "/data"}, {"key": "s3cret"}, {"PLACE": "here"})
    assert dict(started.env) == {"KEY": "s3cret", "HERE": "here/x", "ELSE": "y"}
    assert started.command == ("run", "/data")


def test_a_variable_that_nobody_set_is_a_start_that_fails(tmp_path: Path) -> None:
    with pytest.raises(LaunchFailed, match="HERE needs PLACE"):
        resolved(spec_of(tmp_path, HERE="${PLACE}"), None, None, {})


def test_contracts_without_references_are_left_alone(tmp_path: Path) -> None:
    spec = PluginSpec("p", "1", "rune", tmp_path, ("run",), env=(("A", "secret://x"), ("B", "${C}")))
    assert with_secrets(spec) == (spec, [])
    assert resolved(spec, None, None, {}) is spec
    assert spec.settings == SettingsSpec()


def test_what_somebody_set_is_put_in_as_it_is(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, WORD="${user_config.word}", PLACE="${user_config.place}", NONE="${user_config.none}")
    started = resolved(spec, {"place": "secret://x"}, {"word": "pa${ss}word"}, {})
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
    _, problems = with_secrets(resident("srv", command, tmp_path, env=tuple(env.items())))
    assert [(problem.path, problem.severity) for problem in problems] == [(where, "error")]
