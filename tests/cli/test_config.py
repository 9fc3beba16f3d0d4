"""`plugbay config`: settings shown, changed and refused; secrets kept and never shown. The real command line."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.support.kaged import write_kaged_plugin
from tests.support.requirements import requirement
from tests.support.vai import export, write_vai_plugin

SETTINGS: dict[str, Any] = {
    "config_schema": {
        "type": "object",
        "properties": {
            "limit": {"type": "integer", "default": 3, "maximum": 9},
            "mode": {"enum": ["slow", "fast"], "default": "slow"},
            "words": {"type": "array", "items": {"type": "string"}},
        },
        "additionalProperties": False,
    },
    "system_config_schema": {
        "type": "object",
        "properties": {"key": {"type": "string", "minLength": 3}},
        "required": ["key"],
    },
    "knobs": {
        "limit": {
            "type": "int_range",
            "label": "How many",
            "binds_to": "config.limit",
            "min": 1,
            "max": 20,
            "step": 1,
            "default": 3,
        },
        "pace": {"type": "enum", "label": "Pace", "binds_to": "config.mode", "values": ["slow", "fast"]},
    },
}


@pytest.fixture
def plugin(cwd: Path) -> Path:
    (cwd / "plugbay.toml").write_text('[host]\nstate_dir = "state"\n')
    return write_kaged_plugin(cwd, **SETTINGS)


@requirement("kaged:knob-described")
def test_the_json_of_the_settings_is_enough_to_draw_every_control(run: Run, plugin: Path) -> None:
    shown = run("config", "show", "p", "--json").json
    assert shown["plugin"] == "p"
    assert [(knob["name"], knob["type"], knob["value"]) for knob in shown["knobs"]] == [
        ("limit", "int_range", 3),
        ("pace", "enum", "slow"),
    ]
    assert (shown["knobs"][0]["min"], shown["knobs"][0]["max"]) == (1, 20)
    assert shown["secrets"][0]["name"] == "key"
    assert shown["secrets"][0]["set"] is False


def test_the_text_output_shows_values_bounds_and_problems(run: Run, plugin: Path) -> None:
    done = run("config", "show", "p")
    assert done.code == 3
    for words in ("How many (1..20)", "Pace (slow, fast)", "  words  not set  array\n", "not set  a secret, required"):
        assert words in done.out


@requirement("kaged:knob-set")
def test_a_knob_is_turned_kept_and_shown(run: Run, plugin: Path, cwd: Path) -> None:
    done = run("config", "set", "p", "limit", "7")
    assert (done.code, "limit" in done.err) == (0, True)
    assert json.loads((cwd / "state" / "config" / "p.json").read_text()) == {"limit": 7}
    run("config", "set", "p", "pace", "fast")
    shown = run("config", "show", "p", "--json").json
    assert shown["config"] == {"limit": 7, "mode": "fast"}


@requirement("kaged:knob-refused")
@pytest.mark.parametrize(
    ("knob", "value", "words"),
    [
        ("limit", "21", "must be at most 20"),
        ("limit", "12", "maximum"),
        ("limit", "many", "limit"),
        ("pace", "faster", "must be one of slow, fast"),
        ("words", "[1]", "words"),
        ("limitt", "1", "did you mean 'limit'"),
    ],
)
def test_a_value_that_does_not_fit_says_which_rule_it_broke_and_changes_nothing(
    run: Run, plugin: Path, cwd: Path, knob: str, value: str, words: str
) -> None:
    done = run("config", "set", "p", knob, value)
    assert done.code != 0
    assert words in done.err
    assert not (cwd / "state" / "config" / "p.json").exists()


def test_a_field_without_a_knob_takes_json(run: Run, plugin: Path) -> None:
    assert run("config", "set", "p", "words", '["a", "b"]').code == 0
    assert run("config", "show", "p", "--json").json["config"]["words"] == ["a", "b"]


@requirement("kaged:secrets-never-told")
def test_a_secret_is_read_from_stdin_kept_private_and_never_shown(run: Run, plugin: Path, cwd: Path) -> None:
    done = run("config", "secret", "p", "key", stdin=b"open sesame\n")
    kept = cwd / "state" / "secrets" / "p.json"
    assert done.code == 0
    assert json.loads(kept.read_text()) == {"key": "open sesame"}
    assert kept.stat().st_mode & 0o777 == 0o600
    shown = run("config", "show", "p", "--json")
    assert (shown.code, shown.json["secrets"][0]["set"]) == (0, True)
    assert all("sesame" not in text for text in (done.out, done.err, shown.out, shown.err))
    assert run("config", "secret", "p", "key", "--remove").code == 0
    assert json.loads(kept.read_text()) == {}


def test_a_secret_that_does_not_fit_is_refused_without_repeating_it(run: Run, plugin: Path, cwd: Path) -> None:
    done = run("config", "secret", "p", "key", stdin=b"xy")
    assert done.code != 0
    assert "minLength" in done.err and "xy" not in done.err
    assert not (cwd / "state" / "secrets" / "p.json").exists()


def test_a_plugin_is_found_by_its_id_in_a_folder_of_plugins(run: Run, cwd: Path) -> None:
    write_kaged_plugin(cwd / "all", "a")
    write_kaged_plugin(cwd / "all", "b")
    assert run("config", "show", "b", "--plugins", "all").out.startswith("b\n")
    missing = run("config", "show", "c", "--plugins", "all")
    assert (missing.code, "known ids: a, b" in missing.err) == (4, True)


def test_a_plugin_is_found_by_its_id_where_its_folder_is_called_otherwise(run: Run, cwd: Path) -> None:
    write_kaged_plugin(cwd, "a").rename(cwd / "folder")
    assert run("config", "show", "a").out.startswith("a\n")
    installed = cwd / "store" / "plugbay" / "plugins"
    write_kaged_plugin(installed, "b")
    assert run("config", "show", "b").code == 4
    assert run("config", "show", "b", XDG_DATA_HOME=str(cwd / "store")).out.startswith("b\n")


def test_what_was_set_reaches_the_plugin_with_its_next_start(run: Run, cwd: Path) -> None:
    body = "def tool(name, params, m):\n    reply(m, greeting['config'])\n"
    (cwd / "plugbay.toml").write_text('[host]\nstate_dir = "state"\n')
    write_kaged_plugin(cwd, body=body, config_schema=SETTINGS["config_schema"])
    run("config", "set", "p", "limit", "4")
    assert run("call", "p", "echo").json == {"limit": 4, "mode": "slow"}


def test_settings_changed_at_the_same_time_are_all_kept(run: Run, cwd: Path) -> None:
    names = [f"f{number}" for number in range(6)]
    fields = {name: {"type": "integer"} for name in names}
    (cwd / "plugbay.toml").write_text('[host]\nstate_dir = "state"\n')
    write_kaged_plugin(cwd, config_schema={"type": "object", "properties": fields})
    with ThreadPoolExecutor(len(names)) as pool:
        done = list(pool.map(lambda name: run("config", "set", "p", name, "1"), names))
    assert [item.code for item in done] == [0] * len(names)
    assert json.loads((cwd / "state" / "config" / "p.json").read_text()) == dict.fromkeys(names, 1)


def test_a_value_that_is_the_default_too_is_kept_because_it_was_set(run: Run, plugin: Path, cwd: Path) -> None:
    assert run("config", "set", "p", "limit", "3").code == 0
    assert json.loads((cwd / "state" / "config" / "p.json").read_text()) == {"limit": 3}


@requirement("kaged:config-secrets-apart")
def test_a_secret_the_plugin_does_not_name_is_not_asked_for(run: Run, plugin: Path, cwd: Path) -> None:
    for name, words in (("kee", "did you mean 'key'"), ("limit", "no secret 'limit'")):
        done = run("config", "secret", "p", name, stdin=b"open sesame")
        assert (done.code, words in done.err) == (4, True)
    assert not (cwd / "state" / "secrets").exists()


@requirement("kaged:config-secrets-apart")
def test_a_secret_in_the_config_is_a_problem_and_is_not_shown(run: Run, cwd: Path) -> None:
    (cwd / "plugbay.toml").write_text('[host]\nstate_dir = "state"\n[plugins.p]\nconfig = { key = "open sesame" }\n')
    write_kaged_plugin(cwd, **{**SETTINGS, "config_schema": {"type": "object"}, "knobs": {}})
    for shown in (run("config", "show", "p"), run("config", "show", "p", "--json")):
        assert (shown.code, "is a secret" in shown.out, "sesame" in shown.out + shown.err) == (3, True, False)


def test_no_secret_is_not_an_empty_one(run: Run, plugin: Path, cwd: Path) -> None:
    done = run("config", "secret", "p", "key", stdin=b"\n")
    assert (done.code != 0, "no value was given for key" in done.err) == (True, True)
    assert not (cwd / "state" / "secrets" / "p.json").exists()


def test_a_plugin_that_is_not_there_is_not_found(run: Run, cwd: Path) -> None:
    done = run("config", "show", "nowhere")
    assert (done.code, done.err.splitlines()[0]) == (4, "error: nowhere does not exist")


def test_the_secret_slots_and_the_config_of_exports_are_settings_too(run: Run, cwd: Path) -> None:
    asks = {"network": "none", "filesystem": "none", "gateway_api_scopes": [], "secret_slots": ["jira_token"]}
    schemas = {"cfg": {"type": "object", "properties": {"limit": {"type": "integer"}}}}
    (cwd / "plugbay.toml").write_text('[host]\nstate_dir = "state"\n')
    write_vai_plugin(cwd, exports=[export(permissions=asks, config_schema="schemas/cfg.json")], schemas=schemas)
    assert run("config", "set", "acme-p", "t", '{"limit": 3}').code == 0
    assert run("config", "set", "acme-p", "t", '{"limit": "x"}').code == 2
    assert run("config", "secret", "acme-p", "jira_token", stdin=b"abc-123-def\n").code == 0
    shown = run("config", "show", "acme-p", "--json").json
    assert shown["config"] == {"t": {"limit": 3}}
    assert [(item["name"], item["set"]) for item in shown["secrets"]] == [("jira_token", True)]
    assert "abc-123-def" not in json.dumps(shown)


def test_a_call_with_missing_settings_names_them_with_a_hint(run: Run, cwd: Path) -> None:
    schema = {"type": "object", "properties": {"limit": {"type": "integer"}}, "required": ["limit"]}
    write_kaged_plugin(cwd, "notes", **{**SETTINGS, "config_schema": schema, "knobs": {}})
    done = run("call", "notes", "echo")
    assert done.code == 7
    assert 'its settings cannot be used: "limit" is a required property; key is required, and is not set' in done.err
    assert "hint      plugbay config show notes" in done.err
    told = run("call", "notes", "echo", "--json").json["failure"]["detail"]["problems"]
    assert [problem["code"] for problem in told] == ["required", "required"]
