"""`knobs`: the controls a manifest offers to operators, and whether each of them can work.

Owns which type of knob may say what, and that a knob turns a field of the project's config and never a secret. What
values a knob lets through is said in `model.knobs`; this asks it about the knob's own default.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from plugbay.contracts.document import KeyPath
from plugbay.contracts.draft import Draft
from plugbay.contracts.kaged.sections import KnobEntry
from plugbay.contracts.schemas import compile_schema
from plugbay.contracts.validation import suggestion
from plugbay.model.knobs import broken_rule, shown
from plugbay.model.spec import Knob

BINDING = "config."
"""The prefix of `binds_to` in published manifests; a single field of `config_schema` follows, or stands alone."""

COMMON_KEYS = ("type", "label", "description", "binds_to", "default")

_NUMBERS = ("min", "max", "step")
OWN_KEYS: dict[str, tuple[str, ...]] = {
    "range": _NUMBERS,
    "int_range": _NUMBERS,
    "enum": ("values", "labels"),
    "boolean": (),
    "text": ("max_length",),
    "multiline": ("max_length",),
    "model_alias": (),
    "path": ("prefixes",),
}
"""The keys of each type beside the common ones."""

NEEDED_KEYS = {"range": ("min", "max"), "int_range": ("min", "max"), "enum": ("values",)}
"""The keys that a control needs to be drawn. Where a knob lacks one, the field it turns may have the same bound."""


def check(draft: Draft) -> None:
    """Every rule about knobs, on whatever is there."""
    validator = _config_validator(draft)
    bound: dict[str, str] = {}
    for name, raw in draft.table("knobs").items():
        path = ("knobs", name)
        if not name.strip():
            draft.error("invalid_value", path, "a knob needs a name")
        if not isinstance(raw, dict):
            continue
        field = _binding(draft, path, raw.get("binds_to"))
        bounds = schema_bounds(raw.get("type"), draft.table("config_schema", "properties").get(field or ""))
        _keys(draft, path, raw, bounds)
        if field is not None and bound.setdefault(field, name) != name:
            draft.warn("knobs_overlap", (*path, "binds_to"), f"{bound[field]!r} also sets {field!r}")
        entry = _entry(raw)
        if entry is not None:
            _sense(draft, path, _completed(entry, bounds), validator if field is not None else None)


def knob(name: str, entry: KnobEntry, config_schema: Mapping[str, Any]) -> Knob:
    """The knob of an entry that has no problem, with bounds of the schema where it has none of its own."""
    field = config_schema.get("properties", {}).get(entry.binds_to.removeprefix(BINDING))
    return _knob(name, _completed(entry, schema_bounds(entry.type, field)))


def schema_bounds(type: Any, field: Any) -> dict[str, Any]:
    """The bounds that the schema of a field has for a knob of this type, under the knob's keys."""
    if not isinstance(field, dict):
        return {}
    if type == "enum":
        values = field.get("enum")
        usable = (
            isinstance(values, list) and values and all(isinstance(item, str | bool | int | float) for item in values)
        )
        return {"values": values} if usable else {}
    if type not in ("range", "int_range"):
        return {}
    whole = type == "int_range"
    low = _bound(field.get("minimum"), field.get("exclusiveMinimum"), max, 1, whole)
    high = _bound(field.get("maximum"), field.get("exclusiveMaximum"), min, -1, whole)
    return {key: value for key, value in (("min", low), ("max", high)) if value is not None}


def _bound(inclusive: Any, exclusive: Any, narrower: Callable[[list[Any]], Any], inward: int, whole: bool) -> Any:
    """The narrower of two bounds; of whole numbers the first one inside it."""
    known = [
        bound for bound in (inclusive, exclusive) if isinstance(bound, int | float) and not isinstance(bound, bool)
    ]
    if not known:
        return None
    bound = narrower(known)
    if not whole:
        return bound
    rounded = math.ceil(bound) if inward > 0 else math.floor(bound)
    return rounded + inward if bound == exclusive and rounded == bound else rounded


def _completed(entry: KnobEntry, bounds: Mapping[str, Any]) -> KnobEntry:
    return entry.model_copy(update={key: value for key, value in bounds.items() if getattr(entry, key) is None})


def _knob(name: str, entry: KnobEntry) -> Knob:
    return Knob(
        name=name,
        type=entry.type,
        label=entry.label,
        binds_to=entry.binds_to.removeprefix(BINDING),
        description=entry.description,
        default=entry.default,
        facts={key: getattr(entry, key) for key in OWN_KEYS[entry.type] if getattr(entry, key) is not None},
    )


def _entry(raw: dict[str, Any]) -> KnobEntry | None:
    """None when its shape is wrong, which is reported with the shape of everything else."""
    try:
        return KnobEntry.model_validate(raw, strict=True)
    except ValidationError:
        return None


def _keys(draft: Draft, path: KeyPath, raw: dict[str, Any], bounds: Mapping[str, Any]) -> None:
    type = raw.get("type")
    if not isinstance(type, str) or type not in OWN_KEYS:
        return
    draft.warn_of_unknown(path, raw, (*COMMON_KEYS, *OWN_KEYS[type]))
    for key in NEEDED_KEYS.get(type, ()):
        if key not in raw and key not in bounds:
            text = f"a knob of type {type} needs it, because config_schema has no such bound for its field"
            draft.error("missing_field", (*path, key), text)


def _binding(draft: Draft, path: KeyPath, binds_to: Any) -> str | None:
    """The field that a knob turns; None when it turns none."""
    if not isinstance(binds_to, str):
        return None
    field = binds_to.removeprefix(BINDING)
    fields = draft.table("config_schema", "properties")
    if "." in binds_to and not binds_to.startswith(BINDING):
        text = f"{binds_to!r} must be '{BINDING}<field>' or '<field>'; a knob sets a field of the project's config"
    elif field not in fields:
        text = f"{field!r} is not a field of config_schema{suggestion(field, fields)}"
    else:
        return field
    draft.error("knob_binding", (*path, "binds_to"), text)
    return None


def _sense(draft: Draft, path: KeyPath, entry: KnobEntry, validator: Any) -> None:
    """Whether the parts of one entry fit each other, and the field it turns."""
    faults = [*_bounds(entry), *_labels(entry)]
    for key, text in faults:
        draft.error("knob_bounds", (*path, key), text)
    made = _knob(str(path[-1]), entry)
    default = entry.default
    broken = broken_rule(made, default) if default is not None and not faults else None
    refusal = _refusal(validator, made.binds_to, default) if default is not None else None
    if broken is not None:
        draft.error("knob_default", (*path, "default"), f"{broken[1]}, got {default!r}")
    elif refusal is not None:
        draft.error("knob_default", (*path, "default"), f"config_schema refuses it: {refusal}")
    for value in _offered(entry) if not faults else ():
        refusal = _refusal(validator, made.binds_to, value)
        if refusal is not None:
            draft.warn("knob_beyond_schema", path, f"it offers {value!r}, which config_schema refuses: {refusal}")
            return


def _bounds(entry: KnobEntry) -> Iterator[tuple[str, str]]:
    """The problem with the numbers of a range: the key, and why."""
    if entry.type not in ("range", "int_range"):
        return
    if entry.type == "int_range":
        for key in _NUMBERS:
            if isinstance(getattr(entry, key), float):
                yield key, f"must be a whole number, got {getattr(entry, key)}"
    if entry.min is not None and entry.max is not None and entry.min >= entry.max:
        yield "max", f"must be more than min, which is {entry.min}, got {entry.max}"
    if entry.step is not None and entry.step <= 0:
        yield "step", f"must be more than 0, got {entry.step}"


def _labels(entry: KnobEntry) -> Iterator[tuple[str, str]]:
    """The problem with the values and labels of an enum: the key, and why."""
    if entry.type != "enum" or entry.values is None:
        return
    names = [shown(value) for value in entry.values]
    if len(set(names)) < len(names):
        yield "values", "contains a value twice"
    for name in entry.labels or {}:
        if name not in names:
            yield "labels", f"{name!r} is none of the values{suggestion(name, names)}"
    missing = [name for name in names if entry.labels and name not in entry.labels]
    if missing:
        yield "labels", f"lacks {', '.join(missing)}: give labels to all values or to none"


def _offered(entry: KnobEntry) -> list[Any]:
    """Values that the control lets an operator choose: both ends and the first step, or every choice."""
    if entry.type == "enum":
        return entry.values or []
    if entry.type == "boolean":
        return [False, True]
    if entry.min is None or entry.max is None:
        return []
    first_step = [] if entry.step is None or entry.min + entry.step > entry.max else [entry.min + entry.step]
    return [entry.min, *first_step, entry.max]


def _config_validator(draft: Draft) -> Any:
    try:
        return compile_schema(draft.table("config_schema"))
    except ValueError:
        return None


def _refusal(validator: Any, field: str, value: Any) -> str | None:
    """Why `config_schema` refuses `value` for `field`; what it says of other fields does not matter."""
    if validator is None:
        return None
    errors = (error for error in validator.iter_errors({field: value}) if list(error.instance_path)[:1] == [field])
    return next((str(error.message) for error in errors), None)
