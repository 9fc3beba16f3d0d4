"""ainb as one value: `CONTRACT`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from plugbay.contracts.ainb.errors import INTERNAL_ERROR
from plugbay.contracts.ainb.messages import ABI_VERSION, MAX_BODY
from plugbay.contracts.ainb.spec import FILE_NAME, IDLE_SECONDS, TIMEOUTS
from plugbay.contracts.base import Role
from plugbay.contracts.contract import Contract, HostSide, Parsed, Site
from plugbay.contracts.frames import Lengths, rpc_rules
from plugbay.model.spec import PluginSpec

if TYPE_CHECKING:
    from plugbay.contracts.ainb.machine import AinbMachine
    from plugbay.wire.strict_json import Codec


def _machine() -> type[AinbMachine]:
    from plugbay.contracts.ainb.machine import AinbMachine

    return AinbMachine


def _host_machine(spec: PluginSpec, side: HostSide, codec: Codec) -> AinbMachine:
    return _machine()(
        Role.HOST,
        codec,
        plugin_name=spec.id,
        version=spec.version,
        manifest_path=str(spec.root / FILE_NAME),
        granted=side.granted,
        config=None if side.config is None else dict(side.config),
        host_pid=side.pid or None,
    )


def _parse(text: str, root: Path, environ: Mapping[str, str], site: Site) -> Parsed:
    from plugbay.contracts.ainb.manifest import parse  # its models are loaded for the first manifest

    return parse(text, root, environ)


def _not_ours(text: str) -> str | None:
    from plugbay.contracts.ainb.manifest import not_ours

    return not_ours(text)


def _folder_name(text: str) -> str | None:
    from plugbay.contracts.ainb.manifest import declared_name

    return declared_name(text)


CONTRACT = Contract(
    name="ainb",
    title="ainb plugin contract v2",
    version=ABI_VERSION,
    machine=_machine,
    host_machine=_host_machine,
    manifest_files=(FILE_NAME,),
    parse_manifest=_parse,
    not_ours=_not_ours,
    program_inside=True,
    folder_name=_folder_name,
    timeouts=TIMEOUTS,
    idle_seconds=float(IDLE_SECONDS),
    framing=Lengths,
    max_host_message=MAX_BODY,
    max_plugin_message=MAX_BODY,
    frame_rules=rpc_rules(INTERNAL_ERROR, "/params/manifest_path", "/params/host/pid", "/params/generation"),
)
