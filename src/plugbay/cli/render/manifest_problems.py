"""Manifest problems for people, as `file:line`, and the refusal of a path without a usable plugin."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from plugbay.cli import lookup
from plugbay.cli.render import output

if TYPE_CHECKING:
    from plugbay.host.discovery.folders import Found
    from plugbay.model.errors import Problem

MAX_LISTED = 12
"""Folders that are listed."""


def explain_absence(found: Found, command: str) -> None:
    """Print on stderr that there is no plugin, and the commands that would find one."""
    inside = lookup.plugins_below(found.root)
    if not inside:
        output.problem(_describe_absence(found), hint=_absence_hint(found.root))
        return
    output.problem(
        f"{found.root} is a folder of {output.count(len(inside), 'plugin')}, not a plugin; name one of them:"
    )
    for folder in inside[:MAX_LISTED]:
        output.err().line((f"plugbay {command} {shlex.quote(str(folder))}", output.CODE), indent=2)
    if len(inside) > MAX_LISTED:
        output.err().line(f"… and {len(inside) - MAX_LISTED} more", indent=2)


def _absence_hint(folder: Path) -> str:
    """The hint: a folder with a source and no manifest yet needs `plugbay manifest`."""
    from plugbay.cli.declarations import Unusable, find_source

    try:
        find_source(folder)
    except Unusable:
        return "name the folder of one plugin: the one that holds its manifest"
    return f"plugbay manifest {shlex.quote(str(folder))} writes one from its source"


def _describe_absence(found: Found) -> str:
    if not found.root.exists():
        return f"{found.root} does not exist"
    if not found.root.is_dir():
        return f"{found.root} is neither a plugin's folder nor a manifest"
    return found.problems[0].message


def show_problems(printer: output.Printer, found: Found, problems: Sequence[Problem], indent: int = 2) -> None:
    """Print each problem with its file and line, code and message."""
    place = str(found.root / lookup.manifest_name(found))
    for problem in problems:
        error = problem.severity == "error"
        mark = (output.BAD, output.BAD_STYLE) if error else (output.WARN, output.WARN_STYLE)
        where = f"{place}:{problem.line}" if problem.line else place
        printer.line(mark, f" {where}  ", (problem.code, output.CODE), indent=indent)
        subject = f"{problem.path}: " if problem.path else ""
        printer.line(f"{subject}{problem.message}", indent=indent + 2)


def count_problems(problems: Sequence[Problem]) -> str:
    """`2 errors, 1 warning`."""
    errors = sum(problem.severity == "error" for problem in problems)
    parts = [(errors, "error"), (len(problems) - errors, "warning")]
    return ", ".join(output.count(number, word) for number, word in parts if number)


def refuse(found: Found, command: str) -> int:
    """Print on stderr why this folder has no usable plugin; return the exit status."""
    if lookup.is_absent(found):
        explain_absence(found, command)
    else:
        output.problem(f"{found.root} cannot be used: its manifest has {count_problems(found.errors)}")
        show_problems(output.err(), found, found.errors)
    return lookup.exit_status(found)
