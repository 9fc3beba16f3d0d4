"""Settings: validation, changes and files; no message shows a secret."""

from __future__ import annotations

import datetime
import fcntl
import json
import os
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from plugbay.host.config.settings import (
    MAX_BYTES,
    changing,
    check_config,
    check_secrets,
    defaults,
    describe,
    file_name,
    load_config,
    load_secrets,
    save_config,
    save_secrets,
    set_field,
    set_knob,
    without_secrets,
)
from plugbay.model.errors import Code, ConfigInvalid, Failure, Problem
from plugbay.model.spec import Knob, SettingsSpec
from tests.support.requirements import requirement

SPEC = SettingsSpec(
    config_schema={
        "type": "object",
        "properties": {
            "level": {"type": "integer", "default": 3, "maximum": 8},
            "mode": {"enum": ["fast", "safe"], "default": "fast"},
            "title": {"type": "string", "default": "from the schema"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "loud": {"type": "boolean"},
        },
        "additionalProperties": False,
    },
    secrets_schema={
        "type": "object",
        "properties": {
            "key": {"type": "string", "minLength": 40, "description": "Opens the door."},
            "pin": {"type": "integer", "maximum": 9999},
            "word": {"pattern": "^a"},
            "one": {"enum": ["x"]},
            "both": {"anyOf": [{"type": "null"}, {"type": "boolean"}]},
        },
        "required": ["key"],
        "additionalProperties": False,
    },
    knobs=(
        Knob("level", "range", "Level", "level", "How much.", 3, {"min": 0, "max": 10, "step": 0.5}),
        Knob("mode", "enum", "Mode", "mode", facts={"values": ["fast", "safe"], "labels": {"fast": "F", "safe": "S"}}),
        Knob("heading", "text", "Heading", "title", default="from the knob", facts={"max_length": 20}),
        Knob("loud", "boolean", "Loud", "loud"),
    ),
)
NOTHING = SettingsSpec()


def refusal(config: dict[str, Any], knob: str, value: Any, spec: SettingsSpec = SPEC) -> Failure:
    found = set_knob(spec, config, knob, value)
    assert isinstance(found, Failure)
    return found


def test_a_config_that_fits_has_no_problem() -> None:
    assert check_config(SPEC, {"level": 8, "tags": ["a"]}) == []
    assert check_config(SPEC, {}) == []
    assert check_config(NOTHING, {}) == []


@pytest.mark.parametrize(
    ("config", "rule", "path"),
    [
        ({"level": 9}, "maximum", "level"),
        ({"level": "3"}, "type", "level"),
        ({"mode": "slow"}, "enum", "mode"),
        ({"tags": ["a", 3]}, "type", "tags[1]"),
        ({"colour": "red"}, "additionalProperties", ""),
    ],
)
def test_a_config_that_does_not_names_the_place_and_the_rule(config: dict[str, Any], rule: str, path: str) -> None:
    (found,) = check_config(SPEC, config)
    assert (found.code, found.path) == (rule, path)


def test_all_problems_come_at_once() -> None:
    assert len(check_config(SPEC, {"level": 9, "mode": 3, "loud": "x"})) == 3


def test_a_plugin_without_settings_is_given_none() -> None:
    text = "the plugin has no settings, so it would not get it"
    assert check_config(NOTHING, {"a": 1}) == [Problem("not_asked_for", "a", text)]
    assert [problem.code for problem in check_secrets(NOTHING, {"key": "x"})] == ["not_asked_for"]


SECRET = "sesame-sesame"


@requirement("kaged:host-secrets-untold")
@pytest.mark.parametrize(
    ("secrets", "rule", "path"),
    [
        ({"key": SECRET}, "minLength", "key"),
        ({"key": [SECRET]}, "type", "key"),
        ({"key": {SECRET: SECRET}}, "type", "key"),
        ({"word": SECRET}, "pattern", "word"),
        ({"one": SECRET}, "enum", "one"),
        ({"both": SECRET}, "anyOf", "both"),
        ({SECRET: SECRET}, "additionalProperties", ""),
    ],
)
def test_an_invalid_secret_is_named_and_not_shown(secrets: dict[str, Any], rule: str, path: str) -> None:
    found = [problem for problem in check_secrets(SPEC, secrets) if problem.code != "required"]
    assert [(problem.code, problem.path) for problem in found] == [(rule, path)]
    assert SECRET not in str(found)
    # The positive control: an ordinary config's problem quotes the value.
    as_config = SettingsSpec(config_schema=SPEC.secrets_schema)
    assert SECRET in str(check_config(as_config, secrets))


@requirement("kaged:host-secrets-untold")
def test_a_secret_number_is_not_shown_either() -> None:
    (found,) = check_secrets(SPEC, {"key": "k" * 40, "pin": 12345})
    assert (found.code, found.path, found.message) == ("maximum", "pin", "breaks the rule maximum: 9999")


def test_a_missing_secret_is_named() -> None:
    assert check_secrets(SPEC, {}) == [Problem("required", "", "key is required, and is not set")]
    assert check_secrets(SPEC, {"key": "k" * 40}) == []


def test_a_knobs_default_goes_before_the_schemas() -> None:
    assert defaults(SPEC) == {"level": 3, "mode": "fast", "title": "from the knob"}
    assert defaults(NOTHING) == {}
    assert defaults(SettingsSpec(config_schema={"properties": {"a": True, "b": {"default": None}}})) == {"b": None}


@requirement("kaged:host-knob-set")
@pytest.mark.parametrize(
    ("knob", "typed", "field", "value"),
    [
        ("level", "4", "level", 4),
        ("level", 5, "level", 5),
        ("mode", "safe", "mode", "safe"),
        ("heading", "true", "title", "true"),
        ("loud", "true", "loud", True),
        ("loud", False, "loud", False),
    ],
)
def test_a_knob_writes_the_field_it_is_bound_to(knob: str, typed: Any, field: str, value: Any) -> None:
    config = {"tags": ["kept"], "level": 1}
    assert set_knob(SPEC, config, knob, typed) == {**config, field: value}
    assert config == {"tags": ["kept"], "level": 1}


@requirement("kaged:host-knob-bounds")
@pytest.mark.parametrize(
    ("knob", "typed", "rule"),
    [
        ("level", "high", "type"),
        ("level", "-1", "min"),
        ("level", "11", "max"),
        ("level", "0.3", "step"),
        ("mode", "slow", "values"),
        ("heading", "x" * 21, "max_length"),
        ("loud", "on", "type"),
        ("loud", 1, "type"),
    ],
)
def test_a_knob_is_not_turned_beyond_its_own_bounds(knob: str, typed: Any, rule: str) -> None:
    failure = refusal({}, knob, typed)
    assert failure.code == Code.INVALID_INPUT
    assert (failure.detail["knob"], failure.detail["rule"]) == (knob, rule)
    assert failure.message.startswith(f"{knob} must ")


@requirement("kaged:host-knob-schema")
@pytest.mark.parametrize(("typed", "rule"), [("0.5", "schema.type"), ("9", "schema.maximum")])
def test_the_schema_may_refuse_a_value_that_the_knob_allows(typed: str, rule: str) -> None:
    failure = refusal({}, "level", typed)
    assert failure.code == Code.INVALID_INPUT
    assert failure.detail == {"knob": "level", "rule": rule, "path": "level"}


LINKED = SettingsSpec(
    config_schema={
        "properties": {"a": {"type": "boolean"}, "b": {"type": "boolean"}, "c": {"type": "integer"}},
        "required": ["c"],
        "not": {"properties": {"a": {"const": True}, "b": {"const": True}}, "required": ["a", "b"]},
    },
    knobs=(Knob("a", "boolean", "A", "a"), Knob("b", "boolean", "B", "b", default=True)),
)


@requirement("kaged:host-knob-schema")
def test_the_config_is_validated_as_a_whole_with_its_defaults() -> None:
    failure = refusal({"c": 1}, "a", "true", LINKED)
    assert (failure.code, failure.detail["rule"]) == (Code.INVALID_INPUT, "schema.not")
    assert set_knob(LINKED, {"c": 1, "b": False}, "a", "true") == {"c": 1, "b": False, "a": True}


def test_an_older_problem_does_not_refuse_a_knob() -> None:
    assert set_knob(LINKED, {"b": False}, "a", "true") == {"b": False, "a": True}
    assert set_knob(SPEC, {"level": 99}, "level", 5) == {"level": 5}
    assert refusal({"level": 9}, "level", 9).detail["rule"] == "schema.maximum"


def test_an_unknown_knob_is_not_found() -> None:
    failure = refusal({}, "levle", "3")
    assert failure.code == Code.NOT_FOUND
    assert failure.message == "there is no knob 'levle'; did you mean 'level'?"
    assert failure.detail["knobs"] == ["level", "mode", "heading", "loud"]


def test_a_refusal_does_not_repeat_a_long_value() -> None:
    assert len(refusal({}, "heading", "x" * 10_000).message) < 200


@requirement("kaged:host-settings-described")
def test_a_description_has_everything_a_control_needs() -> None:
    found = describe(SPEC, {"mode": "safe"}, ["key"])
    assert json.loads(json.dumps(found)) == found
    assert found["knobs"] == [
        {
            "name": "level",
            "type": "range",
            "label": "Level",
            "description": "How much.",
            "field": "level",
            "value": 3,
            "default": 3,
            "min": 0,
            "max": 10,
            "step": 0.5,
        },
        {
            "name": "mode",
            "type": "enum",
            "label": "Mode",
            "description": "",
            "field": "mode",
            "value": "safe",
            "default": None,
            "values": ["fast", "safe"],
            "labels": {"fast": "F", "safe": "S"},
        },
        {
            "name": "heading",
            "type": "text",
            "label": "Heading",
            "description": "",
            "field": "title",
            "value": "from the knob",
            "default": "from the knob",
            "max_length": 20,
        },
        {
            "name": "loud",
            "type": "boolean",
            "label": "Loud",
            "description": "",
            "field": "loud",
            "value": None,
            "default": None,
        },
    ]


@requirement("kaged:host-secrets-untold")
def test_a_description_says_which_secrets_are_set_and_nothing_more() -> None:
    found = describe(SPEC, {}, {"key": SECRET})
    assert found["secrets"][:2] == [
        {"name": "key", "description": "Opens the door.", "required": True, "set": True},
        {"name": "pin", "description": "", "required": False, "set": False},
    ]
    assert SECRET not in json.dumps(found)


def test_a_plugin_without_settings_has_nothing_to_describe() -> None:
    assert describe(NOTHING, {}) == {"knobs": [], "secrets": []}


FIELDS = SettingsSpec(
    config_schema={
        "type": "object",
        "properties": {"limit": {"type": "integer", "maximum": 9}, "words": {"type": "array"}},
        "required": ["words"],
    }
)


def test_a_field_that_no_knob_is_for_is_changed_and_held_to_the_schema() -> None:
    assert set_field(FIELDS, {"words": []}, "limit", 4) == {"words": [], "limit": 4}
    refused = set_field(FIELDS, {"words": []}, "limit", 10)
    assert isinstance(refused, Failure)
    assert (refused.code, refused.detail["rule"]) == (Code.INVALID_INPUT, "schema.maximum")


def test_an_older_problem_does_not_refuse_a_field() -> None:
    assert set_field(FIELDS, {}, "limit", 4) == {"limit": 4}


def test_a_field_that_is_not_there_is_not_found_and_the_nearest_is_named() -> None:
    missing = set_field(FIELDS, {}, "limitt", 4)
    assert isinstance(missing, Failure)
    assert (missing.code, "did you mean 'limit'" in missing.message) == (Code.NOT_FOUND, True)


@requirement("kaged:config-secrets-apart")
def test_a_secret_in_the_config_is_refused_without_showing_it() -> None:
    open_ = SettingsSpec(config_schema={"properties": {"a": {"type": "integer"}}}, secrets_schema=SPEC.secrets_schema)
    problems = check_config(open_, {"key": "open sesame", "a": "no"})
    assert [(problem.code, problem.path) for problem in problems] == [("misplaced", "key"), ("type", "a")]
    assert "sesame" not in str(problems)
    assert without_secrets(open_, {"key": "open sesame", "a": 1}) == {"a": 1}
    assert check_config(open_, {"other": 1, "a": 1}) == []


@requirement("kaged:config-secrets-apart")
def test_a_setting_among_the_secrets_is_refused_without_showing_it() -> None:
    open_ = SettingsSpec(config_schema={"properties": {"level": True}}, secrets_schema={"type": "object"})
    problems = check_secrets(open_, {"level": "open sesame", "other": "x"})
    assert [(problem.code, problem.path) for problem in problems] == [("misplaced", "level")]
    assert "sesame" not in str(problems)


@requirement("kaged:config-validated")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**40, [float("-inf")], "\ud800", object()])
def test_a_value_that_json_cannot_say_is_a_problem_of_its_field(value: Any) -> None:
    problems = check_config(SPEC, {"tags": value, "level": 9})
    assert [(problem.code, problem.path) for problem in problems] == [("not_json", "tags"), ("maximum", "level")]


def test_a_date_is_validated_as_the_text_the_plugin_gets() -> None:
    assert check_config(SPEC, {"title": datetime.date(2026, 1, 2)}) == []
    assert [problem.code for problem in check_config(SPEC, {"level": datetime.date(2026, 1, 2)})] == ["type"]


Save = Callable[[Path, str, Mapping[str, Any]], None]
Load = Callable[[Path, str], dict[str, Any]]

VALUE = {"b": [1, 0.5, None, True], "a": {"é": "ü\n"}}


@pytest.fixture(params=["config", "secrets"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def save(kind: str) -> Save:
    return save_config if kind == "config" else save_secrets


@pytest.fixture
def load(kind: str) -> Load:
    return load_config if kind == "config" else load_secrets


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def put(folder: Path, kind: str, data: bytes) -> Path:
    """A file written by another program, as private as it must be."""
    (folder / kind).mkdir(0o700)
    path = folder / kind / "p.json"
    path.write_bytes(data)
    path.chmod(0o600)
    return path


def code_of(problem: pytest.ExceptionInfo[ConfigInvalid]) -> str:
    (found,) = problem.value.problems
    return found.code


def test_saved_settings_are_loaded(tmp_path: Path, save: Save, load: Load) -> None:
    folder = tmp_path / "not" / "there"
    assert load(folder, "p") == {}
    save(folder, "p", VALUE)
    assert load(folder, "p") == VALUE
    assert load(folder, "q") == {}
    save(folder, "p", {})
    assert load(folder, "p") == {}


def test_config_and_secrets_do_not_mix(tmp_path: Path) -> None:
    save_config(tmp_path, "p", {"a": 1})
    save_secrets(tmp_path, "p", {"b": 2})
    assert (load_config(tmp_path, "p"), load_secrets(tmp_path, "p")) == ({"a": 1}, {"b": 2})
    assert (tmp_path / "config" / "p.json").read_text() == '{\n  "a": 1\n}\n'


@requirement("kaged:host-secrets-private")
@pytest.mark.usefixtures("usual_umask")
def test_secrets_files_are_private(tmp_path: Path) -> None:
    save_secrets(tmp_path, "p", VALUE)
    save_config(tmp_path, "p", VALUE)
    assert (mode(tmp_path / "secrets"), mode(tmp_path / "secrets" / "p.json")) == (0o700, 0o600)
    assert (mode(tmp_path / "config"), mode(tmp_path / "config" / "p.json")) == (0o755, 0o644)


@requirement("kaged:host-secrets-private")
@pytest.mark.parametrize("bits", [0o640, 0o604, 0o620, 0o601])
def test_secrets_that_others_can_get_at_are_refused(tmp_path: Path, bits: int) -> None:
    path = put(tmp_path, "secrets", b'{"a": 1}')
    assert load_secrets(tmp_path, "p") == {"a": 1}
    path.chmod(bits)
    with pytest.raises(ConfigInvalid, match=f"chmod 600 {path}") as problem:
        load_secrets(tmp_path, "p")
    assert code_of(problem) == "not_private"


@requirement("kaged:host-secrets-private")
def test_a_folder_of_secrets_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "secrets", b"{}")
    (tmp_path / "secrets").chmod(0o750)
    with pytest.raises(ConfigInvalid, match="chmod 700"):
        load_secrets(tmp_path, "p")
    with pytest.raises(ConfigInvalid, match="chmod 700"):
        save_secrets(tmp_path, "p", {})


@requirement("kaged:host-secrets-private")
def test_saving_secrets_closes_a_file_that_was_open(tmp_path: Path) -> None:
    path = put(tmp_path, "secrets", b"{}")
    path.chmod(0o666)
    save_secrets(tmp_path, "p", {"a": 1})
    assert mode(path) == 0o600


def test_a_config_that_others_can_read_is_loaded(tmp_path: Path) -> None:
    put(tmp_path, "config", b'{"a": 1}').chmod(0o644)
    assert load_config(tmp_path, "p") == {"a": 1}


def test_a_link_is_not_read_through(tmp_path: Path, kind: str, load: Load) -> None:
    path = put(tmp_path, kind, b'{"a": 1}')
    target = path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(target)
    with pytest.raises(ConfigInvalid) as problem:
        load(tmp_path, "p")
    assert code_of(problem) == "unreadable"


def test_a_link_is_not_written_through(tmp_path: Path, kind: str, save: Save, load: Load) -> None:
    path = put(tmp_path, kind, b'{"a": 1}')
    target = path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(target)
    save(tmp_path, "p", {"a": 2})
    assert target.read_text() == '{"a": 1}'
    assert not path.is_symlink()
    assert load(tmp_path, "p") == {"a": 2}


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path, kind: str, save: Save, load: Load) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(0o700)
    (tmp_path / kind).symlink_to(elsewhere)
    with pytest.raises(ConfigInvalid, match="cannot be written"):
        save(tmp_path, "p", {})
    with pytest.raises(ConfigInvalid, match="cannot be read"):
        load(tmp_path, "p")
    assert list(elsewhere.iterdir()) == []


def test_a_pipe_in_place_of_a_file_does_not_block(tmp_path: Path, kind: str, load: Load) -> None:
    put(tmp_path, kind, b"").unlink()
    os.mkfifo(tmp_path / kind / "p.json", 0o600)
    with pytest.raises(ConfigInvalid, match="ordinary file"):
        load(tmp_path, "p")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "parse_error"),
        (b"{", "parse_error"),
        (b'{"a": NaN}', "parse_error"),
        (b'{"a": 1, "a": 2}', "parse_error"),
        (b"\xff", "parse_error"),
        (b"[]", "invalid_type"),
        (b"{}" + b" " * MAX_BYTES, "unreadable"),
    ],
)
def test_a_file_of_no_use_is_a_problem(tmp_path: Path, kind: str, load: Load, data: bytes, code: str) -> None:
    put(tmp_path, kind, data)
    with pytest.raises(ConfigInvalid) as problem:
        load(tmp_path, "p")
    assert code_of(problem) == code


@requirement("kaged:host-secrets-untold")
def test_a_broken_file_of_secrets_is_not_quoted(tmp_path: Path) -> None:
    put(tmp_path, "secrets", b'{"key": "sesame-\xff"}')
    with pytest.raises(ConfigInvalid) as problem:
        load_secrets(tmp_path, "p")
    assert "sesame" not in str(problem.value)
    assert problem.value.__cause__ is None


@pytest.mark.parametrize("value", [{"a": float("nan")}, {"a": {1, 2}}, {"a": "\ud800"}, {"a": "x" * MAX_BYTES}])
def test_settings_that_could_not_be_loaded_again_are_not_saved(
    tmp_path: Path, save: Save, load: Load, value: Any
) -> None:
    save(tmp_path, "p", VALUE)
    with pytest.raises(ConfigInvalid):
        save(tmp_path, "p", value)
    assert load(tmp_path, "p") == VALUE


def test_a_save_that_fails_leaves_nothing_behind(tmp_path: Path, kind: str, save: Save) -> None:
    put(tmp_path, kind, b"").unlink()
    (tmp_path / kind / "p.json").mkdir()
    with pytest.raises(ConfigInvalid, match="cannot be written"):
        save(tmp_path, "p", {})
    assert [path.name for path in (tmp_path / kind).iterdir()] == ["p.json"]


def test_a_reader_sees_the_old_file_or_the_new_one(tmp_path: Path, save: Save, load: Load) -> None:
    save(tmp_path, "p", {"a": "0" * 10_000})
    done = threading.Event()
    seen: set[str] = set()

    def read() -> None:
        while not done.is_set():
            seen.add(load(tmp_path, "p")["a"])

    reader = threading.Thread(target=read)
    reader.start()
    for digit in "123456789" * 5:
        save(tmp_path, "p", {"a": digit * 10_000})
    done.set()
    reader.join()
    assert seen <= {digit * 10_000 for digit in "0123456789"}
    assert [path.name for path in next(tmp_path.iterdir()).iterdir()] == ["p.json"]


@pytest.mark.parametrize(
    ("plugin", "name"),
    [("notes", "notes.json"), ("a/b", "a%2Fb.json"), ("..", "%2E..json"), ("x.log", "x.log.json"), ("", "%.json")],
)
def test_any_id_makes_a_safe_name(tmp_path: Path, plugin: str, name: str) -> None:
    assert file_name(plugin) == name
    save_config(tmp_path, plugin, {"a": 1})
    assert [path.name for path in (tmp_path / "config").iterdir()] == [name]


def test_changes_of_the_settings_take_turns_over_all_processes(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there yet"
    with changing(folder):
        other = os.open(folder, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)


def test_a_folder_that_is_none_cannot_be_changed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigInvalid, match="cannot be written"), changing(tmp_path / "file"):
        pass
