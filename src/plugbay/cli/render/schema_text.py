"""A JSON Schema in one line (`city: string, days?: integer = 3`), and a minimal example input.

Pure. Parts of a schema that are not understood become `…`; they are never an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MAX_PROPERTIES = 8
MAX_CHOICES = 6
MAX_DEPTH = 2
"""Levels of nested objects that are written out; deeper ones are `{…}`."""


def summary(schema: Any) -> str:
    """Describe an input: the keys of an object, with `?` after optional ones."""
    if schema is None or schema is True or schema == {}:
        return "anything"
    if schema is False:
        return "nothing"
    if not isinstance(schema, Mapping):
        return "…"
    if _is_object(schema):
        return _keys(schema, 0) or "an object with any keys"
    return _type(schema, 0)


def _is_object(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object" or ("type" not in schema and "properties" in schema)


def _keys(schema: Mapping[str, Any], depth: int) -> str:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        return ""
    required = schema.get("required")
    needed = set(map(str, required)) if isinstance(required, list) else set()
    shown = [_key(name, value, name in needed, depth) for name, value in list(properties.items())[:MAX_PROPERTIES]]
    if len(properties) > MAX_PROPERTIES:
        shown.append(f"… {len(properties) - MAX_PROPERTIES} more")
    return ", ".join(shown)


def _key(name: str, schema: Any, required: bool, depth: int) -> str:
    text = f"{name}{'' if required else '?'}: {_type(schema, depth)}"
    if isinstance(schema, Mapping) and "default" in schema:
        text += f" = {_value(schema['default'])}"
    return text


def _type(schema: Any, depth: int) -> str:
    if not isinstance(schema, Mapping) or not schema:
        return "any" if schema in (True, {}) else "…"
    if isinstance(schema.get("enum"), list):
        return _choices(schema["enum"])
    if "const" in schema:
        return _value(schema["const"])
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return " | ".join(dict.fromkeys(_type(option, depth) for option in schema[key]))
    if _is_object(schema):
        return _object(schema, depth)
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(_type({**schema, "type": one}, depth) for one in kind)
    return _array(schema, depth) if kind == "array" else _scalar(schema, kind)


def _object(schema: Mapping[str, Any], depth: int) -> str:
    keys = _keys(schema, depth + 1) if depth + 1 < MAX_DEPTH else ""
    return f"{{{keys or '…'}}}"


def _array(schema: Mapping[str, Any], depth: int) -> str:
    items = schema.get("items")
    text = _type(items, depth) if items is not None else "any"
    return f"({text})[]" if " | " in text else f"{text}[]"


def _scalar(schema: Mapping[str, Any], kind: Any) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    bounds = ""
    if low is not None and high is not None:
        bounds = f" {_value(low)}..{_value(high)}"
    elif low is not None or high is not None:
        bounds = f" ≥ {_value(low)}" if low is not None else f" ≤ {_value(high)}"
    return f"{kind}{bounds}" if isinstance(kind, str) else "…"


def _choices(values: list[Any]) -> str:
    shown = [_value(value) for value in values[:MAX_CHOICES]]
    return " | ".join([*shown, "…"] if len(values) > MAX_CHOICES else shown)


def _value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:39] + "…"


_SAMPLES: dict[str, Any] = {
    "string": "…",
    "integer": 1,
    "number": 1,
    "boolean": True,
    "array": [],
    "object": {},
}


def example(schema: Any) -> str:
    """An example input: every required key with a value of its type."""
    return json.dumps(_example(schema, 0), ensure_ascii=False)


def _example(schema: Any, depth: int) -> Any:
    if not isinstance(schema, Mapping):
        return {}
    for key in ("default", "const"):
        if key in schema:
            return schema[key]
    for key in ("examples", "enum"):
        if isinstance(schema.get(key), list) and schema[key]:
            return schema[key][0]
    if not _is_object(schema):
        kinds = schema.get("type")
        kind = kinds[0] if isinstance(kinds, list) and kinds else kinds
        return schema.get("minimum", _SAMPLES.get(kind, {}) if isinstance(kind, str) else {})
    properties = schema.get("properties")
    required = schema.get("required")
    if depth >= MAX_DEPTH or not isinstance(properties, Mapping) or not isinstance(required, list):
        return {}
    return {name: _example(properties[name], depth + 1) for name in map(str, required) if name in properties}
