"""The signature of a function: its parameters and its result as shapes, as JSON Schemas, and as call arguments.

`ctx` and `context` are not part of the input, and a single parameter called `input` takes all of it. Annotations are
evaluated when they are first needed, one function at a time: a plugin does not pay for tools that are never called.

Does not import `typing`, which costs 10 ms of start-up: types of other modules are recognised by their attributes. An
annotation that is a string is evaluated in its own module, and a few names of `typing` resolve there even if they were
not imported, so that `if TYPE_CHECKING: from typing import Literal` is enough. An annotation that cannot be read
accepts any value and leaves a note. Dates, times, paths and UUIDs are strings with a format.
"""

from __future__ import annotations

import _collections_abc as abstract
import builtins
import sys

from plugbay.sdk.declarations import VARARGS, VARKEYWORDS, defaults, parameters
from plugbay.sdk.types.records import NOTHING, SPECIAL, Member, Parameters, Record, is_json
from plugbay.sdk.types.shapes import (
    ANYTHING,
    Array,
    Boolean,
    Choice,
    Either,
    Fixed,
    Integer,
    Null,
    Number,
    Problems,
    String,
    Table,
    whole_schema,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from plugbay.sdk.types.shapes import Definitions, Place, Shape


WHOLE = "input"
"""The parameter that takes the whole input, if it is the only one."""


class Signature:
    """One function's."""

    __slots__ = (
        "_annotations",
        "_function",
        "_names",
        "_output",
        "_reader",
        "is_typed",
        "misfits",
        "takes",
        "takes_context",
        "whole",
    )

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._annotations = annotations_of(function)
        self._names: Namespace | None = None
        self._reader = AnnotationReader()
        self._output: Shape | None = None
        self.misfits: list[str] = []
        """Defaults that do not fit their annotations."""
        names, given, rest = parameters(function), defaults(function), _rest(function)
        inputs = {name: given.get(name, NOTHING) for name in names if name not in SPECIAL}
        self.takes_context = "context" in names
        self.whole = list(inputs) == [WHOLE] and not rest
        """Whether the one parameter takes the input as it is."""
        self.is_typed = any(name in self._annotations for name in (*inputs, rest))
        self.takes = self._shape(WHOLE) if self.whole else self._parameters(inputs, rest)
        """The shape of the input."""

    def _parameters(self, inputs: dict[str, Any], rest: str) -> Parameters:
        function = self._function
        takes = Parameters(function.__name__, function.__doc__ or "", self._shape(rest) if rest else None)
        for name, default in inputs.items():
            shape = self._shape(name)
            if default is None and not shape.fits(None):
                shape = Either([shape, Null()])  # `city: str = None` means `str | None`
            self._note_misfit(name, shape, default)
            takes.fields[name] = Member(name, shape, required=default is NOTHING, default=default)
        return takes

    def _shape(self, name: str) -> Shape:
        if name not in self._annotations:
            return ANYTHING
        if self._names is None:
            self._names = namespace_of(self._function)
        before = len(self._reader.notes)
        shape = self._reader.shape(self._annotations[name], self._names)
        self._reader.notes[before:] = [f"{name}: {note}" for note in self._reader.notes[before:]]
        return shape

    def _note_misfit(self, name: str, shape: Shape, default: Any) -> None:
        """A default is not checked when a call leaves it out, so one that is none of its type goes unseen."""
        problems, written = Problems(), NOTHING if default is NOTHING else shape.write(default)
        if not is_json(written):
            return
        try:
            shape.read(_listed(written), (None, name), problems)
        except Exception as error:  # a class of the author's may not take it
            problems.add((None, name), str(error))
        if problems.count:
            self.misfits.append(f"the default of {name} does not fit: {problems}")

    @property
    def notes(self) -> list[str]:
        """Annotations that could not be read, each with its parameter."""
        return list(self._reader.notes)

    # Schemas.

    def input_schema(self) -> dict[str, Any]:
        """The schema of the input; where nothing is annotated, any object."""
        schema = whole_schema(self.takes) if self.is_typed else {}
        return schema or {"type": "object"}

    def output_schema(self) -> dict[str, Any] | None:
        """The schema of the result, if the annotation is an object with known keys."""
        shape = self.output
        says = isinstance(shape, Record) or (isinstance(shape, Table) and shape.item is not ANYTHING)
        return whole_schema(shape) if says else None

    # Calls.

    def read(self, given: Any, problems: Problems) -> dict[str, Any]:
        """The arguments that an input stands for, or problems."""
        value = self.takes.read(given, None, problems)
        return {WHOLE: value} if self.whole else value

    @property
    def output(self) -> Shape:
        """The shape of the result. Unreadable annotations of results leave no note."""
        if self._output is None:
            notes = len(self._reader.notes)
            self._output = self._shape("return")
            del self._reader.notes[notes:]
        return self._output


def _listed(value: Any) -> Any:
    """A value as JSON has it: a tuple becomes a list."""
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value


def _rest(function: Any) -> str:
    """The name of the parameter that takes any keyword; nothing when there is none."""
    code = function.__code__
    place = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & VARARGS)
    return str(code.co_varnames[place]) if code.co_flags & VARKEYWORDS else ""


_PLAIN: dict[Any, Shape] = {
    str: String(),
    int: Integer(),
    float: Number(),
    bool: Boolean(),
    None: Null(),
    type(None): Null(),
    object: ANYTHING,
}

_MAKES: dict[Any, Callable[[list[Any]], Any]] = {
    **dict.fromkeys(
        (list, abstract.Sequence, abstract.MutableSequence, abstract.Iterable, abstract.Collection),
        list,
    ),
    tuple: tuple,
    set: set,
    abstract.Set: set,
    abstract.MutableSet: set,
    frozenset: frozenset,
}
"""The Python type of a list, by its annotation."""

_TABLES = frozenset((dict, abstract.Mapping, abstract.MutableMapping))

_LITERALS = (str, int, bool, type(None))

_WRAPPERS = ("Required", "NotRequired", "ReadOnly", "Final", "ClassVar")
"""Wrappers around the type of a field."""


# Names of `typing` for annotations in modules that do not import it.


class _Form:
    """`Literal`, `Optional` and the like; keeps its arguments in brackets."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getitem__(self, items: Any) -> _Alias:
        items = items if isinstance(items, tuple) else (items,)
        if self._name == "Annotated":
            return _Alias(items[0], items[:1], items[1:])
        return _Alias(self, (*items, None) if self._name == "Optional" else items)


class _Alias:
    """A form with its arguments, as `typing` has it."""

    __slots__ = ("__args__", "__metadata__", "__origin__")

    def __init__(self, origin: Any, args: tuple[Any, ...], metadata: tuple[Any, ...] | None = None) -> None:
        self.__origin__ = origin
        self.__args__ = args
        if metadata is not None:
            self.__metadata__ = metadata

    def __or__(self, other: Any) -> _Alias:
        return _Alias(_STAND_INS["Union"], (self, other))

    def __ror__(self, other: Any) -> _Alias:
        return _Alias(_STAND_INS["Union"], (other, self))


_STAND_INS: dict[str, Any] = {
    "Any": object,
    **{name: _Form(name) for name in ("Annotated", "Literal", "NotRequired", "Optional", "Required", "Union")},
    **{name: getattr(abstract, name) for name in ("Collection", "Iterable", "Mapping", "Sequence")},
}


class Namespace(dict[str, "Any"]):
    """The names that an annotation may use: those around it, and ours for names that were not imported."""

    __slots__ = ("around",)

    def __init__(self, around: dict[str, Any], nearer: Mapping[str, Any] | None = None) -> None:
        super().__init__(nearer or {})
        self.around = around

    def __missing__(self, name: str) -> Any:
        if name in self.around or hasattr(builtins, name):
            raise KeyError(name)  # `eval` goes on there
        return _STAND_INS[name]


def annotations_of(owner: Any) -> dict[str, Any]:
    """The annotations of a function, or those that a class has itself.

    Where Python evaluates them late, from 3.14 on, a name that is there for type checkers alone is an error for all of
    them. They are texts then, for us to evaluate.
    """
    try:
        return dict(owner.__annotations__)
    except Exception:
        return _annotation_texts(owner)


def _annotation_texts(owner: Any) -> dict[str, Any]:
    if sys.version_info >= (3, 14) and getattr(owner, "__annotate__", None) is not None:
        from annotationlib import Format, get_annotations

        return get_annotations(owner, format=Format.STRING)
    return {}


def namespace_of(function: Any) -> Namespace:
    """The namespace of a function's annotations: its module, and variables of enclosing functions."""
    found: dict[str, Any] = {}
    inside: Any
    for inside in (function, getattr(function, "__annotate__", None)):  # from 3.14 on they are a function themselves
        free = inside.__code__.co_freevars if hasattr(inside, "__code__") else ()
        cells = zip(free, getattr(inside, "__closure__", None) or (), strict=False)
        found |= {name: cell.cell_contents for name, cell in cells if _is_filled(cell)}
    return Namespace(function.__globals__, found)


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not NOTHING
    except ValueError:  # the variable has no value yet
        return False


# Reading.


class AnnotationReader:
    """Reads annotations. `notes` lists those that it could not read."""

    __slots__ = ("_records", "notes")

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._records: dict[Any, Record] = {}

    def shape(self, annotation: Any, names: Namespace) -> Shape:
        """The shape of an annotation; any value fits if it cannot be read."""
        plain = _PLAIN.get(annotation) if isinstance(annotation, type | None) else None
        if plain is not None:
            return plain
        try:
            return self._shape(evaluate(annotation, names), names)
        except Exception as error:  # evaluating runs the author's code, and annotations may be anything
            self.notes.append(f"{_describe(annotation)} is ignored here: {error}")
            return ANYTHING

    def _shape(self, annotation: Any, names: Namespace) -> Shape:
        if isinstance(annotation, type | None) and annotation in _PLAIN:
            return _PLAIN[annotation]
        if hasattr(annotation, "__metadata__"):
            return self._annotated(annotation, names)
        meant = _resolve_form(annotation)
        if meant is not annotation:
            return self._shape(evaluate(meant, names), names)
        origin: Any = getattr(annotation, "__origin__", annotation)
        args: tuple[Any, ...] = getattr(annotation, "__args__", ())
        form = "" if isinstance(origin, type) else getattr(origin, "_name", "")
        form = form or type(annotation).__name__
        if form in ("Union", "Optional", "UnionType"):
            return self._either(args, names)
        if form == "Literal":
            return _literal(args)
        if form in _WRAPPERS:
            return self._shape(evaluate(args[0], names), names)
        return self._container(origin, args, names) or self._class(origin, names)

    def _annotated(self, annotation: Any, names: Namespace) -> Shape:
        from plugbay.sdk.types.shapes import Constrained, keywords

        inner = self._shape(evaluate(annotation.__origin__, names), names)
        said: dict[str, Any] = {}
        for marker in annotation.__metadata__:
            said |= keywords(marker, _kind(inner))
        return Constrained(inner, said) if said else inner

    def _either(self, args: tuple[Any, ...], names: Namespace) -> Shape:
        return Either([self._shape(evaluate(arg, names), names) for arg in args])

    def _container(self, origin: Any, args: tuple[Any, ...], names: Namespace) -> Shape | None:
        if not isinstance(origin, type):
            return None
        if origin in _TABLES:
            return self._table(args, names)
        make = _MAKES.get(origin)
        if make is None:
            return None
        if origin is tuple and args and args[-1] is not Ellipsis:
            return Fixed([self._shape(evaluate(arg, names), names) for arg in args])
        return Array(self._shape(evaluate(args[0], names), names) if args else ANYTHING, make)

    def _table(self, args: tuple[Any, ...], names: Namespace) -> Shape:
        if not args:
            return Table(ANYTHING)
        key, item = (evaluate(arg, names) for arg in args)
        if key is not str and self._shape(key, names) is not ANYTHING:
            raise TypeError("the keys of an object are texts")
        return Table(self._shape(item, names))

    def _class(self, own: Any, names: Namespace) -> Shape:
        if not isinstance(own, type):
            raise TypeError("this kind of annotation has no shape")
        if own in self._records:
            return self._records[own]
        if hasattr(own, "__members__"):
            return _enum(own)
        if hasattr(own, "__dataclass_fields__"):
            return self._record(own, own, _dataclass_fields(own), names)
        if hasattr(own, "__total__") and hasattr(own, "__required_keys__"):
            return self._record(own, None, _typed_dict_fields(own), names)
        if issubclass(own, tuple) and hasattr(own, "_fields"):
            return self._record(own, own, _named_tuple_fields(own), names)
        return self._known(own)

    def _known(self, own: type) -> Shape:
        if own.__name__ == "Any" and own.__module__ in ("typing", "typing_extensions"):
            return ANYTHING
        shape = format_shape(own)
        if shape is None:
            raise TypeError(f"{own.__qualname__} is a type without a JSON form; a dataclass has one")
        return shape

    def _record(self, cls: type, own: type | None, fields: list[_Raw], around: Namespace) -> Record:
        made: Callable[..., Any] = cls if own is not None else dict
        record = self._records[cls] = Record(cls.__name__, made, own, _doc(cls))
        for raw in fields:
            before, names = len(self.notes), _names_in(raw.home, around)
            shape = self.shape(raw.annotation, names)
            required = _required(raw, names) if len(self.notes) == before else raw.required
            record.fields[raw.name] = Member(
                raw.name, shape, required=required, default=raw.default, description=raw.description
            )
        return record


def evaluate(annotation: Any, names: Namespace) -> Any:
    """The value of an annotation that is a text; others are returned unchanged."""
    text = getattr(annotation, "__forward_arg__", annotation)
    return eval(text, names.around, names) if isinstance(text, str) else annotation


def _resolve_form(annotation: Any) -> Any:
    """The type behind a new name: `NewType`, `type X = …`, a type variable."""
    kind = type(annotation).__name__
    if kind == "TypeVar":
        return annotation.__bound__ or object
    if kind == "TypeAliasType":
        return annotation.__value__
    return getattr(annotation, "__supertype__", annotation)


def _kind(shape: Shape) -> str:
    """The JSON type of a shape; of a nullable one, that of the other part."""
    if isinstance(shape, Either):
        return next((inner.kind for inner in shape.shapes if not isinstance(inner, Null)), "")
    return shape.kind


def _literal(values: tuple[Any, ...]) -> Shape:
    if any(type(value) not in _LITERALS for value in values):
        raise TypeError("a literal is a text, a whole number, true, false or null")
    return Choice([(value, value) for value in values])


def _enum(own: Any) -> Shape:
    """The values of an enum where JSON has them, else its names."""
    members = [(name, member) for name, member in own.__members__.items() if member.name == name]
    plain = all(type(member.value) in (*_LITERALS, float) for _, member in members)
    return Choice([(member.value if plain else name, member) for name, member in members], converts=True)


def _describe(annotation: Any) -> str:
    text = getattr(annotation, "__forward_arg__", annotation)
    return repr(text) if isinstance(text, str) else str(getattr(text, "__qualname__", text))


# The fields of classes.


class _Raw:
    """A field as its class declares it."""

    __slots__ = ("annotation", "default", "description", "home", "name", "required")

    def __init__(
        self, home: type, name: str, annotation: Any, *, required: bool, default: Any = NOTHING, description: str = ""
    ) -> None:
        self.home = home
        """The class that declares it, and not one of its heirs."""
        self.name = name
        self.annotation = annotation
        self.required = required
        self.default = default
        self.description = description


def _dataclass_fields(own: Any) -> list[_Raw]:
    module = sys.modules["dataclasses"]
    missing, found = module.MISSING, []
    for field in module.fields(own):
        if not field.init:
            continue
        required = field.default is missing and field.default_factory is missing
        default = NOTHING if field.default is missing else field.default
        text = str(field.metadata.get("description", ""))
        home = _home(own, field.name)
        said = annotations_of(home).get(field.name, field.type)
        found.append(_Raw(home, field.name, said, required=required, default=default, description=text))
    return found


def _typed_dict_fields(own: Any) -> list[_Raw]:
    required = own.__required_keys__
    return [_Raw(own, name, said, required=name in required) for name, said in annotations_of(own).items()]


def _named_tuple_fields(own: Any) -> list[_Raw]:
    said, defaults = annotations_of(own), own._field_defaults
    return [
        _Raw(own, name, said.get(name, object), required=name not in defaults, default=defaults.get(name, NOTHING))
        for name in own._fields
    ]


def _required(raw: _Raw, names: Namespace) -> bool:
    """`NotRequired` in a text is known only after its evaluation."""
    form = getattr(getattr(evaluate(raw.annotation, names), "__origin__", None), "_name", "")
    return form == "Required" if form in ("Required", "NotRequired") else raw.required


def _home(own: type, name: str) -> type:
    return next((cls for cls in own.__mro__ if name in annotations_of(cls)), own)


def _names_in(own: type, around: Namespace) -> Namespace:
    """Where the annotations of a class stand. A script that is looked at may be gone from the list of modules."""
    module = sys.modules.get(own.__module__)
    is_here = module is None or around.around.get("__name__") == own.__module__
    return Namespace(around.around if is_here else vars(module), {**around, own.__name__: own})


def _doc(own: type) -> str:
    """The docstring of a class; the generated one of a dataclass does not count."""
    doc = own.__dict__.get("__doc__") or ""
    return "" if doc.startswith(f"{own.__name__}(") else doc


class Formatted(String):
    """A text with a form of its own, which becomes an object of `own`."""

    __slots__ = ("example", "format", "made", "own", "said")
    converts = True

    def __init__(
        self, own: type, format: str, example: str, made: Callable[[str], Any], said: Callable[[Any], str]
    ) -> None:
        self.own = own
        self.format = format
        self.example = example
        self.made = made
        self.said = said

    def schema(self, names: Definitions) -> dict[str, Any]:
        return {"type": "string", "format": self.format}

    def take(self, value: Any, at: Place, problems: Problems) -> Any:
        try:
            return self.made(value)
        except (ValueError, TypeError):
            problems.add(at, f"must be a {self.format} such as {self.example}, not {value!r:.60}")
            return None

    def write(self, value: Any) -> Any:
        return self.said(value) if isinstance(value, self.own) else value


def format_shape(own: type) -> Formatted | None:
    """The shape of a class of the standard library; None for all others."""
    known = _KNOWN.get((own.__module__.partition(".")[0], own.__name__))
    return None if known is None else known(own)


def _iso(format: str, example: str) -> Callable[[Any], Formatted]:
    return lambda own: Formatted(own, format, example, own.fromisoformat, lambda value: str(value.isoformat()))


def _uuid(own: Any) -> Formatted:
    return Formatted(own, "uuid", "f81d4fae-7dec-41d0-a765-00a0c91e6bf6", own, str)


def _path(own: Any) -> Formatted:
    return Formatted(own, "path", "notes/tea.md", own, str)


_KNOWN: dict[tuple[str, str], Callable[[Any], Formatted]] = {
    ("datetime", "datetime"): _iso("date-time", "2026-05-17T16:00:00Z"),
    ("datetime", "date"): _iso("date", "2026-05-17"),
    ("datetime", "time"): _iso("time", "16:00:00"),
    ("uuid", "UUID"): _uuid,
    **{("pathlib", name): _path for name in ("Path", "PosixPath", "PurePath", "PurePosixPath")},
}
