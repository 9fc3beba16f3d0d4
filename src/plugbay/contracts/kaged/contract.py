"""kaged as one value: `CONTRACT`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from plugbay.contracts.base import Role
from plugbay.contracts.contract import Contract, HostSide, Parsed, Site
from plugbay.contracts.frames import Lines, rpc_rules
from plugbay.contracts.kaged.errors import DEFINED
from plugbay.contracts.kaged.messages import API_VERSION, MAX_READ, SHUTDOWN_SECONDS
from plugbay.contracts.kaged.spec import FILE_NAMES, timeouts
from plugbay.model.spec import PluginSpec

if TYPE_CHECKING:
    from plugbay.contracts.kaged.machine import KagedMachine
    from plugbay.wire.strict_json import Codec


def _machine() -> type[KagedMachine]:
    from plugbay.contracts.kaged.machine import KagedMachine

    return KagedMachine


def _host_machine(spec: PluginSpec, side: HostSide, codec: Codec) -> KagedMachine:
    prefix = f"plugin.{spec.id}."
    return _machine()(
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


def _parse(text: str, root: Path, environ: Mapping[str, str], site: Site) -> Parsed:
    from plugbay.contracts.kaged.manifest import parse  # its models are loaded for the first manifest

    return parse(text, root, environ)


CONTRACT = Contract(
    name="kaged",
    title="kaged Plugin Interface Reference",
    version=API_VERSION,
    machine=_machine,
    host_machine=_host_machine,
    manifest_files=FILE_NAMES,
    parse_manifest=_parse,
    timeouts=timeouts(SHUTDOWN_SECONDS),
    framing=Lines,
    max_host_message=MAX_READ,
    max_plugin_message=MAX_READ,
    frame_rules=rpc_rules(DEFINED, "/params/daemon_version"),
)
