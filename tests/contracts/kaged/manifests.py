"""Manifests of kaged plugins to bend in tests, and what is found wrong with them."""

from __future__ import annotations

from pathlib import Path

from plugbay.contracts.kaged.manifest import parse
from plugbay.model.errors import Problem
from plugbay.model.spec import PluginSpec

ROOT = Path("/plugins/notes")

Found = tuple[str, str, str]
"""Severity, code and path of a problem."""

HEAD = {
    "name": "notes",
    "version": "0.1.0",
    "kaged_api": "1",
    "description": "Notes for agents.",
    "command": "[./notes]",
    "methods": "[notes.list]",
}

SCHEMA = """config_schema:
  type: object
  properties:
    level: {type: integer, minimum: 0, maximum: 100}
    ratio: {type: number}
    mode: {enum: [fast, safe, "1"]}
    loud: {type: boolean}
    title: {type: string, maxLength: 20}
"""


def manifest(body: str = "", *, without: str = "", **head: str) -> str:
    """The smallest good manifest with `body` after it; `head` replaces or adds keys."""
    lines = [f"{key}: {value}" for key, value in {**HEAD, **head}.items() if key != without]
    return "\n".join([*lines, body, ""])


def with_knob(lines: str, *, name: str = "k") -> str:
    """A manifest with a config of five fields, and one knob that says `lines` beside its label."""
    entry = "\n".join(f"    {line}" for line in lines.splitlines())
    return manifest(f"{SCHEMA}knobs:\n  {name}:\n    label: Knob\n{entry}\n")


def reported(text: str) -> list[Problem]:
    """What is wrong with `text`; there is a spec exactly when nothing of it is an error."""
    spec, found = parse(text, ROOT, {})
    assert (spec is None) == any(problem.severity == "error" for problem in found)
    return found


def problems(text: str) -> list[Found]:
    return [(problem.severity, problem.code, problem.path) for problem in reported(text)]


def good(text: str) -> PluginSpec:
    """The spec of a manifest that has no problem at all."""
    spec, found = parse(text, ROOT, {})
    assert found == []
    assert spec is not None
    return spec
