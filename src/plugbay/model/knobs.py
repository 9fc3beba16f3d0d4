"""The values that a knob accepts: the rules of its type, within its bounds.

Owns the types of knobs and the parsing of an operator's text. The schema of the config that a knob writes into is
checked elsewhere: a knob may allow less than that, and by mistake more.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plugbay.model.spec import Knob

_INTEGER = re.compile(r"-?[0-9]{1,300}")
_NUMBER = re.compile(r"-?[0-9]{1,300}(\.[0-9]{1,300})?([eE][-+]?[0-9]{1,3})?")
_WORDS = {"true": True, "false": False}


def value_of(knob: Knob, text: str) -> Any:
    """The value of an operator's text for `knob`; the text itself when it has none."""
    if knob.type in ("range", "int_range"):
        return int(text) if _INTEGER.fullmatch(text) else float(text) if _NUMBER.fullmatch(text) else text
    if knob.type == "boolean":
        return _WORDS.get(text, text)
    if knob.type == "enum":
        return next((value for value in knob.facts.get("values", ()) if shown(value) == text), text)
    return text


def shown(value: Any) -> str:
    """A value of an enum as operators type it and as `labels` call it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def broken_rule(knob: Knob, value: Any) -> tuple[str, str] | None:
    """The first rule of `knob` that `value` breaks, and what it demands; None when it breaks none."""
    return _RULES[knob.type](knob.facts, value)


_Broken = tuple[str, str] | None


def _range(facts: dict[str, Any], value: Any) -> _Broken:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return "type", "must be a number"
    return _within(facts, value)


def _int_range(facts: dict[str, Any], value: Any) -> _Broken:
    if type(value) is not int:
        return "type", "must be a whole number"
    return _within(facts, value)


def _within(facts: dict[str, Any], value: int | float) -> _Broken:
    low, high, step = facts.get("min"), facts.get("max"), facts.get("step")
    if low is not None and value < low:
        return "min", f"must be at least {low}"
    if high is not None and value > high:
        return "max", f"must be at most {high}"
    # Exact: with binary fractions 0.3 would be no multiple of 0.1.
    if step is not None and (_exact(value) - _exact(low or 0)) % _exact(step):
        return "step", f"must be {low or 0} or a number of steps of {step} above it"
    return None


def _exact(number: int | float) -> Fraction:
    return Fraction(number) if isinstance(number, int) else Fraction(repr(number))


def _enum(facts: dict[str, Any], value: Any) -> _Broken:
    values = facts.get("values", ())
    # Python takes True for 1.
    if any(value == known and isinstance(value, bool) == isinstance(known, bool) for known in values):
        return None
    return "values", f"must be one of {', '.join(shown(known) for known in values)}"


def _boolean(facts: dict[str, Any], value: Any) -> _Broken:
    return None if isinstance(value, bool) else ("type", "must be true or false")


def _multiline(facts: dict[str, Any], value: Any) -> _Broken:
    if not isinstance(value, str):
        return "type", "must be text"
    longest = facts.get("max_length")
    if longest is not None and len(value) > longest:
        return "max_length", f"must have at most {longest} characters"
    return None


def _text(facts: dict[str, Any], value: Any) -> _Broken:
    if isinstance(value, str) and ("\n" in value or "\r" in value):
        return "line", "must be one line"
    return _multiline(facts, value)


def _name(facts: dict[str, Any], value: Any) -> _Broken:
    if not isinstance(value, str) or not value.strip():
        return "type", "must be the name of a model"
    return _text(facts, value)


def _path(facts: dict[str, Any], value: Any) -> _Broken:
    if not isinstance(value, str) or not value or "\0" in value:
        return "type", "must be a path"
    prefixes = tuple(facts.get("prefixes", ()))
    if prefixes and not value.startswith(prefixes):
        return "prefixes", f"must begin with {' or '.join(prefixes)}"
    return _text(facts, value)


_RULES: dict[str, Callable[[dict[str, Any], Any], _Broken]] = {
    "range": _range,
    "int_range": _int_range,
    "enum": _enum,
    "boolean": _boolean,
    "text": _text,
    "multiline": _multiline,
    "model_alias": _name,
    "path": _path,
}
"""Every type of knob."""
