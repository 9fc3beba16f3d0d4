"""HTML forms from JSON Schemas, and inputs from submitted forms. Pure.

Strings, numbers, booleans and enums become fields; any other property becomes a field for JSON, and a schema that is
not an object with properties becomes one JSON field. The host validates the input against the schema.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

MAX_FIELDS = 40
"""Fields of one form; larger schemas use JSON."""

MAX_CHOICES = 200
"""Of one field."""

MAX_HOPS = 8
"""References followed within a schema, which may be circular."""

TEXT, INTEGER, NUMBER, FLAG, CHOICE, JSON = "text", "integer", "number", "flag", "choice", "json"

_KINDS = {"string": TEXT, "integer": INTEGER, "number": NUMBER, "boolean": FLAG}

NAMES = "field:"
"""Prefix of field names in a submitted form, so that none collides with our own."""


@dataclass(frozen=True, slots=True)
class Field:
    """One property of an input."""

    name: str
    kind: str
    required: bool = False
    label: str = ""
    description: str = ""
    value: str = ""
    """The current value: the schema's default, or the submitted text."""
    choices: tuple[str, ...] = ()
    """As JSON, to tell 1 from "1"."""
    names: tuple[str, ...] = ()
    """Labels of the choices: plain text if all are strings."""
    low: str = ""
    high: str = ""
    problem: str = ""
    """Why the submitted text is invalid."""

    @property
    def key(self) -> str:
        """Its name in a form."""
        return self.name


class Invalid(Exception):
    """The submitted form is not a valid input; `fields` mark the problems, or `problem` describes the JSON error."""

    def __init__(self, problem: str, fields: tuple[Field, ...] = ()) -> None:
        self.problem = problem
        self.fields = fields
        super().__init__(problem)


# From a schema to fields.


def fields_of(schema: Any) -> tuple[Field, ...] | None:
    """The fields of a form; None if only JSON can express the schema."""
    properties = _properties(schema)
    if properties is None or len(properties) > MAX_FIELDS:
        return None
    required = schema.get("required")
    needed = set(required) if isinstance(required, list) and all(isinstance(name, str) for name in required) else set()
    return tuple(_field(name, _resolve(each, schema), name in needed) for name, each in properties.items())


def signature(schema: Any) -> str:
    """The fields in a line: `name: text, excited?: flag`."""
    fields = fields_of(schema)
    if fields is None:
        return "JSON"
    return ", ".join(f"{field.name}{'' if field.required else '?'}: {field.kind}" for field in fields) or "nothing"


def example(schema: Any) -> str:
    """Example JSON: required properties and those with a default."""
    fields = fields_of(schema)
    empty: dict[str, Any] = {TEXT: "", INTEGER: 0, NUMBER: 0, FLAG: False, JSON: {}}
    wanted = [field for field in fields or () if field.required or field.value]
    made = {field.name: _parse_field(field) if field.value else empty.get(field.kind) for field in wanted}
    return json.dumps(made, ensure_ascii=False, indent=2)


def _properties(schema: Any) -> Mapping[str, Any] | None:
    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        return None
    properties = schema.get("properties")
    if properties is None and schema.get("type") == "object" and schema.get("additionalProperties") is False:
        return {}
    return properties if isinstance(properties, Mapping) else None


def _resolve(schema: Any, root: Mapping[str, Any]) -> Any:
    """The schema of a property, without references within the document and without `or null`."""
    for _ in range(MAX_HOPS):
        if not isinstance(schema, Mapping):
            return schema
        if "$ref" in schema:
            schema = {**_at(root, schema["$ref"]), **{key: value for key, value in schema.items() if key != "$ref"}}
            continue
        options = schema.get("anyOf", schema.get("oneOf"))
        others = [each for each in options if each != {"type": "null"}] if isinstance(options, list) else []
        if len(others) != 1 or not isinstance(others[0], Mapping):
            return schema
        schema = {**others[0], **{key: value for key, value in schema.items() if key not in ("anyOf", "oneOf")}}
    return None


def _at(root: Mapping[str, Any], reference: Any) -> Mapping[str, Any]:
    """The target of a reference within the document; empty if there is none."""
    found: Any = root
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return {}
    for step in reference[2:].split("/"):
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _field(name: str, schema: Any, required: bool) -> Field:
    if not isinstance(schema, Mapping):
        return Field(name, JSON, required, name)
    kind, values = _kind(schema)
    bare = all(isinstance(value, str) for value in values)
    return Field(
        name,
        kind,
        required,
        schema["title"] if isinstance(schema.get("title"), str) else name,
        schema["description"] if isinstance(schema.get("description"), str) else "",
        _default(kind, schema),
        tuple(map(_json, values)),
        tuple(map(str if bare else _json, values)),
        _bound(schema.get("minimum")),
        _bound(schema.get("maximum")),
    )


def _kind(schema: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """The kind of field, and its choices."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list):
        few = 0 < len(values) <= MAX_CHOICES
        return (CHOICE, values) if few else (JSON, [])
    named = schema.get("type")
    kinds = [each for each in named if each != "null"] if isinstance(named, list) else [named]
    return (_KINDS.get(kinds[0], JSON) if len(kinds) == 1 and isinstance(kinds[0], str) else JSON), []


def _default(kind: str, schema: Mapping[str, Any]) -> str:
    if "default" not in schema or schema["default"] is None:
        return ""
    value = schema["default"]
    return value if kind == TEXT and isinstance(value, str) else _json(value)


def _bound(value: Any) -> str:
    return _json(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


# From a submitted form to an input.


def input_of(fields: tuple[Field, ...], typed: Mapping[str, str]) -> dict[str, Any]:
    """The input from form values; raises `Invalid`. Empty optional fields are left out."""
    made: dict[str, Any] = {}
    checked = []
    for field in fields:
        text = typed.get(NAMES + field.name, "").replace("\r\n", "\n")
        field = replace(field, value=text)
        if text or (field.required and field.kind == TEXT):
            try:
                made[field.name] = _parse_field(field)
            except ValueError as error:
                field = replace(field, problem=str(error))
        elif field.required:
            field = replace(field, problem="a value is required")
        checked.append(field)
    if any(field.problem for field in checked):
        raise Invalid("correct the marked fields", tuple(checked))
    return made


def with_prefix(prefix: str, form: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """The submitted values of one of several groups of fields, for `input_of` and `refill`."""
    own = {name: values[0] for name, values in form.items() if name.startswith(prefix)}
    return {NAMES + name.removeprefix(prefix): value for name, value in own.items()}


def refill(fields: tuple[Field, ...], typed: Mapping[str, str]) -> tuple[Field, ...]:
    """The fields with the submitted values."""
    return tuple(replace(field, value=typed.get(NAMES + field.name, field.value)) for field in fields)


def fill(fields: tuple[Field, ...], value: Mapping[str, Any]) -> tuple[Field, ...]:
    """The fields with the values of an input; raises `Invalid` if the form cannot express all of it."""
    filled = tuple(replace(each, value=_text(each, value[each.name]) if each.name in value else "") for each in fields)
    used = tuple(field for field in filled if field.value)
    if input_of(used, {NAMES + field.key: field.value for field in used}) != value:
        raise Invalid("the form has no fields for all of this JSON")
    return filled


def _text(field: Field, value: Any) -> str:
    return value if field.kind == TEXT and isinstance(value, str) else _json(value)


def input_of_json(text: str) -> Any:
    """The input in a JSON field; empty text is an empty object. Raises `Invalid`."""
    try:
        return _parse_json(text) if text.strip() else {}
    except ValueError as error:
        raise Invalid(str(error)) from None


def _parse_field(field: Field) -> Any:
    """The value of a field; raises `ValueError` with a message for the user."""
    text = field.value
    if field.kind == TEXT:
        return text
    if field.kind in (INTEGER, NUMBER):
        return _number(text.strip(), field.kind)
    if field.kind == FLAG and text not in ("true", "false"):
        raise ValueError("choose yes or no")
    if field.kind == CHOICE and text not in field.choices:
        raise ValueError("choose one of the values")
    return _parse_json(text)


def _number(text: str, kind: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        pass
    if kind == INTEGER:
        raise ValueError("enter a whole number")
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError("enter a number")
    return number


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise ValueError(f"invalid JSON: {error.msg} in line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise ValueError("invalid JSON: it is nested too deeply") from None


def _no_number(name: str) -> None:
    raise ValueError(f"invalid JSON: {name} is not a JSON value")
