"""Plugins in folders, for tests of hosts: `FakePlugin`, `bad_plugin` and `replay_plugin`.

Each has a valid manifest and a real process: one that follows a script, a program of the conformance kit, or
`plugbay replay` with a recording. The process of a fake plugin uses the SDK, so everything that a fault does not touch
is correct.
"""

from __future__ import annotations

import difflib
import io
import json
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import tomlkit
from ruamel.yaml import YAML

from plugbay.conformance.bad_plugins.catalogue import FOLDER, SETUPS, Entry, load_catalog, prepare
from plugbay.contracts.registry import CONTRACTS
from plugbay.link import recording
from plugbay.sdk import Plugin, manifests
from plugbay.sdk.contracts.ainb import ainb_name
from plugbay.testing.faults import Fault
from plugbay.testing.script import Script, make_script

# A plugin that follows a script.

SCRIPT, RECORD = "script.json", "record.jsonl"

COMMAND = (sys.executable, "-m", "plugbay.testing.child", SCRIPT)
"""Run in the plugin's folder, where the contract's manifest allows it."""


class Call(msgspec.Struct, frozen=True):
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
        for path, text in _WRITERS[contract](declare(script)).items():
            _write(self.path / path, text)

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
        plugin.tool(name, description="Answers as a test says.", input_schema={"type": "object"})(_nothing)
    return plugin


def _nothing(input: Any) -> None:
    """Replaced by the script in the process."""


def _write(file: Path, text: str) -> None:
    """Write a file of a plugin; a program replaces a link instead of writing through it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    file.write_text(text, "utf-8")
    if text.startswith("#!"):
        file.chmod(0o755)


def _program(folder: str) -> str:
    """A program that runs the script; `folder` is that of the script, relative to the program."""
    return f'#!/bin/sh\ncd "${{0%/*}}{folder}" && exec {shlex.join(COMMAND)}\n'


_WRITERS: dict[str, Callable[[Plugin], dict[str, str]]] = {
    "rune": lambda plugin: {"rterm-plugin.json": manifests.rune_manifest(plugin, COMMAND)},
    "nexo": lambda plugin: {"nexo-plugin.toml": manifests.nexo_manifest(plugin, COMMAND)},
    "kaged": lambda plugin: {"kaged-plugin.yaml": manifests.kaged_manifest(plugin, COMMAND)},
    "ainb": lambda plugin: {"manifest.toml": manifests.ainb_manifest(plugin), ainb_name(plugin.id): _program("")},
    "vai": lambda plugin: {**manifests.vai_files(plugin), manifests.VAI_PROGRAM: _program("/..")},
    "mcp": lambda plugin: {".mcp.json": manifests.mcp_manifest(plugin, COMMAND)},
}
"""The files of a fake plugin of each contract, by path."""


# A plugin of the conformance kit.


class BadPlugin(msgspec.Struct, frozen=True):
    """A plugin that breaks one rule: `Host.load(bad.path)`."""

    path: Path
    id: str
    what: str
    """What it does wrong."""
    way: str
    """How it is called: `call`, `fire`, `compact`, `run`, `render` or `press`."""
    tool: str
    """The export to call."""
    input: Any
    expect: str
    """The expected outcome: a failure code, or `succeeded`."""


def bad_plugin(name: str, folder: Path) -> BadPlugin:
    """Create the bad plugin `contract/name` in a new folder below `folder`."""
    contract, _, called = name.partition("/")
    if contract not in SETUPS:
        raise ValueError(f"{name!r} is not a bad plugin: write contract/name, with one of {', '.join(SETUPS)}")
    entries = {entry.name: entry for entry in load_catalog(contract)}
    if called not in entries:
        near = difflib.get_close_matches(called, entries, n=3) or list(entries)[:12]
        raise ValueError(f"{contract} has no bad plugin {called!r}; there is {', '.join(near)}")
    entry: Entry = entries[called]
    root = prepare(entry, folder, FOLDER / contract)
    expect = str(entry.expect.code or entry.expect.outcome)
    return BadPlugin(root, entry.plugin_id, entry.what, entry.way, entry.tool, entry.given(), expect)


# A recording in place of a plugin.


def replay_plugin(file: str | Path, like: str | Path, folder: Path, *, loose: bool = False) -> Path:
    """Create a plugin below `folder` with the manifest of `like` that answers from the recording `file`.

    Requests must equal the recorded ones; with `loose`, an equal name is enough. Raises `BadRecording`,
    `ValueError` for a contract that is not supported, and `FileNotFoundError` when `like` has no manifest.
    """
    path, like = Path(file).resolve(), Path(like).resolve()
    with path.open("rb") as lines:
        contract = recording.read(lines).header.contract
    if contract not in _REDIRECTIONS:
        raise ValueError(
            f"no recording of the contract {contract!r} can be replayed, only of {', '.join(_REDIRECTIONS)}"
        )
    present = [name for name in CONTRACTS[contract].manifest_files if (like / name).exists()]
    if not present:
        known = " or ".join(CONTRACTS[contract].manifest_files)
        raise FileNotFoundError(f"the recording is of {contract}, and there is no {known} in {like}")
    command = [sys.executable, "-m", "plugbay", "replay", str(path), *(["--loose"] if loose else [])]
    root = folder / like.name
    shutil.copytree(like, root)
    manifest = root / present[0]
    manifest.write_text(_REDIRECTIONS[contract](manifest.read_text("utf-8"), command, root), "utf-8")
    return root


def _redirect_rune(text: str, command: Sequence[str], root: Path) -> str:
    manifest = json.loads(text)
    manifest["process"] |= {"command": command[0], "args": list(command[1:])}
    return json.dumps(manifest, indent=2)


def _redirect_nexo(text: str, command: Sequence[str], root: Path) -> str:
    manifest = tomlkit.parse(text)
    plugin = manifest["plugin"]
    plugin["entrypoint"] = {**plugin["entrypoint"], "command": command[0], "args": list(command[1:])}
    return tomlkit.dumps(manifest)


def _redirect_kaged(text: str, command: Sequence[str], root: Path) -> str:
    yaml, out = YAML(), io.StringIO()
    manifest = yaml.load(text)
    manifest["command"] = list(command)
    yaml.dump(manifest, out)
    return out.getvalue()


def _redirect_ainb(text: str, command: Sequence[str], root: Path) -> str:
    """The program is beside the manifest and has the plugin's name."""
    _write(root / str(tomlkit.parse(text)["plugin"]["name"]), f"#!/bin/sh\nexec {shlex.join(command)}\n")
    return text


def _redirect_vai(text: str, command: Sequence[str], root: Path) -> str:
    """The program may be anywhere in the package."""
    _write(root / "plugbay-replay", f"#!/bin/sh\nexec {shlex.join(command)}\n")
    manifest = tomlkit.parse(text)
    manifest["runtime"]["entrypoint"] = ["./plugbay-replay"]
    return tomlkit.dumps(manifest)


def _redirect_mcp(text: str, command: Sequence[str], root: Path) -> str:
    servers = {name: {"command": command[0], "args": list(command[1:])} for name in json.loads(text)["mcpServers"]}
    return json.dumps({"mcpServers": servers}, indent=2)


_REDIRECTIONS: dict[str, Callable[[str, Sequence[str], Path], str]] = {
    "rune": _redirect_rune,
    "nexo": _redirect_nexo,
    "kaged": _redirect_kaged,
    "ainb": _redirect_ainb,
    "vai": _redirect_vai,
    "mcp": _redirect_mcp,
}
"""Points the manifest of each contract at another command."""
