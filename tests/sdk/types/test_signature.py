"""What a function takes and gives back."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import enum
import pathlib
import subprocess
import sys
import typing
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    Required,
    TypedDict,
    Union,
)

import pytest

import plugbay
from plugbay.sdk import Field
from plugbay.sdk.types.shapes import ANYTHING, Definitions, Problems, Shape, whole_schema
from plugbay.sdk.types.signature import (
    AnnotationReader,
    Namespace,
    Signature,
    annotations_of,
    format_shape,
    namespace_of,
)
from tests.support.patience import PATIENCE


@dataclasses.dataclass
class Place:
    """Somewhere."""

    city: str


@dataclasses.dataclass
class Strict:
    city: str

    def __post_init__(self) -> None:
        raise RuntimeError("never")


UNSET: Any = object()


def forecast(
    place: Place,
    days: Annotated[int, Field(ge=1)] = 1,
    *,
    units: str = None,  # type: ignore[assignment]  # noqa: RUF013  # what people write all the same
    note: Any = None,
    ctx: Any = None,
    context: Any = None,
) -> Place:
    """Look out.

    Args:
        place: Where.
        days: How many.
        note: Anything.
    """
    return place


def read(function: Callable[..., Any], given: Any) -> Any:
    problems = Problems()
    arguments = Signature(function).read(given, problems)
    return str(problems) if problems.count else arguments


def test_its_parameters_are_the_schema_and_defaults_and_docstrings_are_in_it() -> None:
    signature = Signature(forecast)
    assert signature.input_schema() == {
        "type": "object",
        "properties": {
            "place": {
                "type": "object",
                "description": "Where.",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
                "additionalProperties": False,
            },
            "days": {"type": "integer", "minimum": 1, "description": "How many.", "default": 1},
            "units": {"type": ["string", "null"], "default": None},
            "note": {"description": "Anything.", "default": None},
        },
        "required": ["place"],
        "additionalProperties": False,
    }
    assert (signature.takes_context, signature.whole, signature.notes) == (True, False, [])


def test_an_input_becomes_arguments() -> None:
    assert read(forecast, {"place": {"city": "Lima"}, "units": None}) == {"place": Place("Lima"), "units": None}
    assert read(forecast, {"days": 0}) == "days: must be at least 1; place: is required"


def test_a_function_that_says_nothing_takes_any_object() -> None:
    for function in (lambda: 1, lambda a, b=1, **more: 1, lambda ctx: 1, lambda input: 1):
        assert Signature(function).input_schema() == {"type": "object"}
        assert Signature(function).output_schema() is None


def test_a_parameter_called_input_takes_all_of_it() -> None:
    def all_of_it(input: list[Place], ctx: Any) -> None: ...
    def anything(input: Any) -> None: ...
    def not_alone(input: int, more: int = 0) -> None: ...

    assert read(all_of_it, [{"city": "Lima"}]) == {"input": [Place("Lima")]}
    assert read(all_of_it, {}) == "input: must be a list, not an object"
    assert Signature(all_of_it).input_schema()["type"] == "array"
    assert (read(anything, 7), Signature(anything).input_schema()) == ({"input": 7}, {"type": "object"})
    assert read(not_alone, {"input": 1}) == {"input": 1}


def test_a_parameter_called_input_beside_any_keywords_is_one_of_them() -> None:
    def tool(input: int, **more: int) -> None: ...

    assert read(tool, {"input": 1, "other": 2}) == {"input": 1, "other": 2}


def test_other_keywords_are_what_they_are_annotated_as() -> None:
    def keywords(*, first: int = 0, **more: float) -> None: ...

    assert read(keywords, {"a": 1}) == {"a": 1.0}
    assert read(keywords, {"a": "b"}) == "a: must be a number, not a string"
    assert Signature(keywords).input_schema()["additionalProperties"] == {"type": "number"}


@pytest.mark.parametrize(
    ("annotation", "promises"),
    [
        (Place, True),
        ("Place", True),
        ("dict[str, int]", True),
        ("dict[str, Any]", False),
        ("dict", False),
        ("list[Place]", False),
        ("Place | None", False),
        ("Iterator[str]", False),
        ("Nowhere", False),
    ],
)
def test_an_output_schema_is_promised_where_the_result_is_an_object(annotation: Any, promises: bool) -> None:
    def tool() -> None: ...

    tool.__annotations__["return"] = annotation
    signature = Signature(tool)
    assert (signature.output_schema() is not None) == promises
    assert signature.notes == []  # what is returned is nobody else's business
    assert signature.output.write(7) == 7


def test_what_cannot_be_understood_is_noted_with_its_parameter() -> None:
    def tool(a: Nowhere, b: int) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    signature = Signature(tool)
    assert signature.notes == ["a: 'Nowhere' is ignored here: name 'Nowhere' is not defined"]
    assert signature.input_schema()["properties"] == {"a": {}, "b": {"type": "integer"}}
    assert read(tool, {"a": object, "b": 1}) == {"a": object, "b": 1}


def test_a_default_that_does_not_fit_is_noted() -> None:
    def tool(
        city: Literal["Lima", "Oslo"] = "Rome",  # type: ignore[assignment]
        days: Annotated[int, Field(ge=1)] = 0,
        tags: list[str] = [1],  # type: ignore[list-item]  # noqa: B006
        place: Place = {"city": 7},  # type: ignore[assignment]  # noqa: B006
        strict: Strict = {"city": "x"},  # type: ignore[assignment]  # noqa: B006
    ) -> None: ...

    assert Signature(tool).misfits == [
        'the default of city does not fit: city: must be "Lima" or "Oslo", not "Rome"',
        "the default of days does not fit: days: must be at least 1",
        "the default of tags does not fit: tags[0]: must be a string, not a number",
        "the default of place does not fit: place.city: must be a string, not a number",
        "the default of strict does not fit: strict: never",
    ]


def test_a_default_that_fits_or_is_no_json_is_not_noted() -> None:
    def tool(
        city: Literal["Lima", "Oslo"] = "Oslo",
        place: Place = Place("Lima"),  # noqa: B008
        tags: tuple[str, ...] = ("a",),
        pairs: dict[str, tuple[int, int]] = {"a": (1, 2)},  # noqa: B006
        units: str = None,  # type: ignore[assignment]  # noqa: RUF013
        unset: int = UNSET,
    ) -> None: ...

    assert Signature(tool).misfits == []


def test_annotations_that_cannot_be_had_are_none() -> None:
    class Late:
        __name__, __doc__, __defaults__, __kwdefaults__, __closure__ = "late", None, None, None, None
        __code__ = (lambda a: a).__code__

        @property
        def __annotations__(self) -> Any:  # type: ignore[override]
            raise NameError("Nowhere")

    signature = Signature(Late())  # type: ignore[arg-type]
    assert signature.input_schema() == {"type": "object"}


TEXT, WHOLE, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"
    CRIMSON = "red"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Odd(enum.Enum):
    ONE = object()
    TWO = (1, 2)


@dataclasses.dataclass
class Base:
    id: int


@dataclasses.dataclass
class Item(Base):
    """One thing."""

    name: str
    price: Annotated[float, "in euros", Field(ge=0)] = 1.0
    tags: list[str] = dataclasses.field(default_factory=list)
    hidden: int = dataclasses.field(init=False, default=3)
    weight: float = dataclasses.field(default=0.0, metadata={"description": "in kg"})
    kinds: ClassVar[int] = 7


@dataclasses.dataclass
class Tree:
    value: int
    leaves: list[Tree] = dataclasses.field(default_factory=list)


class Options(TypedDict, total=False):
    a: Required[int]
    b: str


class More(Options):
    c: NotRequired[int]
    d: int


class Point(NamedTuple):
    x: int
    y: int = 0


UserId = NewType("UserId", int)

T = typing.TypeVar("T")

N = typing.TypeVar("N", bound=int)


def shape(annotation: Any) -> Shape:
    reader = AnnotationReader()
    found = reader.shape(annotation, Namespace(globals()))
    assert reader.notes == []
    return found


def either(*schemas: Any) -> dict[str, Any]:
    return {"anyOf": list(schemas)}


ROWS: list[tuple[Any, Any]] = [
    (Any, {}),
    (object, {}),
    (None, {"type": "null"}),
    (list, {"type": "array"}),
    (list[int], {"type": "array", "items": WHOLE}),
    (typing.List, {"type": "array"}),  # noqa: UP006
    (typing.List[int], {"type": "array", "items": WHOLE}),  # noqa: UP006
    (collections.abc.Sequence[str], {"type": "array", "items": TEXT}),
    (typing.Iterable[str], {"type": "array", "items": TEXT}),
    (tuple, {"type": "array"}),
    (tuple[int, ...], {"type": "array", "items": WHOLE}),
    (tuple[int, str], {"type": "array", "prefixItems": [WHOLE, TEXT], "minItems": 2, "maxItems": 2}),
    (set[int], {"type": "array", "items": WHOLE, "uniqueItems": True}),
    (frozenset[int], {"type": "array", "items": WHOLE, "uniqueItems": True}),
    (dict, {"type": "object"}),
    (dict[str, Any], {"type": "object"}),
    (dict[str, int], {"type": "object", "additionalProperties": WHOLE}),
    (collections.abc.Mapping[str, int], {"type": "object", "additionalProperties": WHOLE}),
    (typing.Dict[Any, int], {"type": "object", "additionalProperties": WHOLE}),  # noqa: UP006
    (int | None, {"type": ["integer", "null"]}),
    (Optional[int], {"type": ["integer", "null"]}),  # noqa: UP045
    (Union[int, list[str]], either(WHOLE, {"type": "array", "items": TEXT})),  # noqa: UP007
    (int | Any, {}),
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
    (Literal["a"], {"type": "string", "const": "a"}),
    (Literal["a", 1], {"enum": ["a", 1]}),
    (Colour, {"type": "string", "enum": ["red", "green"]}),
    (Level, {"type": "integer", "enum": [1, 2]}),
    (Odd, {"type": "string", "enum": ["ONE", "TWO"]}),
    (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
    (Annotated[int | None, Field(ge=1)], {"type": ["integer", "null"], "minimum": 1}),
    (Annotated[str | None, Field(min_length=1)], {"type": ["string", "null"], "minLength": 1}),
    (Annotated[list[str], {"maxItems": 3}], {"type": "array", "items": TEXT, "maxItems": 3}),
    (Annotated[int, object()], WHOLE),
    (UserId, WHOLE),
    (T, {}),
    (N, WHOLE),
    (datetime.date, {"type": "string", "format": "date"}),
    (Path, {"type": "string", "format": "path"}),
    ("int", WHOLE),
    ("list['int']", {"type": "array", "items": WHOLE}),
    (list["int"], {"type": "array", "items": WHOLE}),
    (Optional["int"], {"type": ["integer", "null"]}),
]


@pytest.mark.parametrize("row", range(len(ROWS)))
def test_an_annotation_has_its_schema(row: int) -> None:
    annotation, schema = ROWS[row]
    assert whole_schema(shape(annotation)) == schema


def test_a_dataclass_is_an_object_with_its_fields_and_those_it_inherits() -> None:
    schema = whole_schema(shape(Item))
    assert (schema["description"], schema["required"]) == ("One thing.", ["id", "name"])
    assert schema["properties"] == {
        "id": WHOLE,
        "name": TEXT,
        "price": {"type": "number", "minimum": 0, "description": "in euros", "default": 1.0},
        "tags": {"type": "array", "items": TEXT},
        "weight": {"type": "number", "description": "in kg", "default": 0.0},
    }
    made = shape(Item).read({"id": 1, "name": "tea", "price": 3}, None, Problems())
    assert made == Item(1, "tea", 3.0)
    assert shape(Item).write(made) == {"id": 1, "name": "tea", "price": 3.0, "tags": [], "weight": 0.0}


def test_a_dataclass_without_a_docstring_has_no_description() -> None:
    assert "description" not in whole_schema(shape(Base))


def test_a_class_may_contain_itself() -> None:
    tree = {"value": 1, "leaves": [{"value": 2}]}
    assert shape(Tree).read(tree, None, Problems()) == Tree(1, [Tree(2)])
    assert shape(Tree).write(Tree(1, [Tree(2)])) == {"value": 1, "leaves": [{"value": 2, "leaves": []}]}


def test_a_typed_dict_stays_a_dict_and_knows_what_is_required() -> None:
    assert whole_schema(shape(Options))["required"] == ["a"]
    assert whole_schema(shape(More))["required"] == ["a", "d"]
    assert shape(More).read({"a": 1.0, "d": 2}, None, Problems()) == {"a": 1, "d": 2}


def test_a_named_tuple_is_an_object() -> None:
    assert shape(Point).read({"x": 1}, None, Problems()) == Point(1)
    assert shape(Point).write(Point(1)) == {"x": 1, "y": 0}


def test_an_enum_is_made_of_its_value_and_written_as_it() -> None:
    assert shape(Colour).read("red", None, Problems()) is Colour.RED
    assert shape(Colour).write(Colour.GREEN) == "green"
    assert shape(Odd).read("TWO", None, Problems()) is Odd.TWO


@pytest.mark.parametrize(
    ("annotation", "why"),
    [
        ("Nowhere", "'Nowhere' is ignored here: name 'Nowhere' is not defined"),
        ("1 +", "'1 +' is ignored here: invalid syntax"),
        (
            AnnotationReader,
            "AnnotationReader is ignored here: AnnotationReader is a type without a JSON form; a dataclass has one",
        ),
        (dict[int, str], "dict is ignored here: the keys of an object are texts"),
        (Literal[b"x"], "Literal is ignored here: a literal is a text"),
        (3, "3 is ignored here: this kind of annotation has no shape"),
        (list["Nowhere"], "list is ignored here: name 'Nowhere' is not defined"),  # type: ignore[name-defined]  # noqa: F821
    ],
)
def test_what_cannot_be_understood_fits_anything_and_is_noted(annotation: Any, why: str) -> None:
    reader = AnnotationReader()
    assert reader.shape(annotation, Namespace(globals())) is ANYTHING
    assert len(reader.notes) == 1
    assert reader.notes[0].startswith(why)


def test_a_field_that_cannot_be_understood_spoils_nothing_else() -> None:
    made = dataclasses.make_dataclass("Made", [("a", "Nowhere"), ("b", int)])
    reader = AnnotationReader()
    schema = whole_schema(reader.shape(made, Namespace(globals())))
    assert (schema["properties"], schema["required"]) == ({"a": {}, "b": WHOLE}, ["a", "b"])
    assert len(reader.notes) == 1


def test_a_text_may_use_what_its_function_uses_of_the_one_around_it() -> None:
    @dataclasses.dataclass
    class Local:
        a: int

    def tool(x: Local) -> Any:
        return Local

    assert whole_schema(AnnotationReader().shape("Local", namespace_of(tool)))["properties"] == {"a": WHOLE}


def test_a_name_that_is_bound_later_is_none_yet() -> None:
    def outer() -> Any:
        def tool(x: Any) -> Any:
            return later

        names = namespace_of(tool)
        later = 1
        return names, later

    assert "later" not in outer()[0]


def test_a_text_may_use_what_its_annotations_alone_use() -> None:
    """From 3.14 on, annotations are a function of their own; here it is made by hand."""

    class Local(typing.NamedTuple):
        a: int

    def tool(x: Any) -> Any: ...

    tool.__annotate__ = lambda format: {"x": Local}  # type: ignore[attr-defined]
    assert whole_schema(AnnotationReader().shape("Local", namespace_of(tool)))["properties"] == {"a": WHOLE}
    tool.__annotate__ = max  # type: ignore[attr-defined]
    assert namespace_of(tool) == {}


def test_a_class_has_the_annotations_that_it_says_itself() -> None:
    class Heir(Parent):
        pass

    assert annotations_of(Parent) == {"a": "int"}
    assert (annotations_of(Heir), annotations_of(object)) == ({}, {})


@dataclasses.dataclass
class Parent:
    a: int


BARE = """
import sys
sys.path.insert(0, sys.argv[1])
from plugbay.sdk.types.signature import Namespace, AnnotationReader
from plugbay.sdk.types.shapes import whole_schema
reader = AnnotationReader()
for text in sys.argv[2:]:
    print(whole_schema(reader.shape(text, Namespace(globals()))))
print(reader.notes, {"typing", "dataclasses", "inspect", "re", "enum", "collections"} & set(sys.modules))
"""


def test_names_of_typing_work_without_an_import() -> None:
    texts = {
        "Any": {},
        "Literal['a', 'b'] | None": either({"type": "string", "enum": ["a", "b"]}, {"type": "null"}),
        "None | Literal['a']": either({"type": "null"}, {"type": "string", "const": "a"}),
        "Optional[Union[int, str]]": {"type": ["integer", "string", "null"]},
        "Annotated[int, 'how many', {'minimum': 1}]": {"type": "integer", "description": "how many", "minimum": 1},
        "list[Mapping[str, Sequence[Any]]]": {
            "type": "array",
            "items": {"type": "object", "additionalProperties": {"type": "array"}},
        },
    }
    command = [sys.executable, "-I", "-S", "-c", BARE, str(Path(plugbay.__file__).parents[1]), *texts]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.stdout.splitlines() == [*map(str, texts.values()), "[] set()"], done.stderr


FORMAT_ROWS: list[tuple[type, str, str, Any]] = [
    (
        datetime.datetime,
        "date-time",
        "2026-05-17T16:00:00+00:00",
        datetime.datetime(2026, 5, 17, 16, tzinfo=datetime.UTC),
    ),
    (datetime.date, "date", "2026-05-17", datetime.date(2026, 5, 17)),
    (datetime.time, "time", "16:00:00", datetime.time(16)),
    (uuid.UUID, "uuid", "f81d4fae-7dec-41d0-a765-00a0c91e6bf6", uuid.UUID("f81d4fae-7dec-41d0-a765-00a0c91e6bf6")),
    (pathlib.Path, "path", "notes/tea.md", pathlib.Path("notes/tea.md")),
    (pathlib.PurePath, "path", "a", pathlib.PurePath("a")),
]


@pytest.mark.parametrize(("own", "format", "text", "value"), FORMAT_ROWS)
def test_a_text_becomes_what_it_stands_for_and_back(own: type, format: str, text: str, value: Any) -> None:
    shape = format_shape(own)
    assert shape is not None
    problems = Problems()
    assert (shape.read(text, None, problems), problems.count) == (value, 0)
    assert shape.write(value) == text
    assert shape.write("as it is") == "as it is"
    assert shape.schema(Definitions()) == {"type": "string", "format": format}
    assert shape.made(shape.example) is not None


@pytest.mark.parametrize(("own", "format", "text", "value"), FORMAT_ROWS[:4])
def test_another_text_is_refused_with_an_example(own: type, format: str, text: str, value: Any) -> None:
    shape, problems = format_shape(own), Problems()
    assert shape is not None
    assert shape.read("someday", ((None, "items"), 2), problems) is None
    assert str(problems) == f"items[2]: must be a {format} such as {shape.example}, not 'someday'"


def test_a_class_of_the_same_name_has_no_format() -> None:
    class Path: ...

    assert format_shape(Path) is None
    assert format_shape(int) is None
