"""Strict JSON documents (signatures, trust store, installation state): parsing with all problems, and canonical output.

Checks size, UTF-8, duplicate keys, then every field of the model.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import pydantic

from plugbay.contracts.document import parse_json
from plugbay.contracts.validation import validate
from plugbay.model.errors import Problem

MAX_BYTES = 4 << 20
"""Size limit: a signature over 5,000 files with names of 500 bytes has 3 MiB."""

Model = TypeVar("Model", bound=pydantic.BaseModel)


def read(model: type[Model], data: bytes) -> Model | list[Problem]:
    """Parse the document as `model`, or list everything that is wrong with it."""
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
    """For files that people read."""
    return f"{json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)}\n".encode()


def compact(value: Any) -> str:
    """Canonical form, for signing."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
