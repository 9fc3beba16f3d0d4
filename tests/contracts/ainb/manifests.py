"""Manifests of ainb plugins to bend in tests, and what is found wrong with them."""

from __future__ import annotations

from pathlib import Path

from plugbay.contracts.ainb.manifest import parse
from plugbay.model.errors import Problem
from plugbay.model.spec import PluginSpec

ROOT = Path("/plugins/burndown")

Found = tuple[str, str, str]
"""Severity, code and path of a problem."""

HEAD = {"name": '"burndown"', "version": '"2.0.0"', "abi_version": "2"}


def manifest(body: str = "", *, without: str = "", **head: str) -> str:
    """The smallest good manifest with `body` after it; `head` replaces or adds keys of `[plugin]`."""
    lines = [f"{key} = {value}" for key, value in {**HEAD, **head}.items() if key != without]
    return "\n".join(["[plugin]", *lines, body, ""])


def asking(grants: str) -> str:
    """A manifest with these lines in `[capabilities]`."""
    return manifest(f"[capabilities]\n{grants}")


def setting(lines: str) -> str:
    """A manifest with one setting called `k` that says `lines` beside its key and label."""
    return manifest(f'[[config]]\nkey = "k"\nlabel = "K"\n{lines}')


def reported(text: str, root: Path = ROOT) -> list[Problem]:
    """What is wrong with `text`; there is a spec exactly when nothing of it is an error."""
    spec, found = parse(text, root, {})
    assert (spec is None) == any(problem.severity == "error" for problem in found)
    return found


def problems(text: str, root: Path = ROOT) -> list[Found]:
    return [(problem.severity, problem.code, problem.path) for problem in reported(text, root)]


def good(text: str) -> PluginSpec:
    """The spec of a manifest that has no problem at all."""
    spec, found = parse(text, ROOT, {})
    assert found == []
    assert spec is not None
    return spec
