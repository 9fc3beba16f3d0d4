"""`FakePlugin`: a plugin of any contract in its own folder, with a real process that follows a script.

The folder holds a valid manifest, the script, and a record of calls. The process uses the SDK, so everything that a
fault does not touch is correct.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plugbay.sdk import Plugin, manifests
from plugbay.sdk.contracts.ainb import ainb_name
from plugbay.testing.faults import Fault
from plugbay.testing.script import Script, make_script

SCRIPT, RECORD = "script.json", "record.jsonl"

COMMAND = (sys.executable, "-m", "plugbay.testing.child", SCRIPT)
"""Run in the plugin's folder, where the contract's manifest allows it."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a fake plugin."""

    tool: str
    input: Any
    pid: int


class FakePlugin:
    """A plugin that follows a script: `Host.load(fake.path)`."""

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
        """Create it in a new folder below `folder`. Each tool returns a value, or follows `answers`, `fails`, `in_turn`
        or a fault.
        """
        if contract not in _WRITERS:
            raise ValueError(f"there are no fake plugins of the contract {contract!r}, only of {', '.join(_WRITERS)}")
        self.contract = contract
        self.path = folder / ainb_name(id)
        self.path.mkdir(parents=True)
        script = make_script(id, version, tools, fault)
        (self.path / SCRIPT).write_text(json.dumps(script.to_json()), "utf-8")
        _WRITERS[contract](declare(script), self.path)

    @property
    def calls(self) -> list[Call]:
        """All calls so far, over all processes, in order."""
        return [Call(**entry) for entry in self._record() if "tool" in entry]

    @property
    def pids(self) -> list[int]:
        """Process ids of all processes, in order."""
        return [entry["pid"] for entry in self._record() if "tool" not in entry]

    def _record(self) -> list[dict[str, Any]]:
        try:
            text = (self.path / RECORD).read_text("utf-8")
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines()]


def declare(script: Script) -> Plugin:
    """The plugin of a script, for its manifest; its tools do nothing."""
    plugin = Plugin(script.id, script.version, description="A fake, for tests.")
    for name in script.tools:
        plugin.tool(name, description="Does what a test says.", input_schema={"type": "object"})(_nothing)
    return plugin


def _nothing(input: Any) -> None:
    """Replaced by the script in the process."""


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
