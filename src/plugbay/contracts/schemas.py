"""JSON Schemas from untrusted manifests, compiled once: nothing is ever fetched, no pattern can run away.

Owns the one way a schema becomes a validator. Knows no manifest.
"""

from __future__ import annotations

from typing import Any

import jsonschema_rs

from plugbay.contracts.schema_size import size_problem, values_in

AHEAD = 10_000
"""Values in all schemas of one greeting that are looked at before anybody calls anything: some 70 ms. A message of
16 MiB has room for 500,000, which would hold the host up for seconds."""

MAX_PATTERN = 1 << 20
"""Bytes of a pattern once it is compiled, which takes 12 ms: `\\p{L}{1,300}` has ten times as many, and takes 100."""

_PATTERNS = jsonschema_rs.RegexOptions(size_limit=MAX_PATTERN)
"""The linear-time engine: a hostile `pattern` cannot run away. It has no look-around and no back-references."""


def compile_schema(schema: Any) -> Any:
    """A validator with `is_valid` and `iter_errors`; raises `ValueError` that says why there is none."""
    problem = size_problem(schema)
    if problem is not None:
        raise ValueError(problem)
    try:
        return jsonschema_rs.validator_for(schema, offline=True, pattern_options=_PATTERNS)
    except (ValueError, jsonschema_rs.ValidationError) as error:
        raise ValueError(str(error).split("\n", 1)[0]) from error


def schema_problem(schema: Any) -> str | None:
    """Why `schema` cannot be enforced; None when it can."""
    try:
        compile_schema(schema)
    except ValueError as error:
        return str(error)
    return None


class Preview:
    """Looks at schemas that a plugin brings while it runs, ahead of their use, as long as there are few of them."""

    def __init__(self, values: int = AHEAD) -> None:
        self._left = values
        self.passed_over = 0
        """Schemas that nobody has looked at."""

    def problem(self, schema: Any) -> str | None:
        """Why a schema cannot be enforced; None when it can, or when that is found out at its first use."""
        size = values_in(schema, self._left)
        if size > self._left:
            self._left = 0
            self.passed_over += 1
            return None
        self._left -= size
        return schema_problem(schema)
