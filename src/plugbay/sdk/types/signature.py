"""The signature of a function: its parameters and its result as shapes, as JSON Schemas, and as call arguments.

`ctx` and `context` are not part of the input, and a single parameter called `input` takes all of it. Annotations are
evaluated when they are first needed, one function at a time: a plugin does not pay for tools that nobody calls.
"""

from __future__ import annotations

from plugbay.sdk.declarations import VARARGS, VARKEYWORDS, defaults, parameters
from plugbay.sdk.types.annotations import AnnotationReader, Namespace, annotations_of, namespace_of
from plugbay.sdk.types.records import NOTHING, SPECIAL, Member, Parameters, Record, is_json
from plugbay.sdk.types.shapes import ANYTHING, Either, Null, Problems, Table, whole_schema

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from plugbay.sdk.types.shapes import Shape

WHOLE = "input"
"""The parameter that takes everything, when it is alone."""


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
        """Defaults that are not what their annotations say."""
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
                shape = Either([shape, Null()])  # `city: str = None` means what it meant before there was a word for it
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
        """What could not be understood, each with the parameter it is about."""
        return list(self._reader.notes)

    # What is published.

    def input_schema(self) -> dict[str, Any]:
        """The schema of the input; where nothing is annotated, any object."""
        schema = whole_schema(self.takes) if self.is_typed else {}
        return schema or {"type": "object"}

    def output_schema(self) -> dict[str, Any] | None:
        """The schema of the result, where the function says that it is an object and more than that."""
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
        """The shape of what the function returns. That an annotation is none of ours to read is no news there."""
        if self._output is None:
            notes = len(self._reader.notes)
            self._output = self._shape("return")
            del self._reader.notes[notes:]
        return self._output


def _listed(value: Any) -> Any:
    """JSON as it arrives: what was a tuple is a list."""
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value


def _rest(function: Any) -> str:
    """The name of the parameter that takes any keyword; nothing when there is none."""
    code = function.__code__
    place = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & VARARGS)
    return str(code.co_varnames[place]) if code.co_flags & VARKEYWORDS else ""
