"""The files that a manifest names beside itself: JSON Schemas, and the program.

Owns which names are valid and which files are usable schemas. Does no I/O: the caller passes a `Site`, which reads.
"""

from __future__ import annotations

import re
from typing import Any

from plugbay.contracts.contract import Site
from plugbay.contracts.document import parse_json
from plugbay.contracts.schemas import schema_problem
from plugbay.contracts.vai.sections import Part
from plugbay.model.errors import Problem

MAX_SCHEMA = 256 << 10
"""Bytes of a schema. Reading one of this size takes half a second."""

_DRIVE = re.compile(r"[A-Za-z]:")


def path_problem(path: str) -> str | None:
    """Why a path may lead out of the plugin's folder; None when only a link could."""
    if not path.strip() or not path.isprintable():
        return "names no file"
    if path.startswith("/") or _DRIVE.match(path):
        return "must be relative to the plugin's folder"
    if "\\" in path:
        return "must have '/' between its parts"
    return "must not contain '..'" if ".." in path.split("/") else None


class Schemas:
    """The schemas of one manifest, each read and checked once, however many exports name it."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._known: dict[str, dict[str, Any] | Problem] = {}

    def check(self, part: Part, key: str) -> None:
        """Report why the file that `key` names is no schema."""
        path = part.text(key)
        found = None if path is None else self._of(path)
        if isinstance(found, Problem):
            part.error(found.code, f"{path!r:.100} {found.message}", key)

    def get(self, path: str | None) -> dict[str, Any] | None:
        """A schema that has no problem; None for no path."""
        found = None if path is None else self._of(path)
        return None if isinstance(found, Problem) else found

    def _of(self, path: str) -> dict[str, Any] | Problem:
        if path not in self._known:
            self._known[path] = self._load(path)
        return self._known[path]

    def _load(self, path: str) -> dict[str, Any] | Problem:
        problem = path_problem(path)
        if problem is not None:
            return Problem("path_escape", "", problem)
        data = self._site.read(path, MAX_SCHEMA)
        return data if isinstance(data, Problem) else _schema(data)


def _schema(data: bytes) -> dict[str, Any] | Problem:
    try:
        document = parse_json(data.decode())
    except UnicodeDecodeError as error:
        return _invalid(f"not UTF-8: {error.reason} at byte {error.start}")
    if isinstance(document, Problem):
        return _invalid(str(document))
    schema = document.value
    if not isinstance(schema, dict):
        return _invalid("a schema is an object")
    kinds = schema.get("type", "object")
    if kinds != "object" and not (isinstance(kinds, list) and "object" in kinds):
        return _invalid(f"must describe an object, not {kinds!r:.60}")
    problem = schema_problem(schema)
    return schema if problem is None else _invalid(problem)


def _invalid(why: str) -> Problem:
    return Problem("invalid_schema", "", f"cannot be used: {why}")
