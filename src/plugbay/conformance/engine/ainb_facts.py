"""Named values for the scenarios of ainb: its greeting, and the topics, paths and methods that the manifest allows.

Reads the manifest file again instead of the spec, because some scenarios check that the plugin returns it unchanged.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from typing import Any

from plugbay.contracts.ainb.manifest import FILE_NAME
from plugbay.contracts.ainb.messages import ABI_VERSION, INIT, granted_names
from plugbay.model.spec import PluginSpec

RESERVED_TOPICS = ("ui.close_request", "ui.state")
"""What any plugin with the bus may publish to, although no manifest names it."""

GATED = {
    "topic": ("host/snapshot/get", "host/snapshot/subscribe", "host/snapshot/publish"),
    "network": ("host/network/fetch",),
    "read_path": ("host/fs/read_dir", "host/fs/read_file"),
}
"""Kind of access → the methods that need it."""


def facts(spec: PluginSpec) -> Mapping[str, Any]:
    """Named values of every conversation with this plugin."""
    manifest = tomllib.loads((spec.root / FILE_NAME).read_text("utf-8"))
    publications = list(manifest.get("provides", {}).get("snapshots", []))
    kinds = {access.kind for access in spec.access}
    path = str(spec.root / FILE_NAME)
    return {
        "manifest": manifest,
        "init": _init(path, granted_names(spec.capabilities)),
        "init_ungranted": _init(path, []),
        "init_elsewhere": _init("/nonexistent/plugbay/manifest.toml", granted_names(spec.capabilities)),
        "publications": publications,
        "may_publish": [*publications, *RESERVED_TOPICS],
        "bus": [access.target or "*" for access in spec.access if access.kind == "topic"],
        "read_roots": [os.path.expanduser(access.target) for access in spec.access if access.kind == "read_path"],
        "gated_methods": [method for kind, methods in GATED.items() if kind in kinds for method in methods],
    }


def _init(manifest_path: str, granted: list[str]) -> dict[str, Any]:
    params = {
        "manifest_path": manifest_path,
        "granted_capabilities": granted,
        "abi_version": ABI_VERSION,
        "config": None,
    }
    return {"jsonrpc": "2.0", "id": 1, "method": INIT, "params": params}
