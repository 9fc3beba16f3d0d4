"""JSON files that decide something: read strictly, all problems at once, and written in one form.

Owns how such a file is read and refused: size, UTF-8, JSON without repeated keys, then every field. Knows no fields.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import pydantic

from plugbay.contracts.document import parse_json
from plugbay.contracts.validation import validate
from plugbay.model.errors import Problem

MAX_BYTES = 4 << 20
"""Of one file: a signature over 5,000 files with names of 500 bytes has 3 MiB."""

Model = TypeVar("Model", bound=pydantic.BaseModel)


def read(model: type[Model], data: bytes) -> Model | list[Problem]:
    """The document as `model`, or everything that is wrong with it."""
    if len(data) > MAX_BYTES:
        return [Problem("too_large", "", f"has more than {MAX_BYTES:,} bytes")]
    try:
        document = parse_json(data.decode())
    except UnicodeDecodeError:
        return [Problem("parse_error", "", "is not UTF-8")]
    if isinstance(document, Problem):
        return [document]
    found, problems = validate(model, document)
    return problems if found is None else found


def pretty(value: Any) -> bytes:
    """For files that people look into."""
    return f"{json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)}\n".encode()


def compact(value: Any) -> str:
    """For what is signed: one text for one value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
