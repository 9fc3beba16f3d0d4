"""`FakePlugin`: a plugin of any contract in a folder of its own, whose process does what a test says.

Owns the folder: a manifest that is correct, a script, and a record of what the process was asked. The process is real
and speaks through the SDK, so that whatever a fault leaves alone is as it should be.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plugbay.contracts.registry import CONTRACTS
from plugbay.sdk import Plugin, manifests
from plugbay.sdk.contracts.ainb import ainb_name
from plugbay.testing.faults import Fault
from plugbay.testing.script import Script, script_of

SCRIPT, RECORD = "script.json", "record.jsonl"

COMMAND = (sys.executable, "-m", "plugbay.testing.child", SCRIPT)
"""Started in the plugin's folder, wherever the contract lets a manifest say that."""


@dataclass(frozen=True, slots=True)
class Call:
    """What a process of a fake plugin was asked."""

    tool: str
    input: Any
    pid: int


class FakePlugin:
    """A plugin that does as it is told: `Host.load(fake.path)`."""

    def __init__(
        self,
        folder: Path,
        tools: Mapping[str, Any],
        *,
        contract: str = "nexo",
        id: str = "fake",
        version: str = "1.0.0",
        fault: Fault | None = None,
    ) -> None:
        """Made in a new folder below `folder`. What each tool does is a value, or one of the words of a script."""
        if contract not in CONTRACTS:
            raise ValueError(f"there is no contract {contract!r}; there is {', '.join(CONTRACTS)}")
        self.contract = contract
        self.path = folder / ainb_name(id)
        self.path.mkdir(parents=True)
        script = script_of(contract, id, version, tools, fault)
        (self.path / SCRIPT).write_text(json.dumps(script.to_json()), "utf-8")
        _WRITERS[contract](declared(script), self.path)

    @property
    def calls(self) -> list[Call]:
        """What was asked so far, over all processes, in order."""
        return [Call(**said) for said in self._record() if "tool" in said]

    @property
    def pids(self) -> list[int]:
        """Every process that was started, in order."""
        return [said["pid"] for said in self._record() if "tool" not in said]

    def _record(self) -> list[dict[str, Any]]:
        try:
            text = (self.path / RECORD).read_text("utf-8")
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines()]


def declared(script: Script) -> Plugin:
    """The plugin of a script, whose tools do nothing."""
    plugin = Plugin(script.id, script.version, description="A fake, for tests.")
    for name in script.tools:
        plugin.tool(name, description="Does what a test says.", input_schema={"type": "object"})(_nothing)
    return plugin


def _nothing(input: Any) -> None:
    """What it really does is in the script."""


def _rune(plugin: Plugin, folder: Path) -> None:
    (folder / "rterm-plugin.json").write_text(manifests.rune_manifest(plugin, COMMAND), "utf-8")


def _nexo(plugin: Plugin, folder: Path) -> None:
    (folder / "nexo-plugin.toml").write_text(manifests.nexo_manifest(plugin, COMMAND), "utf-8")


def _kaged(plugin: Plugin, folder: Path) -> None:
    (folder / "kaged-plugin.yaml").write_text(manifests.kaged_manifest(plugin, COMMAND), "utf-8")


def _ainb(plugin: Plugin, folder: Path) -> None:
    (folder / "manifest.toml").write_text(manifests.ainb_manifest(plugin), "utf-8")
    program = folder / folder.name
    program.write_text(f'#!/bin/sh\ncd "${{0%/*}}" && exec {shlex.join(COMMAND)}\n', "utf-8")
    program.chmod(0o755)


def _vai(plugin: Plugin, folder: Path) -> None:
    for path, text in manifests.vai_files(plugin).items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text, "utf-8")
    program = folder / manifests.VAI_PROGRAM
    program.write_text(f'#!/bin/sh\ncd "${{0%/*}}/.." && exec {shlex.join(COMMAND)}\n', "utf-8")
    program.chmod(0o755)


def _mcp(plugin: Plugin, folder: Path) -> None:
    (folder / ".mcp.json").write_text(manifests.mcp_manifest(plugin, COMMAND), "utf-8")


_WRITERS = {"rune": _rune, "nexo": _nexo, "kaged": _kaged, "ainb": _ainb, "vai": _vai, "mcp": _mcp}
