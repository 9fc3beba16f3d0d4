"""JSON Schemas from untrusted manifests, compiled once: nothing is fetched, and no pattern can run for ever.

Owns the one way a schema becomes a validator. Before that, the paths through a schema are counted: forty definitions
that each name the next one twice are 3 KB and 10^12 paths. Counting is linear, because every node is counted once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

MAX_WAYS = 10_000
"""A validator takes some 80 us for each way that ends in an error, so the worst input takes it 0.8 s."""
MAX_VALUES = 50_000
"""In one schema, used or not: so many take half a second to count ways through and to compile."""
PATTERN_WAYS = 100
"""Ways that a pattern counts for: the largest takes as long to compile as 150 ways to walk."""
_DEFINITIONS = ("$defs", "definitions")
_MAPS = ("properties", "patternProperties", "dependentSchemas", "dependencies")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS = ("$anchor", "$dynamicAnchor")


def size_problem(schema: Any) -> str | None:
    """Why this schema must not be used for validation; None when it may be."""
    if values_in(schema, MAX_VALUES) > MAX_VALUES:
        return f"it has more than {MAX_VALUES:,} values"
    try:
        ways = _Ways(schema).through(schema)
    except RecursionError:
        return "its references are nested too deeply"
    except LookupError as error:
        return str(error.args[0])
    return f"it has more than {MAX_WAYS:,} paths when references are followed" if ways > MAX_WAYS else None


def values_in(schema: Any, limit: int) -> int:
    """The number of values in a schema; counting stops at the limit."""
    count, nodes = 1, [schema]
    while nodes and count <= limit:
        node = nodes.pop()
        inside = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        count += len(inside)
        nodes += [value for value in inside if isinstance(value, dict | list)] if count <= limit else []
    return count


class _Ways:
    """The ways through one schema."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._known: dict[int, int] = {}
        self._anchors = dict(_anchors(root))

    def through(self, node: Any) -> int:
        """Ways that begin here. A way back to what is being counted is one: it takes the input a level down."""
        if not isinstance(node, dict | list):
            return 1
        if id(node) not in self._known:
            self._known[id(node)] = 1
            total = sum(map(self.through, _inside(node))) + sum(map(self.through, self._referenced(node)))
            total += PATTERN_WAYS * _patterns(node)
            self._known[id(node)] = min(max(total, 1), MAX_WAYS + 1)
        return self._known[id(node)]

    def _referenced(self, node: Any) -> Iterator[Any]:
        if not isinstance(node, dict):
            return
        if node is not self._root and isinstance(node.get("$id"), str):
            raise LookupError("it holds a schema with an $id of its own")
        for name in _REFERENCES:
            if isinstance(node.get(name), str):
                yield self._target(node[name])

    def _target(self, reference: str) -> Any:
        if not reference.startswith("#"):
            raise LookupError(f"it refers to {reference[:200]!r}, outside itself")
        pointer = unquote(reference[1:])
        if pointer and not pointer.startswith("/"):
            return self._anchors.get(pointer)
        node = self._root
        for part in pointer.split("/")[1:]:
            node = _step(node, part.replace("~1", "/").replace("~0", "~"))
        return node


def _inside(node: Any) -> Iterator[Any]:
    """The schemas that apply wherever `node` does; definitions apply only where something refers to them."""
    if isinstance(node, list):
        yield from node
        return
    for name, value in node.items():
        if name in _MAPS and isinstance(value, dict):
            yield from value.values()
        elif name not in _DEFINITIONS and isinstance(value, dict | list):
            yield value


def _patterns(node: Any) -> int:
    if not isinstance(node, dict):
        return 0
    by_name = node.get("patternProperties")
    return isinstance(node.get("pattern"), str) + (len(by_name) if isinstance(by_name, dict) else 0)


def _anchors(node: Any) -> Iterator[tuple[str, Any]]:
    values = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for value in values:
        yield from _anchors(value)
    for name in _ANCHORS:
        if isinstance(node, dict) and isinstance(node.get(name), str):
            yield node[name], node


def _step(node: Any, part: str) -> Any:
    if isinstance(node, list):
        return node[int(part)] if part.isascii() and part.isdecimal() and int(part) < len(node) else None
    return node.get(part) if isinstance(node, dict) else None


AHEAD = 10_000
"""Values in all schemas of one greeting that are checked before the first call: some 70 ms. A message of
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
        """Schemas that were not checked."""

    def problem(self, schema: Any) -> str | None:
        """Why a schema cannot be enforced; None when it can, or when that is found out at its first use."""
        size = values_in(schema, self._left)
        if size > self._left:
            self._left = 0
            self.passed_over += 1
            return None
        self._left -= size
        return schema_problem(schema)


def answer_problem(schema: Any, content: Any) -> str | None:
    """Why the content of an answer does not fit the question of a plugin; None if it fits. None as schema fits all."""
    if not isinstance(content, Mapping):
        return "it is not an object"
    if schema is None:
        return None
    try:
        validator = compile_schema(schema)
    except ValueError as error:
        return f"its schema cannot be used: {error}"
    first = next(iter(validator.iter_errors(dict(content))), None)
    return None if first is None else f"{'/'.join(map(str, first.instance_path)) or 'content'}: {first.message}"
