"""From pydantic's errors to problems with a line and words a plugin author can act on.

Owns the wording, shared by every manifest reader and by the operator's config.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, TypeVar, get_args

import pydantic

from plugbay.contracts.document import Document, KeyPath, dotted
from plugbay.model.errors import Problem

Model = TypeVar("Model", bound=pydantic.BaseModel)


def validate(model: type[Model], document: Document) -> tuple[Model | None, list[Problem]]:
    """The document as `model`, or every problem it has, in the order of their lines."""
    try:
        return model.model_validate(document.value, strict=True), []
    except pydantic.ValidationError as error:
        problems = [_problem(item, model, document) for item in error.errors(include_url=False)]
        return None, sorted(problems, key=lambda problem: problem.line or 0)


def _problem(error: Any, model: type[pydantic.BaseModel], document: Document) -> Problem:
    path: KeyPath = tuple(error["loc"])
    kind: str = error["type"]
    code, message = "invalid_value", str(error["msg"])
    if kind == "missing":
        code, message = "missing_field", "required, but missing"
    elif kind == "extra_forbidden":
        code, message = (
            "unknown_field",
            "unknown key" + suggestion(str(path[-1]), _names_at(model, path[:-1])),
        )
    elif kind == "value_error":
        message = str(error["ctx"]["error"])
    elif kind.endswith(("_type", "_attributes_type", "is_instance_of")):
        code = "invalid_type"
        message = f"{message}, got {_shown(error.get('input'))}"
    else:
        message = f"{message}, got {_shown(error.get('input'))}"
    return Problem(code, dotted(path), _lower(message), line=document.line(path))


def suggestion(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'command'?`, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def unknown_keys(value: Any, known: Iterable[str], path: KeyPath, document: Document) -> list[Problem]:
    """A warning for each key of a table that its contract ignores."""
    if not isinstance(value, dict):
        return []
    names = list(known)
    return [
        Problem(
            "unknown_key",
            dotted((*path, key)),
            f"not part of the contract, ignored{suggestion(key, names)}",
            line=document.line((*path, key)),
            severity="warning",
        )
        for key in value
        if key not in names
    ]


def _names_at(model: type[pydantic.BaseModel], path: KeyPath) -> list[str]:
    """The fields the table at `path` may have; keys of maps and positions in lists lead into the same model."""
    here: type[pydantic.BaseModel] | None = model
    for part in path:
        fields = _fields(here)
        if part in fields:
            here = _model_in(fields[part].annotation)
    return list(_fields(here))


def _fields(model: type[pydantic.BaseModel] | None) -> dict[Any, Any]:
    """The fields of a table by the names a file has for them."""
    return {} if model is None else {field.alias or name: field for name, field in model.model_fields.items()}


def _model_in(annotation: Any) -> type[pydantic.BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return annotation
    return next((model for model in map(_model_in, get_args(annotation)) if model is not None), None)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
