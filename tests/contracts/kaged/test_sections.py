"""The shape of a manifest: every field with its type, its bounds and its default."""

from __future__ import annotations

import pytest

from plugbay.contracts.kaged.sections import Manifest
from tests.contracts.kaged.manifests import HEAD, good, manifest, problems, reported
from tests.support.requirements import requirement

OPTIONAL: dict[str, object] = {
    "author": None,
    "license": None,
    "homepage": None,
    "env": {},
    "capabilities": [],
    "methods": [],
    "notifications": [],
    "config_schema": None,
    "system_config_schema": None,
    "hooks": [],
    "tools": [],
    "roles": None,
    "knobs": {},
    "shutdown_timeout_sec": 5,
    "health_interval_sec": 30,
    "hook_timeout_sec": 10,
}
REQUIRED = ("name", "version", "kaged_api", "description", "command")


@requirement("kaged:manifest-fields")
def test_every_field_of_the_contract_is_there_with_its_default() -> None:
    found = {name: field.default for name, field in Manifest.model_fields.items() if not field.is_required()}
    assert found == OPTIONAL
    assert set(Manifest.model_fields) == {*OPTIONAL, *REQUIRED}


@requirement("kaged:manifest-fields")
@pytest.mark.parametrize("field", REQUIRED)
def test_a_required_field_must_be_there(field: str) -> None:
    assert problems(manifest(without=field)) == [("error", "missing_field", field)]


@requirement("kaged:manifest-bounds")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "a"),
        ("name", "a" * 64),
        ("name", "a-1-"),
        ("version", "'0.0.1'"),
        ("kaged_api", "1"),
        ("description", "x"),
        ("description", "'" + "x" * 200 + "'"),
        ("command", "[a]"),
        ("shutdown_timeout_sec", "1"),
        ("shutdown_timeout_sec", "30"),
        ("health_interval_sec", "5"),
        ("health_interval_sec", "300"),
        ("hook_timeout_sec", "1"),
        ("hook_timeout_sec", "60"),
        ("author", "somebody"),
        ("license", "Apache-2.0 OR MIT"),
    ],
)
def test_a_value_at_its_bound_is_taken(field: str, value: str) -> None:
    good(manifest(**{field: value}))


@requirement("kaged:manifest-bounds")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "''"),
        ("name", "a" * 65),
        ("name", "Notes"),
        ("name", "1notes"),
        ("name", "my_notes"),
        ("name", "notes.md"),
        ("name", '"notes\\n"'),
        ("name", "nöte"),
        ("version", "''"),
        ("kaged_api", "0"),
        ("kaged_api", "-1"),
        ("description", "''"),
        ("description", "'" + "x" * 201 + "'"),
        ("command", "[]"),
        ("shutdown_timeout_sec", "0"),
        ("shutdown_timeout_sec", "31"),
        ("health_interval_sec", "4"),
        ("health_interval_sec", "301"),
        ("hook_timeout_sec", "0"),
        ("hook_timeout_sec", "61"),
        ("hooks", "[on_compact]"),
        ("roles", "[reader]"),
    ],
)
def test_a_value_beyond_its_bound_is_an_error(field: str, value: str) -> None:
    (found,) = reported(manifest(**{field: value}))
    assert (found.severity, found.code) == ("error", "invalid_value")
    assert found.path.startswith(field)


@requirement("kaged:manifest-types")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kaged_api", "true"),
        ("kaged_api", "1.0"),
        ("kaged_api", "'1'"),
        ("shutdown_timeout_sec", "true"),
        ("health_interval_sec", "30.5"),
        ("hook_timeout_sec", "'10'"),
        ("command", "./notes"),
        ("command", "[./notes, 3]"),
        ("env", "[A=b]"),
        ("methods", "notes.list"),
        ("hooks", ""),
        ("capabilities", "[{net: 1}]"),
        ("hooks", "pre_compact"),
        ("tools", "{}"),
        ("tools", "[retain]"),
        ("config_schema", "true"),
        ("system_config_schema", "[]"),
        ("knobs", "[]"),
        ("knobs", "{a: 1}"),
    ],
)
def test_a_value_of_the_wrong_type_is_an_error(field: str, value: str) -> None:
    found = reported(manifest(**{field: value}))
    assert [(problem.severity, problem.code) for problem in found] == [("error", "invalid_type")]
    assert found[0].path.startswith(field)


@requirement("kaged:manifest-text-must-be-quoted")
@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("version", "1.10", "version"),
        ("version", "2", "version"),
        ("env", "{PORT: 8080}", "env.PORT"),
        ("env", "{DEBUG: true}", "env.DEBUG"),
        ("author", "1984", "author"),
        ("notifications", "[404]", "notifications[0]"),
    ],
)
def test_text_that_yaml_takes_for_something_else_comes_with_the_advice_to_quote_it(
    field: str, value: str, path: str
) -> None:
    (found,) = reported(manifest(**{field: value}))
    assert (found.severity, found.code, found.path) == ("error", "invalid_type", path)
    assert found.message.startswith("must be text: put it in quotes, got ")


@requirement("kaged:manifest-yaml-core-schema")
def test_words_that_yaml_1_1_took_for_booleans_are_text() -> None:
    assert good(manifest(env="{A: on, B: no, C: '8080'}")).env == (("A", "on"), ("B", "no"), ("C", "8080"))


@requirement("kaged:manifest-tools")
@pytest.mark.parametrize("missing", ["name", "description", "parameters_schema"])
def test_a_tool_declares_three_things(missing: str) -> None:
    parts = {"name": "add", "description": "Adds.", "parameters_schema": "{}"}
    entry = ", ".join(f"{key}: {value}" for key, value in parts.items() if key != missing)
    assert problems(manifest(tools=f"[{{{entry}}}]")) == [("error", "missing_field", f"tools[0].{missing}")]


def test_the_smallest_manifest_has_what_is_required_and_one_offer() -> None:
    assert set(HEAD) == {*REQUIRED, "methods"}
    good(manifest())
