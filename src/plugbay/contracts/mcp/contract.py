"""MCP as one value: `CONTRACT`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plugbay.contracts.contract import HOST_VERSION, Contract, Declared, HostSide, Parsed, Site
from plugbay.contracts.frames import CANCEL, PIECE, FrameRules, Lines, Turn, read_rpc, rpc_refusal
from plugbay.contracts.mcp.errors import INTERNAL_ERROR
from plugbay.contracts.mcp.messages import CANCELLED, HANDSHAKE, MAX_LINE, PROGRESS, REVISIONS, TOKEN
from plugbay.contracts.mcp.offers import exports_of
from plugbay.contracts.mcp.spec import BUNDLE_FILE_NAME, FILE_NAME, TIMEOUTS
from plugbay.model.spec import PluginSpec

if TYPE_CHECKING:
    from plugbay.contracts.mcp.client import ClientMachine
    from plugbay.contracts.mcp.machine import McpMachine
    from plugbay.wire.strict_json import Codec


def _machine() -> type[McpMachine]:
    from plugbay.contracts.mcp.machine import McpMachine

    return McpMachine


def _host_machine(spec: PluginSpec, side: HostSide, codec: Codec) -> ClientMachine:
    from plugbay.contracts.mcp.client import ClientMachine

    client = {"name": "plugbay", "version": HOST_VERSION}
    granted = frozenset(side.granted).intersection(spec.optional_capabilities)
    return ClientMachine(codec, era=side.era or HANDSHAKE, client=client, offers=granted)


def _read_frame(speaker: str, frame: dict[str, Any]) -> Turn:
    """Cancellations and progress are notifications that name the request."""
    method, params = frame.get("method"), frame.get("params")
    if method == CANCELLED and isinstance(params, dict):
        return Turn(CANCEL, CANCELLED, params.get("requestId"))
    if method == PROGRESS and isinstance(params, dict):
        return Turn(PIECE, PROGRESS, params.get(TOKEN))
    return read_rpc(speaker, frame)


def _with_id(frame: dict[str, Any], id: Any) -> dict[str, Any]:
    if "id" in frame:
        return {**frame, "id": id}
    key = "requestId" if frame["method"] == CANCELLED else TOKEN
    return {**frame, "params": {**frame["params"], key: id}}


def _refusal(turn: Turn, message: str) -> dict[str, Any]:
    return rpc_refusal(turn.id, INTERNAL_ERROR, message)


def _parse(text: str, root: Path, environ: Mapping[str, str], site: Site) -> Parsed:
    from plugbay.contracts.mcp.manifest import parse  # its models are loaded for the first manifest

    return parse(text, root, environ)


def _parse_servers(text: str, root: Path, environ: Mapping[str, str]) -> list[Declared]:
    from plugbay.contracts.mcp.manifest import parse_servers

    return parse_servers(text, root, environ)


def _not_ours(text: str) -> str | None:
    from plugbay.contracts.mcp.manifest import not_ours

    return not_ours(text)


CONTRACT = Contract(
    name="mcp",
    title=f"Model Context Protocol specification, {REVISIONS[0]}",
    version=REVISIONS[0],
    machine=_machine,
    host_machine=_host_machine,
    manifest_files=(FILE_NAME, BUNDLE_FILE_NAME),
    parse_manifest=_parse,
    parse_several={FILE_NAME: _parse_servers},
    not_ours=_not_ours,
    has_references=True,
    timeouts=TIMEOUTS,
    framing=Lines,
    max_host_message=MAX_LINE,
    max_plugin_message=MAX_LINE,
    frame_rules=FrameRules(
        _read_frame,
        _with_id,
        _refusal,
        ("/id", "/params/requestId", f"/params/_meta/{TOKEN}", "/params/clientInfo/version"),
    ),
    runtime_exports=exports_of,
    has_eras=True,
)
