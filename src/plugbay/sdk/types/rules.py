"""What may be said about a value beyond its type: `Annotated[int, Field("Days ahead.", ge=1, le=7)]`.

Owns `Field`, the rules of JSON Schema that are enforced here, and their words. Beside ours, whatever has the same
attributes says the same: the markers of `annotated_types` and of `msgspec` do, and a dict is JSON Schema as it is.
"""

from __future__ import annotations

from plugbay.model.values import Value
from plugbay.sdk.types.shapes import Shape, kinds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from plugbay.sdk.types.shapes import Names, Place, Problems


class Field(Value):
    """What is known of a parameter or a field: what it is for, and what its values are like.

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
    """What a marker says about a value of this kind; nothing when it is none of ours to read."""
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
    return bool(abs(ratio - round(ratio)) < 1e-9)  # 0.3 is a multiple of 0.1, whatever binary fractions say


def _matches(value: str, pattern: str) -> bool:
    import re  # whoever has a pattern pays for it, when it is first used

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
"""What is enforced here. Other keywords are published, and it is for hosts to enforce them."""


class Ruled(Shape):
    """A shape of which more is said."""

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

    def schema(self, names: Names) -> dict[str, Any]:
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
