"""The fuzz targets: each takes bytes and raises for a broken promise. A module is loaded when its target is used."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

Target = Callable[[bytes], None]

TARGETS = ("framing", "json_text", "machines", "manifests", "archives", "signatures", "egress", "http")


def load(name: str) -> Target:
    """The target of this name: the function `check` of its module."""
    check: Target = import_module(f"tests.fuzz.targets.{name}").check
    return check


def pieces(data: bytes, size: int) -> list[bytes]:
    """The bytes as a peer may send them: in pieces of this size."""
    size = max(size, 1)
    return [data[at : at + size] for at in range(0, len(data), size)]
