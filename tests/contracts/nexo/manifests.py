"""Manifests of nexo plugins to bend in tests, and what is found wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from plugbay.contracts.nexo.manifest import parse
from plugbay.model.spec import PluginSpec

ROOT = Path("/plugins/slack")

Found = tuple[str, str, str]
"""Severity, code and path of a problem."""

HEAD = {
    "id": '"slack"',
    "version": '"0.2.0"',
    "name": '"Slack Channel"',
    "description": '"Slack for agents"',
    "min_nexo_version": '">=0.1.0"',
}


def manifest(body: str = "", *, entrypoint: str = 'command = "./bin/slack"', without: str = "", **head: str) -> str:
    """The smallest good manifest with `body` after it; `head` replaces or adds keys of `[plugin]`."""
    lines = [f"{key} = {value}" for key, value in {**HEAD, **head}.items() if key != without]
    return "\n".join(["[plugin]", *lines, "[plugin.entrypoint]", entrypoint, body, ""])


def problems(text: str, environ: Mapping[str, str] | None = None) -> list[Found]:
    """What is wrong with `text`; there is a spec exactly when nothing of it is an error."""
    spec, found = parse(text, ROOT, environ or {})
    assert (spec is None) == any(problem.severity == "error" for problem in found)
    return [(problem.severity, problem.code, problem.path) for problem in found]


def good(text: str, environ: Mapping[str, str] | None = None) -> PluginSpec:
    """The spec of a manifest that has no problem at all."""
    spec, found = parse(text, ROOT, environ or {})
    assert found == []
    assert spec is not None
    return spec
