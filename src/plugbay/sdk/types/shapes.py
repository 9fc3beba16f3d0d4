"""Shapes: JSON values as an annotation describes them, checked and converted; and `Field`, the rules beyond the type.

A shape has a JSON Schema (`schema`), checks and converts a value (`read`), and converts it back (`write`). Error texts
name the place and the rule. Rules come from `Annotated[int, Field("Days ahead.", ge=1, le=7)]`; markers with the same
attributes (`annotated_types`, `msgspec`) mean the same, and a dict is JSON Schema as it is.
"""

from __future__ import annotations

from plugbay.model.values import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Place = tuple["Place", str | int] | None
    """The place of a value: its container and its key; None for the whole input."""

MAX_PROBLEMS = 12
"""Reported problems; a list of a million wrong items has a million of them."""

MAX_OPTIONS = 12
"""Of a choice that are listed where something else was given."""

WORDS = {
    "string": "a string",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
"""Types of JSON, and their names in messages."""

_KINDS: dict[type, tuple[str, ...]] = {
    str: ("string",),
    bool: ("boolean",),
    int: ("number", "integer"),
    float: ("number",),
    list: ("array",),
    dict: ("object",),
    type(None): ("null",),
}


class Problems:
    """The problems of a value: every rule that it breaks, each with its place."""

    __slots__ = ("count", "found")

    def __init__(self) -> None:
        self.found: list[tuple[Place, str]] = []
        self.count = 0

    def add(self, at: Place, rule: str) -> None:
        self.count += 1
        if self.count <= MAX_PROBLEMS:
            self.found.append((at, rule))

    def told(self) -> list[dict[str, str]]:
        return [{"path": path(at), "rule": rule} for at, rule in self.found]

    def __str__(self) -> str:
        texts = [f"{problem['path']}: {problem['rule']}" for problem in self.told()]
        return "; ".join([*texts, f"and {self.count - MAX_PROBLEMS} more"] if self.count > MAX_PROBLEMS else texts)


def path(at: Place) -> str:
    """A place as people write it: `items[2].price`."""
    keys: list[str] = []
    while at is not None:
        at, key = at
        keys.append(f"[{key}]" if isinstance(key, int) else f".{key}" if key.isidentifier() else f"[{key!r:.100}]")
    return "".join(reversed(keys)).lstrip(".") or "input"


def kinds(value: Any) -> tuple[str, ...]:
    """The JSON type of a value; a number without a fraction is an integer, however it is written."""
    if type(value) is float and value.is_integer():
        return _KINDS[int]
    return _KINDS.get(type(value), ())


def type_name(value: Any) -> str:
    return WORDS[_KINDS[type(value)][0]] if type(value) in _KINDS else type(value).__name__


class Definitions:
    """The definitions that a schema shares: types that contain themselves."""

    __slots__ = ("open", "shared")

    def __init__(self) -> None:
        self.open: list[Shape] = []
        """The definitions under way, from the outside in."""
        self.shared: dict[str, tuple[Shape, dict[str, Any]]] = {}

    def label(self, shape: Shape, name: str) -> str:
        """The name of a definition, which no other shape has."""
        while name in self.shared and self.shared[name][0] is not shape:
            name += "_"
        self.shared.setdefault(name, (shape, {}))
        return name


def whole_schema(shape: Shape) -> dict[str, Any]:
    """The schema of a shape with the definitions it needs."""
    names = Definitions()
    schema = shape.schema(names)
    shared = {name: definition for name, (_, definition) in names.shared.items()}
    if "$ref" in schema:  # readers look for a type at the top
        schema = shared[schema["$ref"].rpartition("/")[2]]
    return {**schema, "$defs": shared} if shared else schema


class Shape:
    """Any value, and the base of all other shapes. `kind` is the JSON type."""

    __slots__ = ()

    kind = ""

    converts = False
    """Whether a value of the author's type may be something that JSON has no form for."""

    description = ""
    """The description of an annotation."""

    def schema(self, names: Definitions) -> dict[str, Any]:
        return {"type": self.kind} if self.kind else {}

    def fits(self, value: Any) -> bool:
        """Whether a value has the right kind; its contents are not checked."""
        return not self.kind or self.kind in kinds(value)

    def words(self) -> str:
        return WORDS[self.kind] if self.kind else "anything"

    def read(self, value: Any, at: Place, problems: Problems) -> Any:
        """The author's value, or problems."""
        if self.fits(value):
            return self.take(value, at, problems)
        problems.add(at, f"must be {self.words()}, not {type_name(value)}")
        return None

    def take(self, value: Any, at: Place, problems: Problems) -> Any:
        """The same for a value of the right kind."""
        return value

    def write(self, value: Any) -> Any:
        """A value of the author as JSON; a value of another shape stays unchanged."""
        return value


ANYTHING = Shape()


class String(Shape):
    __slots__ = ()
    kind = "string"


class Boolean(Shape):
    __slots__ = ()
    kind = "boolean"


class Null(Shape):
    __slots__ = ()
    kind = "null"


class Integer(Shape):
    """JSON does not tell 3.0 from 3; Python does."""

    __slots__ = ()
    kind = "integer"

    def take(self, value: Any, at: Place, problems: Problems) -> int:
        return int(value)


class Number(Shape):
    """Integers stay integers, as Python allows where a float is wanted."""

    __slots__ = ()
    kind = "number"


class Array(Shape):
    """A list of items of one shape. `make` is its Python type: a list, a tuple or a set."""

    __slots__ = ("converts", "item", "make")
    kind = "array"

    def __init__(self, item: Shape, make: Callable[[list[Any]], Any] = list) -> None:
        self.item = item
        self.make = make
        self.converts = item.converts or self.is_set

    @property
    def is_set(self) -> bool:
        return self.make in (set, frozenset)

    def schema(self, names: Definitions) -> dict[str, Any]:
        item = self.item.schema(names)
        return {"type": "array", **({"items": item} if item else {}), **({"uniqueItems": True} if self.is_set else {})}

    def take(self, value: Any, at: Place, problems: Problems) -> Any:
        read, before = self.item.read, problems.count
        items = [read(item, (at, place), problems) for place, item in enumerate(value)]
        if problems.count > before or not self.is_set:
            return self.make(items)
        return self._distinct(items, at, problems)

    def _distinct(self, items: list[Any], at: Place, problems: Problems) -> Any:
        try:
            found = self.make(items)
        except TypeError as error:  # a list or an object cannot be in a set
            problems.add(at, f"cannot be a set: {error}")
            return None
        if len(found) < len(items):
            problems.add(at, "must not contain an item twice")
        return found

    def write(self, value: Any) -> Any:
        if not self.converts or not isinstance(value, list | tuple | set | frozenset):
            return value
        items = [self.item.write(item) for item in value]
        return _sorted(items) if isinstance(value, set | frozenset) else items


def _sorted(items: list[Any]) -> list[Any]:
    """A set has another order in every process, and its caller should not see that."""
    try:
        return sorted(items)
    except TypeError:
        return items


class Fixed(Shape):
    """A list with a place for each thing: a tuple of known length."""

    __slots__ = ("items",)
    kind = "array"
    converts = True

    def __init__(self, items: Sequence[Shape]) -> None:
        self.items = items

    def schema(self, names: Definitions) -> dict[str, Any]:
        count = len(self.items)
        places = {"prefixItems": [item.schema(names) for item in self.items]} if count else {}
        return {"type": "array", **places, "minItems": count, "maxItems": count}

    def take(self, value: Any, at: Place, problems: Problems) -> Any:
        if len(value) != len(self.items):
            problems.add(at, f"must have {len(self.items)} items, not {len(value)}")
            return None
        return tuple(item.read(value[place], (at, place), problems) for place, item in enumerate(self.items))

    def write(self, value: Any) -> Any:
        if not isinstance(value, tuple | list) or len(value) != len(self.items):
            return value
        return [item.write(part) for item, part in zip(self.items, value, strict=True)]


class Table(Shape):
    """An object whose keys are the caller's: everything in it is alike."""

    __slots__ = ("converts", "item")
    kind = "object"

    def __init__(self, item: Shape) -> None:
        self.item = item
        self.converts = item.converts

    def schema(self, names: Definitions) -> dict[str, Any]:
        item = self.item.schema(names)
        return {"type": "object", **({"additionalProperties": item} if item else {})}

    def take(self, value: Any, at: Place, problems: Problems) -> Any:
        return {key: self.item.read(item, (at, key), problems) for key, item in value.items()}

    def write(self, value: Any) -> Any:
        if not self.converts or not isinstance(value, dict):
            return value
        return {key: self.item.write(item) for key, item in value.items()}


class Choice(Shape):
    """One of a few values, each of which stands for something: itself, or a member of an enum."""

    __slots__ = ("converts", "options")

    def __init__(self, options: Sequence[tuple[Any, Any]], converts: bool = False) -> None:
        self.options = options
        """JSON values, and the Python values for them."""
        self.converts = converts

    def schema(self, names: Definitions) -> dict[str, Any]:
        said = [option for option, _ in self.options]
        types = dict.fromkeys(_KINDS[type(option)][-1] for option in said)
        typed = {"type": next(iter(types))} if len(types) == 1 else {}
        return {**typed, "const": said[0]} if len(said) == 1 else {**typed, "enum": said}

    def fits(self, value: Any) -> bool:
        return any(_same(option, value) for option, _ in self.options)

    def words(self) -> str:
        listed = [_quoted(option) for option, _ in self.options[:MAX_OPTIONS]]
        return " or ".join([*listed, "…"] if len(self.options) > MAX_OPTIONS else listed)

    def read(self, value: Any, at: Place, problems: Problems) -> Any:
        for option, meant in self.options:
            if _same(option, value):
                return meant
        problems.add(at, f"must be {self.words()}, not {_shown(value)}")
        return None

    def write(self, value: Any) -> Any:
        if not self.converts:
            return value
        return next((option for option, meant in self.options if meant is value), value)


def _same(option: Any, value: Any) -> bool:
    """As JSON compares: 1 is 1.0, and neither is true."""
    return bool(option == value) and not set(kinds(option)).isdisjoint(kinds(value))


_JSON_WORDS = {"True": "true", "False": "false", "None": "null"}


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else _JSON_WORDS.get(repr(value), repr(value))


def _shown(value: Any) -> str:
    """A short value, or the type of a long one."""
    return f'"{value}"' if isinstance(value, str) and len(value) <= 40 else type_name(value)


class Either(Shape):
    """One of several shapes: the first that takes the value."""

    __slots__ = ("converts", "shapes")

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self.shapes = shapes
        self.converts = any(shape.converts for shape in shapes)

    def schema(self, names: Definitions) -> dict[str, Any]:
        schemas = [shape.schema(names) for shape in self.shapes]
        if {} in schemas:
            return {}
        if any(schema.keys() != {"type"} for schema in schemas):
            return {"anyOf": schemas}
        types = list(dict.fromkeys(type for schema in schemas for type in _listed(schema["type"])))
        return {"type": types if len(types) > 1 else types[0]}

    def fits(self, value: Any) -> bool:
        return any(shape.fits(value) for shape in self.shapes)

    def words(self) -> str:
        return " or ".join(dict.fromkeys(shape.words() for shape in self.shapes))

    def take(self, value: Any, at: Place, problems: Problems) -> Any:
        attempts: list[Problems] = []
        for shape in (shape for shape in self.shapes if shape.fits(value)):
            attempt = Problems()
            taken = shape.read(value, at, attempt)
            if not attempt.count:
                return taken
            attempts.append(attempt)
        nearest = min(attempts, key=_distance)
        for place, rule in nearest.found:
            problems.add(place, rule)
        return None

    def write(self, value: Any) -> Any:
        for shape in self.shapes if self.converts else ():
            written = shape.write(value)
            if written is not value:
                return written
        return value


def _listed(types: str | list[str]) -> list[str]:
    return [types] if isinstance(types, str) else types


def _distance(problems: Problems) -> tuple[bool, int]:
    """How far a value is from a shape: another tag (`kind: must be "circle"`) is farther than any number of slips."""
    return any(rule.startswith('must be "') for _, rule in problems.found), problems.count


class Field(Value):
    """Description and limits of a parameter or a field.

    `ge`, `gt`, `le`, `lt` and `multiple_of` are about numbers; `min_length` and `max_length` about texts, lists and
    objects; `pattern` about texts.
    """

    __slots__ = (
        "description",
        "examples",
        "ge",
        "gt",
        "le",
        "lt",
        "max_length",
        "min_length",
        "multiple_of",
        "pattern",
    )

    def __init__(
        self,
        description: str = "",
        *,
        ge: float | None = None,
        gt: float | None = None,
        le: float | None = None,
        lt: float | None = None,
        multiple_of: float | None = None,
        min_length: int | None = None,
        max_length: int | None = None,
        pattern: str | None = None,
        examples: Sequence[Any] | None = None,
    ) -> None:
        self.description = description
        self.ge = ge
        self.gt = gt
        self.le = le
        self.lt = lt
        self.multiple_of = multiple_of
        self.min_length = min_length
        self.max_length = max_length
        self.pattern = pattern
        self.examples = examples


NUMBERS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}

LENGTHS = {
    "string": {"min_length": "minLength", "max_length": "maxLength"},
    "array": {"min_length": "minItems", "max_length": "maxItems"},
    "object": {"min_length": "minProperties", "max_length": "maxProperties"},
}

TEXTS = {"description": "description", "documentation": "description", "pattern": "pattern", "title": "title"}
"""Attributes of markers, and the keyword of JSON Schema that each is."""


def keywords(marker: Any, kind: str) -> dict[str, Any]:
    """The keywords of a marker for this kind; none for an unknown marker."""
    if isinstance(marker, str):
        return {"description": marker}
    if isinstance(marker, dict):
        return {key: value for key, value in marker.items() if isinstance(key, str)}
    told = {**NUMBERS, **LENGTHS.get(kind, {})}
    said = {word: _attribute(marker, name, int | float) for name, word in told.items()}
    said |= {word: text for name, word in TEXTS.items() if (text := _attribute(marker, name, str))}
    said["examples"] = _attribute(marker, "examples", list | tuple)
    return {word: value for word, value in said.items() if value is not None}


def _attribute(marker: Any, name: str, kind: Any) -> Any:
    value = getattr(marker, name, None)
    return value if isinstance(value, kind) and not isinstance(value, bool) else None


class Rule:
    """One rule of JSON Schema: which kind of value it is about, when it is kept, and its words."""

    __slots__ = ("keeps", "kind", "words")

    def __init__(self, kind: str, keeps: Callable[[Any, Any], bool], words: str) -> None:
        self.kind = kind
        self.keeps = keeps
        self.words = words


def _is_multiple(value: Any, of: Any) -> bool:
    ratio = value / of
    return bool(abs(ratio - round(ratio)) < 1e-9)  # 0.3 is a multiple of 0.1, despite binary fractions


def _matches(value: str, pattern: str) -> bool:
    import re  # loaded when a pattern is first used

    return re.search(pattern, value) is not None


RULES = {
    "minimum": Rule("number", lambda value, least: value >= least, "must be at least {}"),
    "maximum": Rule("number", lambda value, most: value <= most, "must be at most {}"),
    "exclusiveMinimum": Rule("number", lambda value, bound: value > bound, "must be more than {}"),
    "exclusiveMaximum": Rule("number", lambda value, bound: value < bound, "must be less than {}"),
    "multipleOf": Rule("number", _is_multiple, "must be a multiple of {}"),
    "minLength": Rule("string", lambda value, least: len(value) >= least, "must have at least {} characters"),
    "maxLength": Rule("string", lambda value, most: len(value) <= most, "must have at most {} characters"),
    "pattern": Rule("string", _matches, "must match {}"),
    "minItems": Rule("array", lambda value, least: len(value) >= least, "must have at least {} items"),
    "maxItems": Rule("array", lambda value, most: len(value) <= most, "must have at most {} items"),
    "minProperties": Rule("object", lambda value, least: len(value) >= least, "must have at least {} keys"),
    "maxProperties": Rule("object", lambda value, most: len(value) <= most, "must have at most {} keys"),
}
"""Keywords that are enforced here. Others are published for hosts to enforce."""


class Constrained(Shape):
    """A shape with further keywords."""

    __slots__ = ("converts", "inner", "said")

    def __init__(self, inner: Shape, said: dict[str, Any]) -> None:
        self.inner = inner
        self.said = said
        """Keywords of JSON Schema."""
        self.converts = inner.converts

    @property
    def kind(self) -> str:  # type: ignore[override]
        return self.inner.kind

    @property
    def description(self) -> str:  # type: ignore[override]
        return str(self.said.get("description", ""))

    def schema(self, names: Definitions) -> dict[str, Any]:
        return {**self.inner.schema(names), **self.said}

    def fits(self, value: Any) -> bool:
        return self.inner.fits(value)

    def words(self) -> str:
        return self.inner.words()

    def take(self, value: Any, at: Place, problems: Problems) -> Any:
        before = problems.count
        for word, limit in self.said.items():
            rule = RULES.get(word)
            if rule is not None and rule.kind in kinds(value) and not rule.keeps(value, limit):
                problems.add(at, rule.words.format(limit))
        taken = self.inner.read(value, at, problems)
        return taken if problems.count == before else None

    def write(self, value: Any) -> Any:
        return self.inner.write(value)
