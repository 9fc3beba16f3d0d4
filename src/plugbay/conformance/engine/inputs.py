"""Chooses an input for an export: the example of its schema, else the smallest value that the schema asks for.

Pure. The value need not be valid: a plugin that answers it with an error has answered.
"""

from __future__ import annotations

from typing import Any

from plugbay.model.spec import Export

MAX_DEPTH = 8
"""Levels of a schema that are followed; a schema that refers to itself has no least value."""

FORMATS = {
    "date": "2024-01-31",
    "date-time": "2024-01-31T12:00:00Z",
    "email": "somebody@example.org",
    "hostname": "example.org",
    "ipv4": "192.0.2.1",
    "time": "12:00:00Z",
    "uri": "https://example.org/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}

RESTRICTIONS = ("enum", "const", "pattern", "format", "maxLength")
"""Keywords that keep a string property from taking any text."""

ALTERNATIVES = ("anyOf", "oneOf", "allOf")

FORCEFUL_TIERS = frozenset({"dangerous", "destructive"})

READ_ONLY = "read_only"
"""The one effect class that changes nothing."""


def input_for(export: Export) -> Any:
    """The input to call this tool with."""
    return value_for(export.input_schema)


def value_for(schema: Any) -> Any:
    """The example of a schema, or the smallest value that it asks for."""
    return _value(schema, schema, 0)


def has_example(export: Export) -> bool:
    schema = export.input_schema
    return isinstance(schema, dict) and bool(schema.get("examples"))


def may_be_called(export: Export) -> bool:
    """A tool that changes things is called only with an input its author wrote down for that."""
    return is_harmless(export) or has_example(export)


def is_harmless(export: Export) -> bool:
    """Whether a tool says, in the words of its contract, that it changes nothing."""
    facts = export.facts
    forceful = facts.get("mutating") or facts.get("approval_tier") in FORCEFUL_TIERS
    return not forceful and facts.get("effect_class", READ_ONLY) == READ_ONLY


def free_string(export: Export) -> str | None:
    """The name of a top-level string property that takes any text; required ones first."""
    schema = _resolve(export.input_schema, export.input_schema)
    properties = _table(schema.get("properties"))
    if not properties and schema.get("additionalProperties") is not False and _takes_objects(schema):
        return "text"
    required = [name for name in _list(schema.get("required")) if name in properties]
    for name in (*required, *properties):
        inner = _resolve(properties[name], export.input_schema)
        if inner.get("type") == "string" and not any(key in inner for key in RESTRICTIONS):
            return str(name)
    return None


def _takes_objects(schema: dict[str, Any]) -> bool:
    return schema.get("type", "object") == "object" and not any(key in schema for key in ALTERNATIVES)


def _value(schema: Any, root: Any, depth: int) -> Any:
    schema = _resolve(schema, root)
    if depth > MAX_DEPTH:
        return {}
    for key in ("examples", "enum"):
        if _list(schema.get(key)):
            return schema[key][0]
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    for key in ALTERNATIVES:
        if _list(schema.get(key)):
            return _value(_merge_branches(schema, key), root, depth + 1)
    return _by_type(schema, root, depth)


def _merge_branches(schema: dict[str, Any], key: str) -> dict[str, Any]:
    """The schema with the first alternative, or with every part of an `allOf`, merged into it."""
    parts = [_table(part) for part in schema[key]]
    chosen = parts if key == "allOf" else parts[:1]
    merged = {name: value for name, value in schema.items() if name != key}
    for part in chosen:
        properties = {**_table(merged.get("properties")), **_table(part.get("properties"))}
        required = [*_list(merged.get("required")), *_list(part.get("required"))]
        merged = {**merged, **part}
        if properties:
            merged |= {"properties": properties, "required": required}
    return merged


def _by_type(schema: dict[str, Any], root: Any, depth: int) -> Any:
    kinds = schema.get("type")
    kind = kinds[0] if isinstance(kinds, list) and kinds else kinds
    if kind == "string":
        return FORMATS.get(str(schema.get("format")), "text").ljust(_count(schema.get("minLength")), "x")
    if kind in ("integer", "number"):
        return _number(schema, 1 if kind == "integer" else 0.5)
    if kind == "boolean":
        return False
    if kind == "null":
        return None
    if kind == "array":
        return [_value(schema.get("items"), root, depth + 1)] * _count(schema.get("minItems"))
    properties = _table(schema.get("properties"))
    return {name: _value(properties.get(name), root, depth + 1) for name in _list(schema.get("required"))}


def _number(schema: dict[str, Any], step: float) -> Any:
    if "minimum" in schema:
        return schema["minimum"]
    if "exclusiveMinimum" in schema:
        return schema["exclusiveMinimum"] + step
    if "maximum" in schema:
        return min(1, schema["maximum"])
    return min(1, schema["exclusiveMaximum"] - step) if "exclusiveMaximum" in schema else 1


def _resolve(schema: Any, root: Any) -> dict[str, Any]:
    """The schema behind local references; a remote one stands for anything."""
    for _ in range(MAX_DEPTH):
        reference = _table(schema).get("$ref")
        if not isinstance(reference, str):
            break
        schema = _follow_reference(reference, root)
    return _table(schema)


def _follow_reference(reference: str, root: Any) -> Any:
    if not reference.startswith("#"):
        return {}
    found = root
    for part in reference[1:].split("/")[1:]:
        found = _table(found).get(part.replace("~1", "/").replace("~0", "~"))
    return found


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _count(value: Any) -> int:
    return min(value, 1000) if isinstance(value, int) and not isinstance(value, bool) else 0
