"""HTML forms from JSON Schemas, and inputs from submitted forms. Pure.

Strings, dates, numbers, booleans and enums become fields, lists of them a field with an item per line, and an object
within the object the fields of its properties. Any other property becomes a field for JSON, and a schema that is not an
object with properties becomes one JSON field. The host validates the input against the schema.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from itertools import groupby, islice
from typing import Any

import msgspec
from msgspec.structs import replace

MAX_FIELDS = 40
"""Fields of one form; larger schemas use JSON."""

MAX_CHOICES = 200
"""Of one field."""

MAX_HOPS = 8
"""References followed within a schema, which may be circular."""

MAX_DEPTH = 3
"""Objects within objects that become fields; deeper ones are JSON."""

TEXT, INTEGER, NUMBER, FLAG, CHOICE, JSON = "text", "integer", "number", "flag", "choice", "json"
DATE, MOMENT, LIST = "date", "moment", "list"

_KINDS = {"string": TEXT, "integer": INTEGER, "number": NUMBER, "boolean": FLAG}

_FORMATS = {"date": DATE, "date-time": MOMENT}
"""Kinds of strings by their format."""

NAMES = "field:"
"""Prefix of field names in a submitted form, so that none collides with our own."""


class Field(msgspec.Struct, frozen=True):
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
    step: str = ""
    problem: str = ""
    """Why the submitted text is invalid."""
    path: tuple[str, ...] = ()
    """The objects around it, from the outermost on."""
    inside: tuple[tuple[str, ...], ...] = ()
    """The optional ones of these objects: without any value in them they are left out."""
    item: str = ""
    """The kind of the items of a list."""

    @property
    def key(self) -> str:
        """Its name in a form; unique, also for names with slashes."""
        return "/".join(step.replace("~", "~0").replace("/", "~1") for step in (*self.path, self.name))


class Invalid(Exception):
    """The submitted form is not a valid input; `fields` mark the problems, or `problem` describes the JSON error."""

    def __init__(self, problem: str, fields: tuple[Field, ...] = ()) -> None:
        self.problem = problem
        self.fields = fields
        super().__init__(problem)


# From a schema to fields.


def fields_of(schema: Any, depth: int = MAX_DEPTH) -> tuple[Field, ...] | None:
    """The fields of a form; None if only JSON can express the schema. `depth`: of objects that become fields."""
    if _properties(schema) is None:
        return None
    for deep in range(depth, -1, -1):
        found = tuple(islice(_fields(schema, schema, deep), MAX_FIELDS + 1))
        if len(found) <= MAX_FIELDS:
            return found
    return None


def _fields(
    schema: Mapping[str, Any],
    root: Mapping[str, Any],
    depth: int,
    path: tuple[str, ...] = (),
    inside: tuple[tuple[str, ...], ...] = (),
) -> Iterator[Field]:
    required = schema.get("required")
    needed = set(required) if isinstance(required, list) and all(isinstance(name, str) for name in required) else set()
    for name, each in (_properties(schema) or {}).items():
        found = _resolve(each, root)
        if depth and isinstance(found, Mapping) and found.get("type") == "object" and _properties(found):
            around = (*path, name)
            optional = inside if name in needed else (*inside, around)
            yield from _fields(found, root, depth - 1, around, optional)
        else:
            yield replace(_field(name, found, name in needed, root), path=path, inside=inside)


def groups_of(fields: Sequence[Field]) -> list[tuple[str, list[Field]]]:
    """The fields with the names of the objects around them, for one frame around the fields of an object."""
    return [(" / ".join(path), list(group)) for path, group in groupby(fields, key=lambda field: field.path)]


def signature(schema: Any) -> str:
    """The fields in a line: `name: text, excited?: flag`."""
    fields = fields_of(schema)
    if fields is None:
        return "JSON"
    names = [(".".join((*field.path, field.name)), field.required and not field.inside, field.kind) for field in fields]
    return ", ".join(f"{name}{'' if required else '?'}: {kind}" for name, required, kind in names) or "nothing"


def example(schema: Any) -> str:
    """Example JSON: required properties and those with a default."""
    fields = fields_of(schema, depth=0)
    empty: dict[str, Any] = {TEXT: "", INTEGER: 0, NUMBER: 0, FLAG: False, JSON: {}, LIST: []}
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


def _field(name: str, schema: Any, required: bool, root: Mapping[str, Any]) -> Field:
    if not isinstance(schema, Mapping):
        return Field(name, JSON, required, name)
    kind, values = _kind(schema)
    item = ""
    if kind == JSON and schema.get("type") == "array":
        item, values = _item(_resolve(schema.get("items"), root))
        kind = LIST if item else JSON
    if kind == LIST and not _fits_lines(schema.get("default"), item):
        kind, item, values = JSON, "", []
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
        item=item,
    )


def _item(schema: Any) -> tuple[str, list[Any]]:
    """The kind of the items of a list that has a line for each, and their choices; empty: they need JSON."""
    if not isinstance(schema, Mapping):
        return "", []
    kind, values = _kind(schema)
    if kind == CHOICE:
        return (TEXT, values) if all(isinstance(value, str) for value in values) else ("", [])
    return (kind, []) if kind in (TEXT, INTEGER, NUMBER, DATE) else ("", [])


def _fits_lines(items: Any, kind: str) -> bool:
    """Whether each of these items is a line of its own."""
    if items is None:
        return True
    if not isinstance(items, list):
        return False
    if kind in (INTEGER, NUMBER):
        return all(isinstance(item, int | float) and not isinstance(item, bool) for item in items)
    return all(isinstance(item, str) and item.strip() and "\n" not in item and "\r" not in item for item in items)


def _kind(schema: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """The kind of field, and its choices."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list):
        few = 0 < len(values) <= MAX_CHOICES
        return (CHOICE, values) if few else (JSON, [])
    named = schema.get("type")
    kinds = [each for each in named if each != "null"] if isinstance(named, list) else [named]
    kind = _KINDS.get(kinds[0], JSON) if len(kinds) == 1 and isinstance(kinds[0], str) else JSON
    form = schema.get("format")
    return (_FORMATS.get(form, TEXT) if kind == TEXT and isinstance(form, str) else kind), []


def _default(kind: str, schema: Mapping[str, Any]) -> str:
    value = schema.get("default")
    return "" if value is None else written(kind, value)


def written(kind: str, value: Any) -> str:
    """A value as the text of its field."""
    if kind == LIST and isinstance(value, list):
        return "\n".join(item if isinstance(item, str) else _json(item) for item in value)
    if kind == MOMENT and isinstance(value, str):
        return value.removesuffix("Z")
    return value if kind in (TEXT, DATE) and isinstance(value, str) else _json(value)


def _bound(value: Any) -> str:
    return _json(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


# From a submitted form to an input.


def input_of(fields: tuple[Field, ...], typed: Mapping[str, str]) -> dict[str, Any]:
    """The input from form values; raises `Invalid`. Empty optional fields are left out."""
    made, checked = _collect(refill(fields, typed, keep=False))
    if any(field.problem for field in checked):
        raise Invalid("correct the marked fields", checked)
    return made


def with_prefix(prefix: str, form: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """The submitted values of one of several groups of fields, for `input_of` and `refill`."""
    own = {name: values[0] for name, values in form.items() if name.startswith(prefix)}
    return {NAMES + name.removeprefix(prefix): value for name, value in own.items()}


def draft_of(fields: tuple[Field, ...], typed: Mapping[str, str]) -> dict[str, Any]:
    """The input so far, for the form as JSON: without required values that are missing. Raises `Invalid`."""
    made, checked = _collect(refill(fields, typed, keep=False), drafted=True)
    if any(field.problem for field in checked):
        raise Invalid("correct the marked fields", checked)
    return made


def fill(fields: tuple[Field, ...], value: Any) -> tuple[Field, ...]:
    """The fields with the values of an input; raises `Invalid` if the form cannot express all of it."""
    filled = tuple(replace(field, value=_lines(_text_at(field, value))) for field in fields)
    made, checked = _collect(filled, drafted=True)
    if _exact(made) != _exact(value) or any(field.problem for field in checked):
        raise Invalid("the form cannot show all of this JSON")
    return filled


def _exact(value: Any) -> str:
    """JSON that tells 1 from 1.0 and from true."""
    return json.dumps(value, sort_keys=True)


def _lines(text: str) -> str:
    """Text with the line ends that it had before a browser sent it."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _text_at(field: Field, value: Any) -> str:
    for step in (*field.path, field.name):
        value = value.get(step) if isinstance(value, Mapping) else None
    if value is None or (field.kind == LIST and not _fits_lines(value, field.item)):
        return ""
    return written(field.kind, value)


def _collect(fields: tuple[Field, ...], *, drafted: bool = False) -> tuple[dict[str, Any], tuple[Field, ...]]:
    """The input of the fields, and the fields with their problems. A draft may lack required values."""
    made: dict[str, Any] = {}
    used = {field.path[:length] for field in fields if field.value for length in range(len(field.path) + 1)}
    checked = []
    for field in fields:
        text = field.value
        if not all(around in used for around in field.inside):
            checked.append(field)
            continue
        if not drafted or text:
            into = made
            for step in field.path:
                into = into.setdefault(step, {})
        if text or (field.required and field.kind == TEXT and not drafted):
            try:
                into[field.name] = _parse_field(field)
            except ValueError as error:
                field = replace(field, problem=str(error))
        elif field.required and not drafted:
            field = replace(field, problem="a value is required")
        checked.append(field)
    return made, tuple(checked)


def refill(fields: tuple[Field, ...], typed: Mapping[str, str], *, keep: bool = True) -> tuple[Field, ...]:
    """The fields with the submitted values; one that was not submitted keeps its value, or is empty."""
    return tuple(
        replace(field, value=_lines(typed.get(NAMES + field.key, field.value if keep else ""))) for field in fields
    )


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
    if field.kind == LIST:
        return [_parse_item(field, line.strip()) for line in text.split("\n") if line.strip()]
    if field.kind in (DATE, MOMENT):
        return _moment(text.strip(), field.kind)
    if field.kind in (INTEGER, NUMBER):
        return _number(text.strip(), field.kind)
    if field.kind == FLAG and text not in ("true", "false"):
        raise ValueError("choose yes or no")
    if field.kind == CHOICE and text not in field.choices:
        raise ValueError("choose one of the values")
    return _parse_json(text)


def _parse_item(field: Field, line: str) -> Any:
    if field.choices and _json(line) not in field.choices:
        raise ValueError(f"{line!r:.60} is not one of {', '.join(field.names)}")
    try:
        return _parse_field(Field(field.name, field.item, value=line))
    except ValueError as error:
        raise ValueError(f"{line!r:.60}: {error}") from None


def _moment(text: str, kind: str) -> str:
    """A day, or a moment in UTC, as JSON Schema writes it."""
    try:
        if kind == DATE:
            return date.fromisoformat(text).isoformat()
        found = datetime.fromisoformat(text)
    except ValueError:
        shape = "2026-03-12" if kind == DATE else "2026-03-12T20:00:00"
        raise ValueError(f"enter a {'day' if kind == DATE else 'moment'} such as {shape}") from None
    found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    return found.isoformat().replace("+00:00", "Z")


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
