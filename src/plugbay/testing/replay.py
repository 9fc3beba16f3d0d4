"""`replay_plugin`: a recording in place of a plugin's program.

Copies the plugin's folder and points the manifest at `plugbay replay`.
"""

from __future__ import annotations

import io
import json
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import tomlkit
from ruamel.yaml import YAML

from plugbay.contracts.registry import CONTRACTS
from plugbay.link import recording


def replay_plugin(file: str | Path, like: str | Path, folder: Path, *, loose: bool = False) -> Path:
    """Create a plugin below `folder` with the manifest of `like` that answers from the recording `file`.

    Requests must equal the recorded ones; with `loose`, an equal name is enough. Raises `BadRecording`,
    `ValueError` for a contract that is not supported, and `FileNotFoundError` when `like` has no manifest.
    """
    path, like = Path(file).resolve(), Path(like).resolve()
    with path.open("rb") as lines:
        contract = recording.read(lines).header.contract
    if contract not in _REDIRECT:
        raise ValueError(f"a plugin of the contract {contract!r} cannot be replaced, only of {', '.join(_REDIRECT)}")
    manifests = [name for name in CONTRACTS[contract].manifest_files if (like / name).exists()]
    if not manifests:
        known = " or ".join(CONTRACTS[contract].manifest_files)
        raise FileNotFoundError(f"the recording is of {contract}, and there is no {known} in {like}")
    command = [sys.executable, "-m", "plugbay", "replay", str(path), *(["--loose"] if loose else [])]
    root = folder / like.name
    shutil.copytree(like, root)
    manifest = root / manifests[0]
    manifest.write_text(_REDIRECT[contract](manifest.read_text("utf-8"), command, root), "utf-8")
    return root


# The place of the command in the manifest of each contract.


def _rune(text: str, command: Sequence[str], root: Path) -> str:
    manifest = json.loads(text)
    manifest["process"] |= {"command": command[0], "args": list(command[1:])}
    return json.dumps(manifest, indent=2)


def _nexo(text: str, command: Sequence[str], root: Path) -> str:
    manifest = tomlkit.parse(text)
    plugin = manifest["plugin"]
    plugin["entrypoint"] = {**plugin["entrypoint"], "command": command[0], "args": list(command[1:])}
    return tomlkit.dumps(manifest)


def _kaged(text: str, command: Sequence[str], root: Path) -> str:
    yaml, out = YAML(), io.StringIO()
    manifest = yaml.load(text)
    manifest["command"] = list(command)
    yaml.dump(manifest, out)
    return out.getvalue()


def _ainb(text: str, command: Sequence[str], root: Path) -> str:
    """The program is beside the manifest and has the plugin's name."""
    _install(root / str(tomlkit.parse(text)["plugin"]["name"]), command)
    return text


def _vai(text: str, command: Sequence[str], root: Path) -> str:
    """The program may be anywhere in the package."""
    _install(root / "plugbay-replay", command)
    manifest = tomlkit.parse(text)
    manifest["runtime"]["entrypoint"] = ["./plugbay-replay"]
    return tomlkit.dumps(manifest)


def _mcp(text: str, command: Sequence[str], root: Path) -> str:
    servers = {name: {"command": command[0], "args": list(command[1:])} for name in json.loads(text)["mcpServers"]}
    return json.dumps({"mcpServers": servers}, indent=2)


def _install(program: Path, command: Sequence[str]) -> None:
    program.unlink(missing_ok=True)
    program.write_text(f"#!/bin/sh\nexec {shlex.join(command)}\n", "utf-8")
    program.chmod(0o755)


_REDIRECT: dict[str, Callable[[str, Sequence[str], Path], str]] = {
    "rune": _rune,
    "nexo": _nexo,
    "kaged": _kaged,
    "ainb": _ainb,
    "vai": _vai,
    "mcp": _mcp,
}
