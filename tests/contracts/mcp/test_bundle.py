"""A bundle's `manifest.json`: how the server is started, what a person sets, and everything that is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plugbay.contracts.mcp.bundle import fill, is_bundle, parse
from plugbay.contracts.schemas import schema_problem
from plugbay.model.errors import Problem
from plugbay.model.spec import PluginSpec
from tests.support.requirements import requirement

ROOT = Path("/bundles/files")
ENVIRON = {"HOME": "/home/me"}


def manifest(**changes: Any) -> dict[str, Any]:
    whole = {
        "manifest_version": "0.2",
        "name": "files",
        "display_name": "Files",
        "version": "1.2.3",
        "description": "d",
        "author": {"name": "a"},
        "server": {
            "type": "node",
            "entry_point": "server/index.js",
            "mcp_config": {"command": "node", "args": ["${__dirname}/server/index.js"], "env": {"A": "1"}},
        },
    }
    return {key: value for key, value in (whole | changes).items() if value is not ...}


def parsed(**changes: Any) -> tuple[PluginSpec | None, list[Problem]]:
    return parse(json.dumps(manifest(**changes), indent=1), ROOT, ENVIRON)


def made(**changes: Any) -> PluginSpec:
    spec, problems = parsed(**changes)
    assert spec is not None, problems
    return spec


def server(kind: str = "node", **config: Any) -> dict[str, Any]:
    return {"type": kind, "entry_point": "run/me", **({"mcp_config": config} if config else {})}


def codes(problems: list[Problem]) -> list[tuple[str, str]]:
    return [(problem.code, problem.path) for problem in problems]


@requirement("mcp:bundle-spec")
@pytest.mark.parametrize("version", [{}, {"manifest_version": ..., "dxt_version": "0.1"}])
def test_a_bundle_is_a_plugin(version: dict[str, Any]) -> None:
    spec, problems = parsed(**version)
    assert spec is not None and problems == []
    assert (spec.id, spec.name, spec.version, spec.contract, spec.root) == ("files", "Files", "1.2.3", "mcp", ROOT)
    assert spec.command == ("node", "/bundles/files/server/index.js")
    assert spec.env == (("A", "1"),)


@requirement("mcp:bundle-variables")
@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("${__dirname}/x", "/bundles/files/x"),
        ("${HOME}", "/home/me"),
        ("${DESKTOP} ${DOCUMENTS} ${DOWNLOADS}", "/home/me/Desktop /home/me/Documents /home/me/Downloads"),
        ("a${/}b${pathSeparator}c", "a/b/c"),
        ("${PATH}", "${PATH}"),
    ],
)
def test_places_are_filled_in(text: str, filled: str) -> None:
    spec = made(server=server(command="run", args=[text], env={"X": text}))
    assert (spec.command, spec.env) == (("run", filled), (("X", filled),))


@requirement("mcp:bundle-server")
@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("node", ("node", "/bundles/files/run/me")),
        ("python", ("python3", "/bundles/files/run/me")),
        ("binary", ("/bundles/files/run/me",)),
        ("uv", ("uv", "run", "--directory", "/bundles/files", "/bundles/files/run/me")),
    ],
)
def test_a_server_that_does_not_say_how_is_started_by_its_type(kind: str, command: tuple[str, ...]) -> None:
    assert made(server=server(kind)).command == command


@requirement("mcp:bundle-server")
def test_what_a_bundle_says_for_this_platform_counts() -> None:
    overrides = {"linux": {"args": ["--linux"], "env": {"B": "2"}}, "win32": {"command": "run.exe"}}
    spec = made(server=server(command="run", args=["x"], env={"A": "1"}, platform_overrides=overrides))
    assert (spec.command, dict(spec.env)) == (("run", "--linux"), {"A": "1", "B": "2"})
    assert made(server=server(command="run", args=["x"], platform_overrides={"linux": {"args": []}})).command == (
        "run",
    )


@requirement("mcp:bundle-platform")
def test_a_bundle_for_other_machines_is_refused() -> None:
    spec, problems = parsed(compatibility={"platforms": ["darwin", "win32"]})
    assert (spec, codes(problems)) == (None, [("unsupported_platform", "compatibility.platforms")])
    assert made(compatibility={"platforms": ["linux", "darwin"], "runtimes": {"node": ">=16"}}).id == "files"


@requirement("mcp:bundle-all-problems")
def test_all_problems_come_at_once_each_with_its_line() -> None:
    text = """{
 "manifest_version": "0.2",
 "name": "a/b",
 "version": " ",
 "server": {
  "type": "perl",
  "entry_point": "../../etc/passwd",
  "mcp_config": {
   "args": "x"
  }
 },
 "user_config": {
  "k": {
   "type": "colour"
  }
 },
 "tols": []
}"""
    spec, problems = parse(text, ROOT, ENVIRON)
    assert spec is None
    assert [(problem.path, problem.line) for problem in problems] == [
        ("name", 3),
        ("version", 4),
        ("server.type", 6),
        ("server.entry_point", 7),
        ("server.mcp_config.args", 9),
        ("user_config.k.type", 14),
        ("tols", 17),
    ]


@pytest.mark.parametrize("text", ["{", "[]", "5"])
def test_what_is_no_object_is_no_manifest(text: str) -> None:
    spec, problems = parse(text, ROOT, ENVIRON)
    assert spec is None and len(problems) == 1


@pytest.mark.parametrize("entry", ["/bin/sh", "../x", "a/../../x", " "])
def test_an_entry_point_lies_inside_the_bundle(entry: str) -> None:
    spec, problems = parsed(server={"type": "binary", "entry_point": entry})
    assert (spec, codes(problems)) == (None, [("invalid_value", "server.entry_point")])


OPTIONS: dict[str, Any] = {
    "folders": {"type": "directory", "multiple": True, "default": ["${HOME}/a"], "title": "Folders"},
    "key": {"type": "string", "sensitive": True, "required": True, "description": "the key"},
    "size": {"type": "number", "default": 10, "min": 1, "max": 100},
    "rate": {"type": "number"},
    "safe": {"type": "boolean", "default": True},
    "name": {"type": "string", "required": True},
}


@requirement("mcp:bundle-settings")
def test_what_a_person_sets_becomes_settings() -> None:
    settings = made(user_config=OPTIONS).settings
    assert schema_problem(settings.config_schema) is None and schema_problem(settings.secrets_schema) is None
    assert settings.config_schema["required"] == ["name"]
    assert settings.config_schema["properties"] == {
        "folders": {"type": "array", "items": {"type": "string"}, "title": "Folders", "default": ["/home/me/a"]},
        "size": {"type": "number", "minimum": 1, "maximum": 100, "default": 10},
        "rate": {"type": "number"},
        "safe": {"type": "boolean", "default": True},
        "name": {"type": "string"},
    }
    assert settings.secrets_schema["properties"] == {"key": {"type": "string", "description": "the key"}}
    assert settings.secrets_schema["required"] == ["key"]
    assert [(knob.name, knob.type) for knob in settings.knobs] == [
        ("size", "range"),
        ("safe", "boolean"),
        ("name", "text"),
    ]


def test_a_bundle_without_settings_has_none() -> None:
    settings = made().settings
    assert (settings.config_schema, settings.secrets_schema, settings.knobs) == (None, None, ())


@requirement("mcp:bundle-settings")
def test_what_was_set_is_filled_in_when_the_server_is_started() -> None:
    config: dict[str, Any] = {
        "command": "run",
        "args": [
            "--size=${user_config.size}",
            "${user_config.folders}",
            "--rate=${user_config.rate}",
            "--${user_config.safe}",
        ],
        "env": {"KEY": "${user_config.key}", "RATE": "${user_config.rate}", "ALL": "${user_config.folders}"},
    }
    spec = made(user_config=OPTIONS, server=server(**config))
    assert spec.command[1] == "--size=${user_config.size}"
    filled = fill(spec, {"key": "s3", "folders": ["/x", "/y"], "rate": None, "safe": False})
    assert filled.command == ("run", "--size=10", "/x", "/y", "--false")
    assert dict(filled.env) == {"KEY": "s3", "ALL": "/x,/y"}
    assert fill(spec, {"rate": 0.5}).command == ("run", "--size=10", "/home/me/a", "--rate=0.5", "--true")


@requirement("mcp:bundle-settings")
def test_a_setting_that_nobody_declares_is_a_problem() -> None:
    spec, problems = parsed(server=server(command="run", args=["${user_config.nothing}"]))
    assert (spec, codes(problems)) == (None, [("unknown_setting", "server.mcp_config")])


@requirement("mcp:bundle-secrets")
def test_a_secret_is_never_an_argument() -> None:
    spec, problems = parsed(user_config=OPTIONS, server=server(command="run", args=["--key", "${user_config.key}"]))
    assert (spec, codes(problems)) == (None, [("secret_in_arguments", "user_config.key")])


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ('{"manifest_version": "0.2", "server": {}}', True),
        ('{"dxt_version": "0.1", "server": {}}', True),
        ('{"manifest_version": 3}', False),
        ('{"server": {}}', False),
        ("[]", False),
        ("{", False),
    ],
)
def test_a_bundle_is_told_from_other_programs_files(text: str, is_one: bool) -> None:
    assert is_bundle(text) is is_one


@pytest.mark.parametrize(
    "server",
    [
        {"entry_point": "${user_config.ключ}"},
        {"entry_point": "s.js", "mcp_config": {"command": "node", "args": ["--key=${user_config.ключ}"]}},
        {"entry_point": "s.js", "mcp_config": {"platform_overrides": {"linux": {"args": ["${user_config.ключ}"]}}}},
    ],
)
def test_no_secret_gets_into_a_command_by_a_side_door(server: dict[str, Any]) -> None:
    options = {"ключ": {"type": "string", "sensitive": True}}
    spec, problems = parsed(server={"type": "node", **server}, user_config=options)
    assert spec is None and [problem.code for problem in problems] == ["secret_in_arguments"]
    plain, problems = parsed(server={"type": "node", **server}, user_config={"ключ": {"type": "string"}})
    assert plain is not None and problems == []
