"""Manifests of each contract, read from a real folder: any bytes become a spec or problems, never an exception."""

from __future__ import annotations

import json
from pathlib import Path

from plugbay.contracts.registry import CONTRACTS
from plugbay.host.discovery.folders import inspect_all
from plugbay.model.spec import PluginSpec
from plugbay.packages.package import folder_name
from tests.fuzz.scratch import scratch_folder

FILES = [name for contract in CONTRACTS.values() for name in contract.manifest_files]
SEVERITIES = {"error", "warning"}


def check(data: bytes) -> None:
    """The first byte names the file."""
    if not data:
        return
    folder = scratch_folder("plugin")
    path = folder / FILES[data[0] % len(FILES)]
    try:
        path.write_bytes(data[1:])
        _check_folder(folder)
    finally:
        path.unlink()


def _check_folder(folder: Path) -> None:
    found = inspect_all(folder)
    assert found, "a folder is a plugin or a problem"
    for item in found:
        json.dumps([problem.to_json() for problem in item.problems]).encode()
        assert {problem.severity for problem in item.problems} <= SEVERITIES
        assert (item.spec is None) == bool(item.errors), "a spec, or a reason why there is none"
        if item.spec is not None:
            _check_spec(item.spec)


def _check_spec(spec: PluginSpec) -> None:
    assert spec.id and spec.version and spec.command and all(isinstance(part, str) for part in spec.command)
    name = folder_name(spec.id)
    assert name not in ("", ".", "..") and "/" not in name and "\0" not in name
    names = [(export.kind, export.name) for export in spec.exports]
    assert len(set(names)) == len(names), "an export appears twice"
