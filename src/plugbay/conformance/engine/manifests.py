"""Writes correct manifests for the kit's own plugins, and the shell program that ainb needs around a Python file."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plugbay.contracts.ainb.messages import ABI_VERSION
from plugbay.contracts.vai.manifest import API_VERSION
from plugbay.contracts.vai.messages import PROTOCOL

LIGHT_JSON = Path(__file__).parents[1] / "bad_plugins" / "programs" / "light_json.py"
"""Every program of the kit imports it from its own folder."""


def install(root: Path, name: str, file: str, kind: str = "") -> None:
    """Write the program `name` into `root`: it runs the file beside it, with `kind` as its argument."""
    text = f'#!/bin/sh\nexec python3 -E -S "${{0%/*}}"/{shlex.quote(file)} {shlex.quote(kind)}\n'
    program = root / name
    program.write_text(text, "utf-8")
    program.chmod(0o755)


def ainb_manifest(name: str, sections: Mapping[str, Mapping[str, Any]]) -> str:
    """A manifest of ainb; `plugin` in `sections` overrides the defaults."""
    plugin = {"name": name, "version": "1.0.0", "abi_version": ABI_VERSION, **sections.get("plugin", {})}
    tables = {"plugin": plugin, **{title: values for title, values in sections.items() if title != "plugin"}}
    return "\n".join(f"[{title}]\n{_lines(values)}" for title, values in tables.items() if values)


def vai_manifest(package_id: str, file: str, kind: str, exports: Sequence[Any], **over: Any) -> str:
    """A manifest of vai whose program is this file, with KIND as its argument; `over` overrides the defaults."""
    runtime = {
        "protocol": PROTOCOL,
        "transport": "stdio",
        "entrypoint": ["python3", "-E", "-S", file, *([kind] if kind else [])],
        "os": ["linux", "darwin"],
        "arch": ["amd64", "arm64"],
    }
    usual = {"api_version": API_VERSION, "package_id": package_id, "version": "1.0.0", "name": package_id}
    return "".join(f"{key} = {toml(value)}\n" for key, value in {**usual, **over, "runtime": runtime}.items()) + (
        f"exports = {toml(list(exports))}\n"
    )


def mcp_manifest(name: str, command: Sequence[str]) -> str:
    """A `.mcp.json` with one server in it."""
    program, *args = command
    return json.dumps({"mcpServers": {name: {"command": program, "args": args}}}, indent=2) + "\n"


def toml(value: Any) -> str:
    """A value as TOML writes it in one line; scalars look as in JSON."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def _lines(values: Mapping[str, Any]) -> str:
    """Texts, numbers, booleans and lists look in TOML as they do in JSON, and so do keys in quotes."""
    return "".join(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in values.items())
