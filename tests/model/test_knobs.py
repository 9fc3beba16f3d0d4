"""Knobs: what an operator types, and which values each type lets through."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.model.knobs import broken_rule, shown, value_of
from plugbay.model.spec import Knob
from tests.support.requirements import requirement


def knob(type: str, **facts: Any) -> Knob:
    return Knob("k", type, "Knob", "field", facts=facts)


RANGE = knob("range", min=0, max=1, step=0.1)
INTS = knob("int_range", min=1, max=9, step=2)
ENUM = knob("enum", values=["fast", 1, True, 0.5])
SWITCH = knob("boolean")
TEXT = knob("text", max_length=3)
LINES = knob("multiline", max_length=3)
PATH = knob("path", prefixes=["config:", "project:"])
MODEL = knob("model_alias")


@requirement("kaged:manifest-knob-types")
@pytest.mark.parametrize(
    ("knob", "value"),
    [
        *((RANGE, value) for value in (0, 1, 0.0, 0.1, 0.3, 0.7, 1.0)),
        *((INTS, value) for value in (1, 3, 9)),
        *((ENUM, value) for value in ("fast", 1, True, 0.5)),
        *((SWITCH, value) for value in (True, False)),
        *((TEXT, value) for value in ("", "abc", "\U0001f600" * 3)),
        *((LINES, value) for value in ("a\nb", "")),
        *((PATH, value) for value in ("config:/x", "project:y")),
        (MODEL, "small"),
        (knob("range"), -1e300),
        (knob("int_range", step=5), 10**400),
        (knob("text"), "x" * 10_000),
        (knob("path"), "/anywhere"),
    ],
)
def test_a_value_within_the_bounds_is_let_through(knob: Knob, value: Any) -> None:
    assert broken_rule(knob, value) is None


@requirement("kaged:manifest-knob-types")
@pytest.mark.parametrize(
    ("knob", "value", "rule"),
    [
        *((RANGE, value, "type") for value in ("0", True, None, float("nan"), float("inf"), [0])),
        (RANGE, -0.1, "min"),
        (RANGE, 1.1, "max"),
        (RANGE, 0.25, "step"),
        *((INTS, value, "type") for value in (1.0, True, "3", None)),
        (INTS, 0, "min"),
        (INTS, 10**400, "max"),
        (INTS, 2, "step"),
        *((ENUM, value, "values") for value in ("slow", 2, False, None, "1", ["fast"])),
        *((SWITCH, value, "type") for value in (0, 1, "true", None)),
        *((TEXT, value, "type") for value in (3, None, b"a")),
        (TEXT, "abcd", "max_length"),
        (TEXT, "a\nb", "line"),
        (LINES, "a\nbc", "max_length"),
        (LINES, 3, "type"),
        *((PATH, value, "type") for value in ("", None, "config:\0")),
        (PATH, "/etc", "prefixes"),
        (PATH, "config:a\nb", "line"),
        *((MODEL, value, "type") for value in ("", " ", None, 3)),
        (MODEL, "a\nb", "line"),
    ],
)
def test_a_value_beyond_them_breaks_a_rule_with_a_name(knob: Knob, value: Any, rule: str) -> None:
    broken = broken_rule(knob, value)
    assert broken is not None
    assert broken[0] == rule
    assert broken[1].startswith("must ")


@pytest.mark.parametrize(
    ("knob", "text", "value"),
    [
        (RANGE, "0.5", 0.5),
        (RANGE, "1", 1),
        (RANGE, "-2e3", -2000.0),
        (RANGE, "1_0", "1_0"),
        (RANGE, "nan", "nan"),
        (RANGE, " 1", " 1"),
        (INTS, "3", 3),
        (INTS, "3.0", 3.0),
        (INTS, "three", "three"),
        (SWITCH, "true", True),
        (SWITCH, "false", False),
        (SWITCH, "yes", "yes"),
        (ENUM, "fast", "fast"),
        (ENUM, "1", 1),
        (ENUM, "true", True),
        (ENUM, "0.5", 0.5),
        (ENUM, "slow", "slow"),
        (TEXT, "true", "true"),
        (LINES, "12", "12"),
        (PATH, "config:/x", "config:/x"),
    ],
)
def test_what_an_operator_types_is_read_by_the_type_of_the_knob(knob: Knob, text: str, value: Any) -> None:
    found = value_of(knob, text)
    assert found == value
    assert type(found) is type(value)


def test_a_boolean_is_shown_as_json_writes_it() -> None:
    assert [shown(value) for value in (True, False, 1, "True")] == ["true", "false", "1", "True"]


@given(
    st.sampled_from([RANGE, INTS, ENUM, SWITCH, TEXT, LINES, PATH, MODEL]),
    st.text() | st.from_regex(r"-?[0-9.eE+-]{1,500}"),
)
def test_no_text_makes_a_knob_raise(knob: Knob, text: str) -> None:
    broken_rule(knob, value_of(knob, text))


@given(st.integers(0, 10_000), st.sampled_from([0.1, 0.01, 0.25, 3, 1e-7]))
def test_every_multiple_of_the_step_is_on_it(count: int, step: float) -> None:
    written = repr(step)
    digits = 7 if "e" in written else len(written.partition(".")[2])
    value = float(f"{count * step:.{digits}f}")
    assert broken_rule(knob("range", min=0, step=step), value) is None
