"""Which contracts exist, how a folder of each is recognised, and how each one's machine is made.

The only place that lists contracts. Adding one is adding one entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from plugbay.contracts.base import Machine, Role
from plugbay.contracts.nexo import manifest as nexo_manifest
from plugbay.contracts.nexo.machine import NexoMachine
from plugbay.contracts.rune import manifest as rune_manifest
from plugbay.contracts.rune.machine import RuneMachine
from plugbay.model.errors import Problem
from plugbay.model.spec import PluginSpec

if TYPE_CHECKING:
    from plugbay.wire.strict_json import Codec


@dataclass(frozen=True, slots=True)
class Contract:
    """One contract, as the host and the kit use it."""

    name: str
    machine: type[Machine]
    manifest_files: tuple[str, ...]
    parse_manifest: Callable[[str, Path, Mapping[str, str]], tuple[PluginSpec | None, list[Problem]]]
    """(text, folder, the host's environment) → the spec and every problem; no spec when one is an error."""
    host_machine: Callable[[PluginSpec, tuple[str, ...], Codec, int], Machine]
    """(spec, granted capabilities, codec, random 64-bit number) → a HOST machine, ready to greet."""


def _rune_host(spec: PluginSpec, granted: tuple[str, ...], codec: Codec, nonce: int) -> Machine:
    return RuneMachine(Role.HOST, codec, plugin_id=spec.id, granted=granted, nonce=nonce)


def _nexo_host(spec: PluginSpec, granted: tuple[str, ...], codec: Codec, nonce: int) -> Machine:
    tools = tuple(export.name for export in spec.exports if export.kind == "tool")
    return NexoMachine(Role.HOST, codec, plugin_id=spec.id, tools=tools)


CONTRACTS: dict[str, Contract] = {
    contract.name: contract
    for contract in (
        Contract("rune", RuneMachine, (rune_manifest.FILE_NAME,), rune_manifest.parse, _rune_host),
        Contract("nexo", NexoMachine, (nexo_manifest.FILE_NAME,), nexo_manifest.parse, _nexo_host),
    )
}


def contract_of(file_name: str) -> Contract | None:
    """The contract whose manifest has this file name."""
    return next((contract for contract in CONTRACTS.values() if file_name in contract.manifest_files), None)
