"""From a PATH somebody typed to the plugin in it, and how its problems look on a screen.

Owns what a command may take for a plugin (its folder, or the manifest in it), which absence is which exit
status, and the listing of problems as `file:line`. Refuses to start anything.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from plugbay.cli import output
from plugbay.cli.exit_codes import Exit

if TYPE_CHECKING:
    from plugbay.host.discovery.folders import Found
    from plugbay.model.errors import Problem

MAX_LISTED = 12
"""Folders named when there are many; more help nobody."""


def folder_of(path: Path) -> Path:
    """The folder that is meant: of a manifest, the one it is in."""
    from plugbay.contracts.registry import contract_of

    return path.parent if contract_of(path.name) and path.is_file() else path


def look(path: Path, contract: str | None = None) -> Found:
    """The plugin at `path`, usable or not; where there are several manifests, that of the contract or of the path."""
    from plugbay.contracts.registry import contract_of
    from plugbay.host.discovery.folders import inspect

    named = contract_of(path.name) if folder_of(path) != path else None
    return inspect(folder_of(path), contract or (named.name if named else None))


def look_at_all(path: Path) -> list[Found]:
    """The same where a manifest may name several plugins."""
    from plugbay.contracts.registry import contract_of
    from plugbay.host.discovery.folders import inspect_all

    named = contract_of(path.name) if folder_of(path) != path else None
    return inspect_all(folder_of(path), named.name if named else None)


def plugins_below(path: Path) -> list[Path]:
    """The plugin folders inside `path`, when it is a folder of plugins and not a plugin itself."""
    from plugbay.host.discovery.folders import discover

    return [found.root for found in discover([path]) if found.root != path] if path.is_dir() else []


def is_absent(found: Found) -> bool:
    """Whether there is no plugin at all, as opposed to a broken one."""
    return any(problem.code == "not_found" for problem in found.problems)


def status_of(found: Found) -> int:
    """0 for a plugin that can be used, 3 for a broken one, 4 for none."""
    if is_absent(found):
        return Exit.NOT_FOUND
    return Exit.INVALID if found.errors else Exit.OK


def manifest_name(found: Found) -> str:
    """The manifest's file name; empty when it is not known which contract this is."""
    from plugbay.contracts.registry import CONTRACTS

    names = CONTRACTS[found.contract].manifest_files if found.contract else ()
    return next((name for name in names if (found.root / name).exists()), "")


def explain_absence(found: Found, command: str) -> None:
    """Say on stderr that there is no plugin, and which commands would find one."""
    inside = plugins_below(found.root)
    if not inside:
        output.problem(_nothing_there(found), hint=_way_to_one(found.root))
        return
    output.problem(
        f"{found.root} is a folder of {output.count(len(inside), 'plugin')}, not a plugin; name one of them:"
    )
    for folder in inside[:MAX_LISTED]:
        output.err().line((f"plugbay {command} {shlex.quote(str(folder))}", output.CODE), indent=2)
    if len(inside) > MAX_LISTED:
        output.err().line(f"… and {len(inside) - MAX_LISTED} more", indent=2)


def _way_to_one(folder: Path) -> str:
    """A source without a manifest is what everybody has who has just written one."""
    from plugbay.cli.declarations import Unusable, source_of

    try:
        source_of(folder)
    except Unusable:
        return "name the folder of one plugin: the one that holds its manifest"
    return f"plugbay manifest {shlex.quote(str(folder))} writes one from its source"


def _nothing_there(found: Found) -> str:
    if not found.root.exists():
        return f"{found.root} does not exist"
    if not found.root.is_dir():
        return f"{found.root} is neither a plugin's folder nor a manifest"
    return found.problems[0].message


def show_problems(printer: output.Printer, found: Found, problems: Sequence[Problem], indent: int = 2) -> None:
    """Each problem with its place, its code and its words."""
    place = str(found.root / manifest_name(found))
    for problem in problems:
        error = problem.severity == "error"
        mark = (output.BAD, output.BAD_STYLE) if error else (output.WARN, output.WARN_STYLE)
        where = f"{place}:{problem.line}" if problem.line else place
        printer.line(mark, f" {where}  ", (problem.code, output.CODE), indent=indent)
        subject = f"{problem.path}: " if problem.path else ""
        printer.line(f"{subject}{problem.message}", indent=indent + 2)


def tally(problems: Sequence[Problem]) -> str:
    """`2 errors, 1 warning`."""
    errors = sum(problem.severity == "error" for problem in problems)
    parts = [(errors, "error"), (len(problems) - errors, "warning")]
    return ", ".join(output.count(number, word) for number, word in parts if number)


def refuse(found: Found, command: str) -> int:
    """Say on stderr why nothing can be done with this folder; the status to leave with."""
    if is_absent(found):
        explain_absence(found, command)
    else:
        output.problem(f"{found.root} cannot be used: its manifest has {tally(found.errors)}")
        show_problems(output.err(), found, found.errors)
    return status_of(found)
