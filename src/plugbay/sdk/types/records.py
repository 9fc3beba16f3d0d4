"""`Record`: an object with known keys, like a dataclass or the parameters of a function; and docstrings of fields.

Decides which keys are required and allowed, describes each in the schema, and builds the author's object. Descriptions
come from the docstring in Google, NumPy or Sphinx style.
"""

from __future__ import annotations

from plugbay.sdk.types.shapes import Shape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from plugbay.sdk.types.shapes import Definitions, Place, Problems

NOTHING = object()
"""Stands for a missing default."""

SPECIAL = ("context", "ctx")
"""Parameters that no caller gives."""


class Member:
    """One key of an object."""

    __slots__ = ("default", "description", "name", "required", "shape")

    def __init__(
        self, name: str, shape: Shape, *, required: bool = True, default: Any = NOTHING, description: str = ""
    ) -> None:
        self.name = name
        self.shape = shape
        self.required = required
        self.default = default
        self.description = description

    def schema(self, names: Definitions, doc: str) -> dict[str, Any]:
        schema, text = self.shape.schema(names), self.shape.description or self.description or doc
        if text:
            schema = {**schema, "description": text}
        default = NOTHING if self.default is NOTHING else self.shape.write(self.default)
        return {**schema, "default": default} if is_json(default) else schema


def is_json(value: Any) -> bool:
    """Whether a default can be published; one that is made for each call, or is not JSON, is left out."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_json(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(is_json, value))
    if type(value) is float:
        return bool(value - value == 0.0)  # neither infinite nor NaN
    return value is None or type(value) in (str, int, bool)


class Record(Shape):
    """An object with these fields and no others. Fields are filled in later, as a type may contain itself."""

    __slots__ = ("doc", "fields", "make", "name", "own")
    kind = "object"
    converts = True
    is_described = True
    """Whether the schema has the first sentence of the docstring."""

    def __init__(self, name: str, make: Callable[..., Any] = dict, own: type | None = None, doc: str = "") -> None:
        self.name = name
        self.fields: dict[str, Member] = {}
        self.make = make
        """Makes the author's object of keywords."""
        self.own = own
        """The class of the objects; None for plain ones."""
        self.doc = doc

    # As a schema.

    def schema(self, names: Definitions) -> dict[str, Any]:
        if self in names.open:
            return {"$ref": f"#/$defs/{names.label(self, self.name)}"}
        names.open.append(self)
        body = self.body(names)
        names.open.pop()
        label = next((label for label, (shape, _) in names.shared.items() if shape is self), None)
        if label is None:
            return body
        names.shared[label] = (self, body)
        return {"$ref": f"#/$defs/{label}"}

    def body(self, names: Definitions) -> dict[str, Any]:
        doc = parse(self.doc)
        properties = {name: field.schema(names, doc.fields.get(name, "")) for name, field in self.fields.items()}
        required = [name for name, field in self.fields.items() if field.required]
        return {
            "type": "object",
            **({"description": doc.summary} if doc.summary and self.is_described else {}),
            "properties": properties,
            **({"required": required} if required else {}),
            "additionalProperties": self.others(names),
        }

    def others(self, names: Definitions) -> Any:
        """The schema of keys that are not among the fields."""
        return False

    # As a value.

    def take(self, value: Any, at: Place, problems: Problems) -> Any:
        before = problems.count
        given = {
            name: field.shape.read(value[name], (at, name), problems)
            for name, field in self.fields.items()
            if name in value
        }
        for name, field in self.fields.items():
            if field.required and name not in value:
                problems.add((at, name), "is required")
        for name in value:
            if name not in self.fields:
                self.take_other(given, name, value[name], at, problems)
        return self.made(given, at, problems) if problems.count == before else None

    def take_other(self, given: dict[str, Any], name: str, value: Any, at: Place, problems: Problems) -> None:
        problems.add((at, name), f"is unknown; there is {', '.join(self.fields) or 'nothing to say'}")

    def made(self, given: dict[str, Any], at: Place, problems: Problems) -> Any:
        """The author's class may have rules of its own, and refuses with a ValueError."""
        try:
            return self.make(**given)
        except ValueError as error:
            problems.add(at, str(error) or "cannot be used")
            return None

    def write(self, value: Any) -> Any:
        if self.own is not None and isinstance(value, self.own):
            return {name: field.shape.write(getattr(value, name)) for name, field in self.fields.items()}
        if isinstance(value, dict):
            known = self.fields
            return {name: known[name].shape.write(item) if name in known else item for name, item in value.items()}
        return value


class Parameters(Record):
    """The arguments of a function: its parameters, and other keys if it takes keywords."""

    __slots__ = ("rest",)
    is_described = False

    def __init__(self, name: str, doc: str, rest: Shape | None) -> None:
        super().__init__(name, doc=doc)
        self.rest = rest

    def others(self, names: Definitions) -> Any:
        return False if self.rest is None else self.rest.schema(names) or True

    def take_other(self, given: dict[str, Any], name: str, value: Any, at: Place, problems: Problems) -> None:
        if self.rest is None or name in SPECIAL:
            super().take_other(given, name, value, at, problems)
        else:
            given[name] = self.rest.read(value, (at, name), problems)

    def made(self, given: Mapping[str, Any], at: Place, problems: Problems) -> Any:
        return given


SECTIONS = frozenset(("args", "arguments", "parameters", "params", "attributes", "keyword args", "keyword arguments"))
"""Headings of sections about parameters and attributes."""

FIELD_WORDS = ("param", "parameter", "arg", "argument", "key", "keyword", "ivar", "cvar", "var")
"""How a field of reStructuredText begins."""

TAB = 8


class Doc:
    """The result."""

    __slots__ = ("fields", "summary")

    def __init__(self, summary: str, fields: dict[str, str]) -> None:
        self.summary = summary
        self.fields = fields


def parse(text: str | None) -> Doc:
    """Never fails: docstrings in another style have no parameters."""
    lines = [line.expandtabs(TAB).rstrip() for line in (text or "").strip().splitlines()]
    return Doc(summary(text), {**_indented(lines), **_fields(lines)})


def summary(text: str | None) -> str:
    """The first paragraph, on one line."""
    words: list[str] = []
    for line in (text or "").strip().splitlines():
        if not line.strip():
            break
        words += line.split()
    return " ".join(words)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


# Sections, as Google and NumPy have them.


def _indented(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for place, line in enumerate(lines):
        underlined = place + 1 < len(lines) and bool(lines[place + 1]) and not lines[place + 1].strip(" -")
        if line.strip().rstrip(":").lower() in SECTIONS and (underlined or line.endswith(":")):
            rest = lines[place + 2 :] if underlined else lines[place + 1 :]
            found |= _entries(rest, 0 if not underlined else -1, _indent(line))
    return found


def _entries(lines: list[str], deeper: int, margin: int) -> dict[str, str]:
    """Names at one depth, and the text below or beside each; up to the next heading."""
    found: dict[str, str] = {}
    depth: int | None = None
    name = ""
    for line in _block(lines, margin + deeper):
        if depth is None:
            depth = _indent(line)
        if _indent(line) <= depth:
            name, said = _entry(line.strip())
            found[name] = said
        elif name:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return {name: said for name, said in found.items() if name and said}


def _block(lines: list[str], margin: int) -> Iterator[str]:
    """The lines that are deeper than the margin; a heading that is underlined ends them, too."""
    for place, line in enumerate(lines):
        if not line:
            continue
        after = lines[place + 1] if place + 1 < len(lines) else ""
        if _indent(line) <= margin or (after and not after.strip(" -")):
            return
        yield line


def _entry(line: str) -> tuple[str, str]:
    """`name: text`, `name (type): text` or `name : type`, after which the text is below."""
    head, colon, said = line.partition(":")
    if head.endswith(" "):
        said = ""
    name = head.split("(")[0].strip().lstrip("*")
    return (name, said.strip()) if name.isidentifier() and (colon or "(" not in head) else ("", "")


# Fields, as Sphinx has them.


def _fields(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    name = ""
    for line in lines:
        if line.lstrip().startswith(":"):
            head, _, said = line.strip()[1:].partition(":")
            words = head.split()
            name = words[-1].lstrip("*") if len(words) > 1 and words[0] in FIELD_WORDS else ""
            found |= {name: said.strip()} if name else {}
        elif name and line:
            found[name] = f"{found[name]} {line.strip()}".strip()
        else:
            name = ""
    return {name: said for name, said in found.items() if said}
