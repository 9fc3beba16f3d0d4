"""Drift: whether a generated manifest still matches the source that it was written from.

`add_warnings` compares digests and must not run the source: `plugbay inspect` reads plugins that are not trusted yet.
`check_axis` loads the source in a separate process and names the differences. Manifests without a mark cannot drift.
"""

from __future__ import annotations

import ast
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from plugbay.cli import declarations, lookup
from plugbay.cli.declarations import Unusable
from plugbay.cli.manifest import generated
from plugbay.cli.manifest.generated import Mark, Plan

if TYPE_CHECKING:
    from plugbay.conformance.reports.report import AxisResult
    from plugbay.host.discovery.folders import Found
    from plugbay.model.errors import Problem
    from plugbay.model.spec import PluginSpec

CODE = "manifest_drift"
AXIS = "manifest.drift"
TITLE = "says in its manifest what its source declares"

MAX_LINES = 40
"""Lines of a diff in a report."""


def add_warnings(found: Found) -> Found:
    """Add warnings if the source of the manifest has changed, or never calls `run()`. Runs nothing."""
    problems = tuple(problem for problem in (_drift_problem(found), _unserved_problem(found)) if problem is not None)
    return replace(found, problems=(*found.problems, *problems)) if problems else found


def _unserved_problem(found: Found) -> Problem | None:
    from plugbay.model.errors import Problem

    mark = _mark(found)
    plugin = None if mark is None else find_unserved(_source(found.root / mark.source))
    if mark is None or plugin is None:
        return None
    words = f"{mark.source}, which this was written from, {NEVER_RUNS_TEXT.format(plugin=plugin)}"
    return Problem(NEVER_RUNS, "", words, severity="warning")


def _source(file: Path) -> bytes:
    """The source; empty if it cannot be read or is too large."""
    try:
        return file.read_bytes() if file.stat().st_size <= declarations.MAX_SOURCE else b""
    except OSError:
        return b""


def _drift_problem(found: Found) -> Problem | None:
    from plugbay.model.errors import Problem

    mark = _mark(found)
    if mark is None:
        return None
    try:
        source = found.root / mark.source
        if source.stat().st_size > declarations.MAX_SOURCE:
            return None
        if generated.digest_source(source.read_bytes()) == mark.digest:
            return None
        words = f"{mark.source} declares something else now than when this was written from it"
    except FileNotFoundError:
        words = f"{mark.source}, which this was written from, is gone"
    except (OSError, ValueError) as error:
        words = f"{mark.source}, which this was written from, cannot be read: {error}"
    command = f"plugbay manifest {shlex.quote(str(found.root))}"
    return Problem(CODE, "", f"{words}; {command} writes it anew, --check shows what differs", severity="warning")


def left_out(found: Found) -> str:
    """The declarations that the contract cannot carry, as listed in the mark of the manifest."""
    mark = _mark(found)
    return "" if mark is None else mark.left_out


def _mark(found: Found) -> Mark | None:
    name = lookup.manifest_name(found)
    try:
        return generated.read_mark((found.root / name).read_text("utf-8", "replace")) if name else None
    except OSError:
        return None


def check_axis(found: Found) -> AxisResult | None:
    """Load the source and compare; the result is an axis of `plugbay conform`. None when the manifest has no mark."""
    from plugbay.conformance.reports.report import AxisResult, Status

    mark = _mark(found)
    if mark is None:
        return None
    try:
        detail = "\n".join(_differences(found, found.root / mark.source))
    except Unusable as error:
        detail = "\n".join([error.message, *(f"stderr: {line}" for line in error.lines)])
    status = Status.FAILED if detail else Status.PASSED
    return AxisResult(f"{found.contract}.{AXIS}", TITLE, status, detail)


def _differences(found: Found, source: Path) -> list[str]:
    entry = declarations.read(source).contracts[found.contract]
    if entry["why_not"]:
        return [f"there is nothing to write any more: {entry['why_not']}"]
    texts = {file["path"]: file["text"] for file in entry["files"]}
    plans = [plan for plan in plan_files(found.root, texts, source, entry["left_out"]) if plan.drifted]
    if not plans:
        return []
    spec, _ = parse_files(texts, found.root)
    words = [] if spec is None or found.spec is None else list(_describe_differences(found.spec, spec))
    lines = [f"line: {line}" for plan in plans for line in plan.difference()]
    first = "; ".join(words) or "it says something else than the source"
    return [first, *lines[:MAX_LINES], f"hint: plugbay manifest {found.root} writes it again"]


def plan_files(folder: Path, texts: dict[str, str], source: Path, left_out: Sequence[str] = ()) -> list[Plan]:
    """Plan to write these files from this source into a folder; raises `Unusable`."""
    try:
        digest = generated.digest_source(source.read_bytes())
    except ValueError as error:
        raise Unusable(f"{source}: {error}") from None
    return generated.plan_files(folder, texts, Mark(source.name, digest, "; ".join(left_out)))


def parse_files(texts: dict[str, str], folder: Path) -> tuple[PluginSpec | None, tuple[Problem, ...]]:
    """Parse these files as if they were in a folder of that name."""
    from plugbay.host.discovery.folders import inspect

    with TemporaryDirectory(prefix="plugbay-manifest-") as place:
        root = Path(place) / (os.path.basename(folder.resolve()) or "plugin")
        for path, text in texts.items():
            generated.write(root, Plan(path, text, None, generated.Change.NEW))
        found = inspect(root)
    return found.spec, found.problems


def _describe_differences(old: PluginSpec, new: PluginSpec) -> Iterator[str]:
    """Describe the differences between manifest and source, the most important first."""
    if old.version != new.version:
        yield f"the version is {new.version}, not {old.version}"
    before = {(export.kind, export.name): export for export in old.exports}
    after = {(export.kind, export.name): export for export in new.exports}
    for kind, name in sorted(after.keys() - before.keys()):
        yield f"the {kind} {name} is missing"
    for kind, name in sorted(before.keys() - after.keys()):
        yield f"the {kind} {name} is not in the source"
    for key in sorted(after.keys() & before.keys()):
        if after[key].input_schema != before[key].input_schema:
            yield f"the schema of {key[1]} is another"
        if after[key].description != before[key].description:
            yield f"the description of {key[1]} is another"
    if old.capabilities != new.capabilities:
        yield f"it asks for {', '.join(new.capabilities) or 'nothing'}"


# Plugins that are never served.

NEVER_RUNS = "never_runs"

NEVER_RUNS_TEXT = "never calls {plugin}.run(), so that a host would see it end at once; make that its last line"


def find_unserved(source: bytes) -> str | None:
    """The name of a plugin that a source creates and never serves; None if there is none, or in doubt.

    Serving is `plugin.run()`, or passing the plugin to other code that may call it.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    made = {name for node in tree.body for name in _plugin_names(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr == "run":
                return None
            node.value.id = ""  # a declaration such as `@plugin.tool` does not serve it
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return next(iter(made)) if len(made) == 1 and not made & used else None


def _plugin_names(node: ast.stmt) -> list[str]:
    """The names that a statement assigns a new `Plugin` to."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return []
    maker = ast.unparse(node.value.func).split(".")
    if maker[-1] == "from_manifest":
        maker.pop()
    return [target.id for target in node.targets if isinstance(target, ast.Name)] if maker[-1] == "Plugin" else []
