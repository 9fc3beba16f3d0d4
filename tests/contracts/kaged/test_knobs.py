"""Knobs: what each type may say, what they may turn, and which cannot work."""

from __future__ import annotations

import pytest

from plugbay.contracts.kaged.knobs import OWN_KEYS
from plugbay.model.spec import Knob
from tests.contracts.kaged.manifests import SCHEMA, good, manifest, problems, reported, with_knob
from tests.support.requirements import requirement


def knob(lines: str) -> Knob:
    (found,) = good(with_knob(lines)).settings.knobs
    return found


def codes(lines: str) -> list[tuple[str, str, str]]:
    return [(severity, code, path.removeprefix("knobs.k")) for severity, code, path in problems(with_knob(lines))]


@requirement("kaged:manifest-knob-types")
@pytest.mark.parametrize(
    ("lines", "default", "facts"),
    [
        (
            "type: range\nmin: 0\nmax: 1.5\nstep: 0.5\ndefault: 1\nbinds_to: config.ratio",
            1,
            {"min": 0, "max": 1.5, "step": 0.5},
        ),
        (
            "type: int_range\nmin: -0\nmax: 50\nstep: 5\ndefault: 10\nbinds_to: config.level",
            10,
            {"min": 0, "max": 50, "step": 5},
        ),
        ("type: int_range\nmin: 0\nmax: 9\nbinds_to: config.level", None, {"min": 0, "max": 9}),
        (
            "type: enum\nvalues: [fast, '1']\nlabels: {fast: Fast, '1': One}\ndefault: fast\nbinds_to: config.mode",
            "fast",
            {"values": ["fast", "1"], "labels": {"fast": "Fast", "1": "One"}},
        ),
        ("type: enum\nvalues: [fast]\nbinds_to: config.mode", None, {"values": ["fast"]}),
        ("type: boolean\ndefault: false\nbinds_to: config.loud", False, {}),
        ("type: text\nmax_length: 5\ndefault: abc\nbinds_to: config.title", "abc", {"max_length": 5}),
        ("type: multiline\nmax_length: 9\ndefault: |-\n  a\n  b\nbinds_to: config.title", "a\nb", {"max_length": 9}),
        ("type: model_alias\ndefault: small\nbinds_to: config.title", "small", {}),
        (
            "type: path\nprefixes: ['config:', 'project:']\ndefault: config:/m\nbinds_to: config.title",
            "config:/m",
            {"prefixes": ["config:", "project:"]},
        ),
    ],
)
def test_each_of_the_eight_types_is_read(lines: str, default: object, facts: dict[str, object]) -> None:
    found = knob(lines + "\ndescription: Turns.")
    field = lines.rpartition("config.")[2]
    type = lines.split("\n")[0].removeprefix("type: ")
    assert found == Knob("k", type, "Knob", field, "Turns.", default, facts)


def test_there_are_eight_types() -> None:
    assert len(OWN_KEYS) == 8


@requirement("kaged:manifest-knob-types")
@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("type: slider\nbinds_to: config.level", [("error", "invalid_value", ".type")]),
        ("binds_to: config.level", [("error", "missing_field", ".type")]),
        ("type: boolean", [("error", "missing_field", ".binds_to")]),
        ("type: range\nmin: 1\nbinds_to: config.ratio", [("error", "missing_field", ".max")]),
        ("type: int_range\nmax: 1\nbinds_to: config.ratio", [("error", "missing_field", ".min")]),
        ("type: enum\nbinds_to: config.title", [("error", "missing_field", ".values")]),
        ("type: enum\nvalues: []\nbinds_to: config.mode", [("error", "invalid_value", ".values")]),
        ("type: enum\nvalues: [[a]]\nbinds_to: config.mode", [("error", "invalid_type", ".values[0]")]),
        ("type: range\nmin: true\nmax: 3\nbinds_to: config.ratio", [("error", "invalid_type", ".min")]),
        ("type: range\nmin: '0'\nmax: 3\nbinds_to: config.ratio", [("error", "invalid_type", ".min")]),
        ("type: text\nmax_length: 0\nbinds_to: config.title", [("error", "invalid_value", ".max_length")]),
        ("type: text\nmax_length: true\nbinds_to: config.title", [("error", "invalid_type", ".max_length")]),
        ("type: path\nprefixes: ['']\nbinds_to: config.title", [("error", "invalid_value", ".prefixes[0]")]),
    ],
)
def test_a_knob_that_cannot_be_drawn_is_an_error(lines: str, found: list[tuple[str, str, str]]) -> None:
    assert codes(lines) == found


@requirement("kaged:manifest-unknown-keys")
def test_a_key_of_another_type_is_warned_about() -> None:
    found = reported(with_knob("type: boolean\nbinds_to: config.loud\nstep: 3\nlable: x"))
    assert [(problem.severity, problem.path, problem.message) for problem in found] == [
        ("warning", "knobs.k.step", "not part of the contract, ignored"),
        ("warning", "knobs.k.lable", "not part of the contract, ignored; did you mean 'label'?"),
    ]


@requirement("kaged:manifest-knob-binding")
@pytest.mark.parametrize(
    "binds_to",
    [
        "token",
        "system_config.token",
        "system.token",
        "config",
        "config.",
        "config.quiet",
        "config.loud.x",
        "Config.loud",
    ],
)
def test_a_knob_turns_a_field_of_the_config_and_nothing_else(binds_to: str) -> None:
    assert codes(f"type: boolean\nbinds_to: {binds_to}") == [("error", "knob_binding", ".binds_to")]


@requirement("kaged:manifest-knob-binding")
def test_a_knob_cannot_turn_a_secret() -> None:
    secret = "system_config_schema: {properties: {token: {type: string}}}\n"
    text = f"{secret}{SCHEMA}knobs: {{t: {{type: text, label: T, binds_to: config.token}}}}"
    assert problems(manifest(text)) == [("error", "knob_binding", "knobs.t.binds_to")]


def test_a_mistyped_field_comes_with_a_suggestion() -> None:
    (found,) = reported(with_knob("type: boolean\nbinds_to: config.lod"))
    assert found.message == "'lod' is not a field of config_schema; did you mean 'loud'?"


def test_knobs_without_a_config_schema_turn_nothing() -> None:
    text = manifest("knobs: {a: {type: boolean, label: A, binds_to: config.a}}")
    assert problems(text) == [("error", "knob_binding", "knobs.a.binds_to")]


def test_two_knobs_for_one_field_are_warned_about() -> None:
    entry = "{type: boolean, label: A, binds_to: config.loud}"
    text = manifest(f"{SCHEMA}knobs: {{a: {entry}, b: {entry}}}")
    assert problems(text) == [("warning", "knobs_overlap", "knobs.b.binds_to")]


def test_a_knob_needs_a_name() -> None:
    assert problems(with_knob("type: boolean\nbinds_to: config.loud", name="' '")) == [
        ("error", "invalid_value", "knobs. ")
    ]


@requirement("kaged:manifest-knob-bounds")
@pytest.mark.parametrize(
    ("lines", "key"),
    [
        ("type: range\nmin: 3\nmax: 3\nbinds_to: config.ratio", "max"),
        ("type: range\nmin: 3\nmax: 1\nbinds_to: config.ratio", "max"),
        ("type: range\nmin: 0\nmax: 1\nstep: 0\nbinds_to: config.ratio", "step"),
        ("type: int_range\nmin: 0\nmax: 9\nstep: -1\nbinds_to: config.level", "step"),
        ("type: int_range\nmin: 0\nmax: 9\nstep: 0.5\nbinds_to: config.level", "step"),
        ("type: int_range\nmin: 0.0\nmax: 9\nbinds_to: config.level", "min"),
        ("type: enum\nvalues: [fast, fast]\nbinds_to: config.mode", "values"),
        ("type: enum\nvalues: [fast]\nlabels: {fast: F, slow: S}\nbinds_to: config.mode", "labels"),
        ("type: enum\nvalues: [fast, safe]\nlabels: {fast: F}\nbinds_to: config.mode", "labels"),
    ],
)
def test_bounds_that_contradict_each_other_are_an_error(lines: str, key: str) -> None:
    assert codes(lines) == [("error", "knob_bounds", f".{key}")]


@requirement("kaged:manifest-knob-default")
@pytest.mark.parametrize(
    "lines",
    [
        "type: range\nmin: 0\nmax: 1\ndefault: 2\nbinds_to: config.ratio",
        "type: range\nmin: 0\nmax: 1\ndefault: true\nbinds_to: config.ratio",
        "type: range\nmin: 0\nmax: 1\nstep: 0.5\ndefault: 0.3\nbinds_to: config.ratio",
        "type: int_range\nmin: 0\nmax: 9\ndefault: 1.5\nbinds_to: config.level",
        "type: enum\nvalues: [fast]\ndefault: safe\nbinds_to: config.mode",
        "type: boolean\ndefault: 'on'\nbinds_to: config.loud",
        "type: boolean\ndefault: on\nbinds_to: config.loud",
        "type: text\nmax_length: 2\ndefault: abc\nbinds_to: config.title",
        "type: path\nprefixes: ['config:']\ndefault: /m\nbinds_to: config.title",
        "type: text\ndefault: longer than the schema allows\nbinds_to: config.title",
        "type: text\ndefault: ''\nbinds_to: config.level",
    ],
)
def test_a_default_fits_the_knob_and_the_schema(lines: str) -> None:
    assert codes(lines) == [("error", "knob_default", ".default")]


@requirement("kaged:manifest-knob-schema")
@pytest.mark.parametrize(
    "lines",
    [
        "type: range\nmin: 0\nmax: 10\nstep: 0.5\ndefault: 3\nbinds_to: config.level",
        "type: int_range\nmin: 0\nmax: 200\nbinds_to: config.level",
        "type: enum\nvalues: [fast, slow]\nbinds_to: config.mode",
        "type: boolean\nbinds_to: config.title",
    ],
    ids=["half steps on an integer", "beyond the maximum", "an unknown choice", "a boolean for a text"],
)
def test_a_knob_that_offers_what_the_schema_refuses_is_warned_about(lines: str) -> None:
    assert codes(lines) == [("warning", "knob_beyond_schema", "")]


@requirement("kaged:manifest-knob-schema")
def test_a_knob_may_offer_less_than_the_schema_allows() -> None:
    assert knob("type: int_range\nmin: 10\nmax: 50\nbinds_to: config.level").facts == {"min": 10, "max": 50}


def test_a_config_schema_of_no_use_is_reported_once_and_its_knobs_are_still_looked_at() -> None:
    text = manifest(
        "config_schema: {properties: {a: {type: 3}}}\n"
        "knobs: {a: {type: range, label: A, binds_to: config.a, min: 2, max: 1}}"
    )
    assert problems(text) == [("error", "invalid_schema", "config_schema"), ("error", "knob_bounds", "knobs.a.max")]


@requirement("kaged:knob-schema-bounds")
@pytest.mark.parametrize(
    ("type", "field", "facts"),
    [
        ("int_range", "{type: integer, minimum: 1, maximum: 9}", {"min": 1, "max": 9}),
        ("int_range", "{type: integer, exclusiveMinimum: 1, exclusiveMaximum: 9}", {"min": 2, "max": 8}),
        ("int_range", "{type: number, minimum: 0.5, maximum: 9.5}", {"min": 1, "max": 9}),
        ("int_range", "{type: integer, minimum: 5, exclusiveMinimum: 1, maximum: 9}", {"min": 5, "max": 9}),
        ("range", "{type: number, minimum: 0.5, maximum: 9}", {"min": 0.5, "max": 9}),
        ("enum", "{enum: [a, b]}", {"values": ["a", "b"]}),
    ],
)
def test_bounds_that_a_knob_lacks_are_those_of_its_field(type: str, field: str, facts: dict[str, object]) -> None:
    text = manifest(
        f"config_schema: {{type: object, properties: {{x: {field}}}}}\n"
        f"knobs: {{k: {{type: {type}, label: K, binds_to: x}}}}"
    )
    assert problems(text) == []
    (found,) = good(text).settings.knobs
    assert (found.binds_to, found.facts) == ("x", facts)


@requirement("kaged:knob-schema-bounds")
def test_bounds_of_the_knob_go_before_those_of_the_schema() -> None:
    text = manifest(
        "config_schema: {properties: {x: {type: integer, minimum: 1, maximum: 9}}}\n"
        "knobs: {k: {type: int_range, label: K, binds_to: config.x, max: 5, default: 6}}"
    )
    assert problems(text) == [("error", "knob_default", "knobs.k.default")]


@requirement("kaged:knob-schema-bounds")
def test_bounds_that_nobody_has_are_missing() -> None:
    text = manifest("config_schema: {properties: {x: {}}}\nknobs: {k: {type: range, label: K, binds_to: x, min: 1}}")
    assert problems(text) == [("error", "missing_field", "knobs.k.max")]
