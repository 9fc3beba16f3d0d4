"""Finds plugins on disk: which folders are plugins, of which contract, and what is wrong with each.

One broken plugin never hides the others: its problems are reported beside their specs. Reads files, starts nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from plugbay.contracts.registry import CONTRACTS, Contract
from plugbay.model.errors import Problem
from plugbay.model.spec import PluginSpec
from plugbay.process.command import LaunchFailed, host_search_path, resolve

MAX_MANIFEST = 1 << 20
"""Bytes; a larger manifest is refused before it is read."""

MAX_FOLDERS = 10_000
"""Entries looked at in one folder of plugins."""


@dataclass(frozen=True, slots=True)
class Found:
    """One folder that holds, or should hold, a plugin."""

    root: Path
    contract: str
    spec: PluginSpec | None
    problems: tuple[Problem, ...] = ()

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity == "error")


def discover(paths: Iterable[Path]) -> list[Found]:
    """Every plugin in `paths`; each path is a plugin folder or a folder of plugin folders."""
    found: list[Found] = []
    for path in paths:
        found += _discover_one(path)
    return _refuse_twins(list({os.path.realpath(item.root): item for item in found}.values()))


def inspect(path: Path) -> Found:
    """The plugin in exactly this folder; a folder without a manifest is a problem here."""
    try:
        return _plugin_in(path) or _nothing(path, _no_manifest(path))
    except OSError as error:
        return _nothing(path, _unreadable(path, error))


def _discover_one(path: Path) -> list[Found]:
    try:
        plugin = _plugin_in(path)
        if plugin:
            return [plugin]
        names = sorted(os.listdir(path))
    except OSError as error:
        return [_nothing(path, _unreadable(path, error))]
    found = [_child(path / name) for name in names[:MAX_FOLDERS] if not name.startswith(".")]
    return [item for item in found if item is not None]


def _child(path: Path) -> Found | None:
    try:
        return _plugin_in(path) if path.is_dir() or path.is_symlink() else None
    except OSError as error:
        return _nothing(path, _unreadable(path, error))


def _plugin_in(path: Path) -> Found | None:
    """The plugin whose manifest is directly in `path`; None when there is no manifest. Raises OSError."""
    names = set(os.listdir(path)) if stat.S_ISDIR(path.stat().st_mode) else set()
    present = [(c, name) for c in CONTRACTS.values() for name in c.manifest_files if name in names]
    if not present:
        return None
    if len(present) > 1:
        files = " and ".join(name for _, name in present)
        return _nothing(path, Problem("ambiguous_manifest", "", f"{files} in one folder; keep one"))
    return _read(path, *present[0])


def _read(root: Path, contract: Contract, name: str) -> Found:
    text = _manifest_text(root / name)
    if isinstance(text, Problem):
        return Found(root, contract.name, None, (text,))
    spec, problems = contract.parse_manifest(text, root.resolve(), os.environ)
    if spec is not None:
        problems = problems + _command_problems(spec)
    if any(problem.severity == "error" for problem in problems):
        spec = None
    return Found(root, contract.name, spec, tuple(problems))


def _manifest_text(path: Path) -> str | Problem:
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            return Problem("unreadable", "", f"{path.name} is not a regular file")
        if info.st_size > MAX_MANIFEST:
            return Problem("too_large", "", f"{path.name} has {info.st_size:,} bytes; at most {MAX_MANIFEST:,}")
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        return Problem("parse_error", "", f"{path.name} is not UTF-8: {error.reason} at byte {error.start}")
    except OSError as error:
        return _unreadable(path, error)


def _command_problems(spec: PluginSpec) -> list[Problem]:
    """A command that could never start is better found now than at the first call."""
    cwd = spec.cwd or spec.root
    problems = []
    try:
        resolve(spec.command, spec.root, host_search_path(os.environ))
    except LaunchFailed as error:
        hint = f" ({error.hint})" if error.hint else ""
        problems.append(Problem("command_unusable", "command", f"{error.message}{hint}", severity="warning"))
    if not cwd.is_dir():
        text = f"the working directory {cwd} does not exist or is no folder"
        problems.append(Problem("command_unusable", "dir", text, severity="warning"))
    return problems


def _refuse_twins(found: list[Found]) -> list[Found]:
    """Two plugins with one id: neither is served, because a caller could not know which one answers."""
    roots: dict[str, list[Path]] = {}
    for item in found:
        if item.spec:
            roots.setdefault(item.spec.id, []).append(item.root)
    return [_refused(item, roots[item.spec.id]) if item.spec else item for item in found]


def _refused(item: Found, roots: list[Path]) -> Found:
    if len(roots) == 1 or item.spec is None:
        return item
    others = ", ".join(str(root) for root in roots if root != item.root)
    problem = Problem("duplicate_id", "plugin_id", f"{item.spec.id!r} is also the id of {others}; rename one")
    return Found(item.root, item.contract, None, (*item.problems, problem))


def _nothing(path: Path, problem: Problem) -> Found:
    return Found(path, "", None, (problem,))


def _no_manifest(path: Path) -> Problem:
    known = ", ".join(name for contract in CONTRACTS.values() for name in contract.manifest_files)
    return Problem("not_found", "", f"no plugin manifest in {path}; looked for {known}")


def _unreadable(path: Path, error: OSError) -> Problem:
    code = "not_found" if isinstance(error, FileNotFoundError) else "unreadable"
    return Problem(code, "", f"{path}: {error.strerror or error}")
