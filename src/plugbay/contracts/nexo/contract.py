"""nexo as one value: `CONTRACT`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plugbay.contracts.base import Role
from plugbay.contracts.contract import Contract, HostSide, Parsed, Site
from plugbay.contracts.frames import PIECE, FrameRules, Lines, Turn, read_rpc, rpc_refusal
from plugbay.contracts.nexo.errors import INTERNAL_ERROR, TOOL_FAILED
from plugbay.contracts.nexo.messages import CHAT_DELTA, COMPLETE_DELTA, MAX_CHILD_LINE, MAX_HOST_LINE, NEXO_VERSION
from plugbay.contracts.nexo.spec import FILE_NAME, TIMEOUTS
from plugbay.model.spec import PluginSpec

if TYPE_CHECKING:
    from plugbay.contracts.nexo.machine import NexoMachine
    from plugbay.wire.strict_json import Codec


def _machine() -> type[NexoMachine]:
    from plugbay.contracts.nexo.machine import NexoMachine

    return NexoMachine


def _host_machine(spec: PluginSpec, side: HostSide, codec: Codec) -> NexoMachine:
    tools = tuple(export.name for export in spec.exports if export.kind == "tool")
    version = spec.host_version or NEXO_VERSION
    return _machine()(Role.HOST, codec, plugin_id=spec.id, tools=tools, nexo_version=version)


def _read_frame(speaker: str, frame: dict[str, Any]) -> Turn:
    """Parts of an answer are notifications that name the request."""
    method, params = frame.get("method"), frame.get("params")
    if method in (CHAT_DELTA, COMPLETE_DELTA) and isinstance(params, dict):
        return Turn(PIECE, str(method), params.get("request_id"))
    return read_rpc(speaker, frame)


def _with_id(frame: dict[str, Any], id: Any) -> dict[str, Any]:
    return {**frame, "id": id} if "id" in frame else {**frame, "params": {**frame["params"], "request_id": id}}


def _refusal(turn: Turn, message: str) -> dict[str, Any]:
    return rpc_refusal(turn.id, TOOL_FAILED if turn.name == "tool.invoke" else INTERNAL_ERROR, message)


def _parse(text: str, root: Path, environ: Mapping[str, str], site: Site) -> Parsed:
    from plugbay.contracts.nexo.manifest import parse  # its models are loaded for the first manifest

    return parse(text, root, environ)


CONTRACT = Contract(
    name="nexo",
    title="nexo Plugin Contract 1.10.0",
    version=NEXO_VERSION,
    machine=_machine,
    host_machine=_host_machine,
    manifest_files=(FILE_NAME,),
    parse_manifest=_parse,
    timeouts=TIMEOUTS,
    framing=Lines,
    max_host_message=MAX_HOST_LINE,
    max_plugin_message=MAX_CHILD_LINE,
    frame_rules=FrameRules(
        _read_frame, _with_id, _refusal, ("/id", "/params/request_id", "/params/event/id", "/params/event/timestamp")
    ),
)
