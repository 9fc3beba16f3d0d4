"""ainb as one value: `CONTRACT`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugbay.contracts.ainb import manifest
from plugbay.contracts.ainb.errors import INTERNAL_ERROR
from plugbay.contracts.ainb.machine import AinbMachine
from plugbay.contracts.ainb.messages import ABI_VERSION, MAX_BODY
from plugbay.contracts.base import Role
from plugbay.contracts.contract import Contract, HostSide, text_only
from plugbay.contracts.frames import Lengths, rpc_rules
from plugbay.model.spec import PluginSpec

if TYPE_CHECKING:
    from plugbay.wire.strict_json import Codec


def _host_machine(spec: PluginSpec, side: HostSide, codec: Codec) -> AinbMachine:
    return AinbMachine(
        Role.HOST,
        codec,
        plugin_name=spec.id,
        version=spec.version,
        manifest_path=str(spec.root / manifest.FILE_NAME),
        granted=side.granted,
        config=None if side.config is None else dict(side.config),
        host_pid=side.pid or None,
    )


CONTRACT = Contract(
    name="ainb",
    title="ainb plugin contract v2",
    version=ABI_VERSION,
    machine=AinbMachine,
    host_machine=_host_machine,
    manifest_files=(manifest.FILE_NAME,),
    parse_manifest=text_only(manifest.parse),
    not_ours=manifest.not_ours,
    program_inside=True,
    folder_name=manifest.declared_name,
    timeouts=manifest.TIMEOUTS,
    idle_seconds=float(manifest.IDLE_SECONDS),
    framing=Lengths,
    max_host_message=MAX_BODY,
    max_plugin_message=MAX_BODY,
    frame_rules=rpc_rules(INTERNAL_ERROR, "/params/manifest_path", "/params/host/pid", "/params/generation"),
)
