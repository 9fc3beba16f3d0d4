"""`plugin_in`: the plugin of one Python file, used without a manifest on disk.

The file is loaded in a separate process, as by `plugbay manifest`, and the manifest that this would write is parsed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from plugbay.cli.manifest import generated
from plugbay.contracts.registry import contract_of
from plugbay.model.errors import Problem

if TYPE_CHECKING:
    from plugbay.host.discovery.folders import Found

APPROVED = "mcp"
"""The contract whose exports need an approval; used where no other one has the declarations."""


def plugin_in(source: Path, prefer: str = "") -> Found:
    """The plugin of a source, under the preferred contract, or the first that leaves nothing out; raises `Unusable`."""
    from plugbay.host.discovery.folders import Found

    root = source.resolve().parent
    declared = generated.read_declarations(source)
    possible = {name: entry for name, entry in declared.contracts.items() if _is_possible(entry, root)}
    if not possible:
        reasons = "; ".join(f"{name}: {entry['why_not']}" for name, entry in declared.contracts.items())
        raise generated.Unusable(f"no contract takes the declarations of {source} without more files: {reasons}")
    contract = min(possible, key=lambda name: (name != prefer, name == APPROVED, bool(possible[name]["left_out"])))
    entry = possible[contract]
    spec, problems = generated.parse_files({file["path"]: file["text"] for file in entry["files"]}, root)
    left_out = [
        Problem("left_out", "", f"{contract} has no {words}", severity="warning") for words in entry["left_out"]
    ]
    return Found(root, contract, spec and replace(spec, root=root), (*problems, *left_out))


def _is_possible(entry: dict[str, Any], root: Path) -> bool:
    """Whether one manifest is all that the contract needs beside the source."""
    files = [file["path"] for file in entry["files"]] if not entry["why_not"] else []
    return len(files) == 1 and contract_of(files[0]) is not None and entry["folder"] in (None, root.name)
