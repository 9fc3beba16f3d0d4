"""Resolves the overlays of deploy/kubernetes: `resources`, and `patches` with a `path`. Nothing else of kustomize.

A patch changes the object with its kind, name and namespace. Mappings are merged; a list is merged by the key that
Kubernetes names for it, or replaced.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

KEYS = {
    "containers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "topologySpreadConstraints": "topologyKey",
}
KNOWN = {"apiVersion", "kind", "resources", "patches"}


def resolve(folder: Path) -> list[dict[str, Any]]:
    """The objects of a folder with a kustomization.yaml."""
    written = yaml.safe_load((folder / "kustomization.yaml").read_text("utf-8"))
    assert set(written) <= KNOWN, f"{folder}: this resolver knows only {KNOWN}"
    objects: dict[tuple[str, str, str], dict[str, Any]] = {}
    for name in written["resources"]:
        place = folder / name
        for item in resolve(place) if place.is_dir() else documents(place):
            assert identity(item) not in objects, f"{identity(item)} is there twice"
            objects[identity(item)] = item
    for patch in written.get("patches", ()):
        for change in documents(folder / patch["path"]):
            objects[identity(change)] = merge(objects[identity(change)], change)
    return list(objects.values())


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text("utf-8")))


def identity(item: dict[str, Any]) -> tuple[str, str, str]:
    found = item["metadata"]
    return item["kind"], found["name"], found.get("namespace", "")


def merge(old: Any, new: Any, key: str = "") -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{name: merge(old.get(name), value, name) for name, value in new.items()}}
    if isinstance(old, list) and isinstance(new, list) and key in KEYS:
        by = {item[KEYS[key]]: item for item in old}
        return list((by | {item[KEYS[key]]: merge(by.get(item[KEYS[key]]), item) for item in new}).values())
    return new
