"""Finds the plugin of a PATH argument: a plugin's folder, or a manifest in it. Reads files and starts nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from plugbay.cli.exit_codes import Exit

if TYPE_CHECKING:
    from plugbay.host.discovery.folders import Found


def folder_of(path: Path) -> Path:
    """The folder of a manifest; any other path unchanged."""
    from plugbay.contracts.registry import contract_of

    return path.parent if contract_of(path.name) and path.is_file() else path


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
    """The manifest's file name; empty when it is not known which contract this is."""
    from plugbay.contracts.registry import CONTRACTS

    names = CONTRACTS[found.contract].manifest_files if found.contract else ()
    return next((name for name in names if (found.root / name).exists()), "")
