"""The words of patterns: `$nonblank`, `$any_object` and the like, each a plain question about a value.

Owns what each word wants. Pure. Refuses to know patterns: `matchers` does.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from plugbay.conformance import comparing
from plugbay.conformance.comparing import is_integer, same

_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:.+", re.DOTALL)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_base64(value: Any) -> bool:
    try:
        return comparing.unbase64(value) is not None
    except comparing.Undecodable:
        return False


def _is_unique(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    return not any(same(item, other) for at, item in enumerate(value) for other in value[:at])


WORDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "$any": ("anything", lambda value: True),
    "$any_string": ("a string", lambda value: isinstance(value, str)),
    "$nonblank": ("a string that is not blank", _is_text),
    "$trimmed": (
        "a string without blanks around it",
        lambda value: _is_text(value) and value == value.strip(),
    ),
    "$any_boolean": ("true or false", lambda value: isinstance(value, bool)),
    "$any_integer": ("an integer", lambda value: is_integer(value)),
    "$any_number": ("a number", lambda value: is_integer(value) or isinstance(value, float)),
    "$count": ("an integer that is not negative", lambda value: is_integer(value) and value >= 0),
    "$any_object": ("an object", lambda value: isinstance(value, dict)),
    "$any_array": ("an array", lambda value: isinstance(value, list)),
    "$nonempty": ("an array that is not empty", lambda value: isinstance(value, list) and bool(value)),
    "$base64": ("base64 with its padding", lambda value: _is_base64(value)),
    "$tool_name": (
        "1 to 128 letters, digits, '_', '-' and '.'",
        lambda value: isinstance(value, str) and _TOOL_NAME.fullmatch(value) is not None,
    ),
    "$uri": ("a URI with a scheme", lambda value: isinstance(value, str) and _URI.fullmatch(value) is not None),
    "$schema": ("a valid JSON Schema", comparing.is_schema),
    "$growing": ("progress that increases with each notification", comparing.is_growing),
    "$answer_last": ("every notification before the answer", comparing.is_answered_last),
    "$unique": ("an array without repeated items", _is_unique),
}
"""What each word wants, in words, and whether a value is that."""
