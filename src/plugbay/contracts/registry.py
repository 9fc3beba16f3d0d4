"""Which contracts exist, how a folder of each is recognised, and how each one's machine is made.

The only place that lists contracts. Adding one is adding one entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plugbay.contracts.ainb import manifest as ainb_manifest
from plugbay.contracts.ainb.machine import AinbMachine
from plugbay.contracts.base import Machine, Role
from plugbay.contracts.kaged import manifest as kaged_manifest
from plugbay.contracts.kaged.machine import KagedMachine
from plugbay.contracts.mcp import bundle as mcp_bundle
from plugbay.contracts.mcp import manifest as mcp_manifest
from plugbay.contracts.mcp.client import ClientMachine
from plugbay.contracts.mcp.machine import McpMachine
from plugbay.contracts.mcp.messages import HANDSHAKE
from plugbay.contracts.nexo import manifest as nexo_manifest
from plugbay.contracts.nexo.machine import NexoMachine
from plugbay.contracts.rune import manifest as rune_manifest
from plugbay.contracts.rune.machine import RuneMachine
from plugbay.contracts.vai import manifest as vai_manifest
from plugbay.contracts.vai.files import Site
from plugbay.contracts.vai.machine import VaiMachine
from plugbay.model.errors import Problem
from plugbay.model.spec import PluginSpec

if TYPE_CHECKING:
    from plugbay.wire.strict_json import Codec

HOST_VERSION = "0.1.0"
"""plugbay's own, for greetings that name it. Written again, because the package that has it leads to the host; a test
holds the two together."""


@dataclass(frozen=True, slots=True)
class HostSide:
    """What the host brings to a greeting, beside the spec."""

    granted: tuple[str, ...] = ()
    nonce: int = 0
    """A random 64-bit number."""
    config: Mapping[str, Any] | None = None
    secrets: Mapping[str, Any] | None = field(default=None, repr=False)
    projects: tuple[str, ...] = ()
    storage: bool = False
    """Whether the host keeps values for plugins."""
    pid: int = 0
    """The host's process; 0 when it is not to be told."""
    era: str = ""
    """How to greet, where the contract has changed its greeting; empty: as it does when nothing is known."""


Parsed = tuple[PluginSpec | None, list[Problem]]
Parse = Callable[[str, Path, Mapping[str, str]], Parsed]
ParseWithFiles = Callable[[str, Path, Mapping[str, str], Site], Parsed]


@dataclass(frozen=True, slots=True)
class Contract:
    """One contract, as the host and the kit use it."""

    name: str
    machine: type[Machine]
    manifest_files: tuple[str, ...]
    parse_manifest: ParseWithFiles
    """(text, folder, the host's environment, what lies there) → the spec and every problem; no spec when one is an
    error."""
    host_machine: Callable[[PluginSpec, HostSide, Codec], Machine]
    """A HOST machine, ready to greet."""
    not_ours: Callable[[str], str | None] | None = None
    """Where other programs have files of that name too: why a text is not a manifest of this contract, None when it is.
    Such a file counts for nothing beside the manifest of another contract.
    """
    program_inside: bool = False
    """The program is a part of the plugin's folder, so a plugin without it is broken."""
    folder_name: Callable[[str], str | None] | None = None
    """Where the folder's name matters: which one it must have, by the manifest's text; None when that says none."""


def _rune_host(spec: PluginSpec, side: HostSide, codec: Codec) -> Machine:
    return RuneMachine(Role.HOST, codec, plugin_id=spec.id, granted=side.granted, nonce=side.nonce)


def _nexo_host(spec: PluginSpec, side: HostSide, codec: Codec) -> Machine:
    tools = tuple(export.name for export in spec.exports if export.kind == "tool")
    return NexoMachine(Role.HOST, codec, plugin_id=spec.id, tools=tools)


def _kaged_host(spec: PluginSpec, side: HostSide, codec: Codec) -> Machine:
    prefix = f"plugin.{spec.id}."
    return KagedMachine(
        Role.HOST,
        codec,
        plugin_name=spec.id,
        version=spec.version,
        methods=tuple(export.name for export in spec.exports if export.kind == "method"),
        tools=tuple(export.name for export in spec.exports if export.kind == "tool"),
        capabilities=spec.capabilities,
        notifications=tuple(topic.removeprefix(prefix) for topic in spec.publishes),
        granted=side.granted,
        storage=side.storage,
        projects=side.projects,
        config=None if side.config is None else dict(side.config),
        system_config=None if side.secrets is None else dict(side.secrets),
    )


def _ainb_host(spec: PluginSpec, side: HostSide, codec: Codec) -> Machine:
    return AinbMachine(
        Role.HOST,
        codec,
        plugin_name=spec.id,
        version=spec.version,
        manifest_path=str(spec.root / ainb_manifest.FILE_NAME),
        granted=side.granted,
        config=None if side.config is None else dict(side.config),
        host_pid=side.pid or None,
    )


def _vai_host(spec: PluginSpec, side: HostSide, codec: Codec) -> Machine:
    return VaiMachine(Role.HOST, codec, package_id=spec.id, version=spec.version, host_version=HOST_VERSION)


def _mcp_host(spec: PluginSpec, side: HostSide, codec: Codec) -> Machine:
    client = {"name": "plugbay", "version": HOST_VERSION}
    granted = frozenset(side.granted).intersection(spec.optional_capabilities)
    return ClientMachine(codec, era=side.era or HANDSHAKE, client=client, offers=granted)


def _alone(parse: Parse) -> ParseWithFiles:
    """For contracts whose manifests say everything themselves."""
    return lambda text, root, environ, site: parse(text, root, environ)


CONTRACTS: dict[str, Contract] = {
    contract.name: contract
    for contract in (
        Contract("rune", RuneMachine, (rune_manifest.FILE_NAME,), _alone(rune_manifest.parse), _rune_host),
        Contract("nexo", NexoMachine, (nexo_manifest.FILE_NAME,), _alone(nexo_manifest.parse), _nexo_host),
        Contract("kaged", KagedMachine, kaged_manifest.FILE_NAMES, _alone(kaged_manifest.parse), _kaged_host),
        Contract(
            "ainb",
            AinbMachine,
            (ainb_manifest.FILE_NAME,),
            _alone(ainb_manifest.parse),
            _ainb_host,
            not_ours=ainb_manifest.not_ours,
            program_inside=True,
            folder_name=ainb_manifest.declared_name,
        ),
        Contract("vai", VaiMachine, (vai_manifest.FILE_NAME,), vai_manifest.parse, _vai_host),
        Contract(
            "mcp",
            McpMachine,
            (mcp_manifest.FILE_NAME, mcp_bundle.FILE_NAME),
            _alone(mcp_manifest.parse),
            _mcp_host,
            not_ours=mcp_manifest.not_ours,
        ),
    )
}


def contract_of(file_name: str) -> Contract | None:
    """The contract whose manifest has this file name."""
    return next((contract for contract in CONTRACTS.values() if file_name in contract.manifest_files), None)
