"""Canaries: correct plugins of ainb, vai and MCP that can break each axis of the kit in a chosen way.

Owns the format of `canary_programs/<contract>/canaries.json`, and the folder of a canary. An axis of ainb has a program
of its own, named after it; vai and MCP have one program each. The first argument, KIND, names the way to break it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from plugbay.conformance.bad_plugins.catalogue import FOLDER
from plugbay.conformance.engine import manifests
from plugbay.contracts.ainb.spec import FILE_NAME
from plugbay.contracts.mcp import spec as mcp
from plugbay.contracts.vai import spec as vai

PROGRAMS = Path(__file__).parent / "canary_programs"

NAME = "canary"
"""Of every canary, its folder and its program."""


VAI_FILES = ("canary.py", "echo_input.json", "echo_output.json", "four.py", "talking.py", "working.py")

VAI_EXPORTS: tuple[dict[str, Any], ...] = (
    {
        "id": "echo",
        "kind": "tool",
        "display_name": "Echo",
        "max_concurrency": 4,
        "permissions": {"secret_slots": ["token"]},
        "tool": {"effect_class": "read_only", "input_schema": VAI_FILES[1], "output_schema": VAI_FILES[2]},
    },
    {"id": "note", "kind": "hook", "display_name": "Note", "hook": {"subscribes_to": ["run.completed"]}},
    {
        "id": "shorten",
        "kind": "compactor",
        "display_name": "Shorten",
        "permissions": {"filesystem": "scratch"},
        "compactor": {"target_context": "coding"},
    },
    {"id": "walk", "kind": "harness", "display_name": "Walk", "harness": {"fidelity": "checkpoint"}},
)
"""One export of each kind, which is all that the axes of vai are about."""


class Canary(BaseModel):
    """A plugin whose manifest implies one axis, and the ways in which it can break that axis and no other."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    axis: str
    """Without the contract; the file is called so, too."""
    broken: dict[str, str] = Field(min_length=1)
    """KIND → the check that finds it."""
    capabilities: dict[str, Any] = {}
    provides: dict[str, Any] = {}
    subscribes: dict[str, Any] = {}


def load_canaries(contract: str = "ainb") -> list[Canary]:
    """In the order of the axes."""
    text = (PROGRAMS / contract / "canaries.json").read_text("utf-8")
    return [Canary.model_validate(item) for item in json.loads(text)]


def prepare_vai_canary(tmp: Path, kind: str = "", exports: Sequence[Any] = VAI_EXPORTS) -> Path:
    """A folder with the canary of vai; with a `kind`, broken in that way."""
    root = tmp / NAME
    root.mkdir(parents=True)
    for source in (manifests.LIGHT_JSON, FOLDER / "vai" / "child.py", *(PROGRAMS / "vai" / name for name in VAI_FILES)):
        shutil.copyfile(source, root / source.name)
    text = manifests.vai_manifest(f"plugbay/{NAME}", VAI_FILES[0], kind, exports)
    (root / vai.FILE_NAME).write_text(text, "utf-8")
    return root


MCP_FILES = ("canary.py", "changes.py", "serving.py", "talking.py", "working.py")


def prepare_mcp_canary(tmp: Path, kind: str = "") -> Path:
    """A folder with the canary of MCP; with a `kind`, broken in that way."""
    root = tmp / NAME
    root.mkdir(parents=True)
    for source in (manifests.LIGHT_JSON, *(PROGRAMS / "mcp" / name for name in MCP_FILES)):
        shutil.copyfile(source, root / source.name)
    text = manifests.mcp_manifest(NAME, ["python3", "-E", "-S", MCP_FILES[0], *([kind] if kind else [])])
    (root / mcp.FILE_NAME).write_text(text, "utf-8")
    return root


def prepare_canary(canary: Canary, tmp: Path, kind: str = "") -> Path:
    """A folder with this canary of ainb; with a `kind`, broken in that way."""
    root = tmp / NAME
    root.mkdir(parents=True)
    for source in (manifests.LIGHT_JSON, FOLDER / "ainb" / "child.py", PROGRAMS / "ainb" / f"{canary.axis}.py"):
        shutil.copyfile(source, root / source.name)
    sections = {key: getattr(canary, key) for key in ("capabilities", "provides", "subscribes")}
    (root / FILE_NAME).write_text(manifests.ainb_manifest(NAME, sections), "utf-8")
    manifests.install(root, NAME, f"{canary.axis}.py", kind)
    return root
