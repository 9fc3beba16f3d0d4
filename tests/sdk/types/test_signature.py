"""What a function takes and gives back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest

from plugbay.sdk import Field
from plugbay.sdk.types.shapes import Problems
from plugbay.sdk.types.signature import Signature


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
    assert signature.notes == ["a: 'Nowhere' says nothing here: name 'Nowhere' is not defined"]
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
