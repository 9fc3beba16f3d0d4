"""Finds the plugin of a PATH argument, and makes the refusal of a path without a usable plugin.

Reads files and starts nothing. Prints nothing: `render` imports this module.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from plugbay.cli import exit_codes
from plugbay.cli.exit_codes import Exit, Refusal

if TYPE_CHECKING:
    from plugbay.host.discovery.folders import Found
    from plugbay.model.errors import Problem


def folder_of(path: Path) -> Path:
    """The folder of a manifest; any other path unchanged."""
    from plugbay.contracts.registry import contract_of

    return path.parent if contract_of(path.name) and path.is_file() else path


def is_source(path: Path) -> bool:
    """Whether a path names a Python file, which may be a plugin without a manifest."""
    return path.suffix == ".py" and path.is_file()


def is_place(path: Path) -> bool:
    """Whether a path names a folder, a manifest or a Python file; an id may look the same."""
    return folder_of(path).is_dir() or is_source(path)


def find(path: Path, contract: str | None = None) -> Found:
    """The plugin at `path`, usable or not. Of several manifests, the one of `contract` or the one that `path` names."""
    from plugbay.contracts.registry import contract_of
    from plugbay.host.discovery.folders import inspect

    named = contract_of(path.name) if folder_of(path) != path else None
    return inspect(folder_of(path), contract or (named.name if named else None))


def find_all(path: Path) -> list[Found]:
    """All plugins at `path`: a manifest may declare several."""
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


def exit_status(found: Found) -> int:
    """0 for a plugin that can be used, 3 for a broken one, 4 for none."""
    if is_absent(found):
        return Exit.NOT_FOUND
    return Exit.INVALID if found.errors else Exit.OK


def manifest_name(found: Found) -> str:
    """The manifest's file name; empty when the contract is unknown."""
    from plugbay.contracts.registry import CONTRACTS

    names = CONTRACTS[found.contract].manifest_files if found.contract else ()
    return next((name for name in names if (found.root / name).exists()), "")


MARK = "Written by plugbay from "
"""The words with which the mark of a generated manifest begins."""

MARKED_BYTES = 4096
"""The mark counts only in the first bytes of a file; further down it is a quotation."""


def has_mark(found: Found) -> bool:
    """Whether the manifest seems to be generated; `manifest.generated` reads the mark."""
    name = manifest_name(found)
    return bool(name) and MARK.encode() in read_head(found.root / name)


def read_head(file: Path) -> bytes:
    """The beginning of a file, where a mark counts; empty if it cannot be read. A pipe in its place would block."""
    try:
        if not file.is_file():
            return b""
        with open(file, "rb") as opened:
            return opened.read(MARKED_BYTES)
    except OSError:
        return b""


SOURCE = "plugin.py"
"""The usual name of a plugin's Python source."""

MAX_SOURCE = 4 << 20
"""Bytes of a source; a larger file is not read."""

MAX_FOLDERS = 1000
"""Folders in which a source without a manifest is searched."""

MAX_LISTED = 12
"""Folders that are listed."""


def refusal(found: Found, command: str) -> Refusal:
    """Why this folder has no usable plugin; the hint names commands that would work."""
    if not is_absent(found):
        text = f"{found.root} cannot be used: its manifest has {count_problems(found.errors)}"
        return Refusal(exit_codes.to_failure(text, "", Exit.INVALID), [found], Exit.INVALID)
    inside = plugins_below(found.root)
    if not inside:
        return exit_codes.refusal(_describe_absence(found), absence_hint(found.root), Exit.NOT_FOUND)
    text = f"{found.root} is a folder of {_count(len(inside), 'plugin')}, not a plugin"
    commands = [f"plugbay {command} {shlex.quote(str(folder))}" for folder in inside[:MAX_LISTED]]
    more = [f"… and {len(inside) - MAX_LISTED} more"] if len(inside) > MAX_LISTED else []
    return exit_codes.refusal(text, "\n".join(["name one of them:", *commands, *more]), Exit.NOT_FOUND)


def without_manifest(place: Path) -> list[Path]:
    """The folder itself, or the folders in it, that have a source with the SDK and no manifest."""
    from plugbay.host.discovery.folders import contracts_in

    if not place.is_dir() or contracts_in(place):
        return []
    try:
        names = sorted(os.listdir(place))[:MAX_FOLDERS]
    except OSError:
        return []
    inside = [place / name for name in names if not name.startswith(".")]
    folders = [place, *(folder for folder in inside if folder.is_dir() and not contracts_in(folder))]
    return [folder for folder in folders if uses_sdk(folder / SOURCE)]


def manifest_hint(folder: Path) -> str:
    """The command that writes the missing manifest of a folder."""
    return f"plugbay manifest {shlex.quote(str(folder))} writes one from its source"


def absence_hint(folder: Path) -> str:
    """The hint: a folder with a source and no manifest yet needs `plugbay manifest`."""
    if (folder / SOURCE).is_file() or any(map(uses_sdk, folder.glob("*.py"))):
        return manifest_hint(folder)
    return "name the folder of one plugin, which holds its manifest"


def uses_sdk(file: Path) -> bool:
    """Whether a Python source uses the SDK; large files are not read."""
    return file.is_file() and file.stat().st_size <= MAX_SOURCE and b"plugbay.sdk" in file.read_bytes()


def _describe_absence(found: Found) -> str:
    if not found.root.exists():
        return f"{found.root} does not exist"
    if not found.root.is_dir():
        return f"{found.root} is neither the folder of a plugin nor a manifest"
    return found.problems[0].message


def count_problems(problems: Sequence[Problem]) -> str:
    """`2 errors, 1 warning`."""
    errors = sum(problem.severity == "error" for problem in problems)
    parts = [(errors, "error"), (len(problems) - errors, "warning")]
    return ", ".join(_count(number, word) for number, word in parts if number)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
