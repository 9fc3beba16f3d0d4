"""rune as one value: `CONTRACT`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plugbay.contracts.base import Role
from plugbay.contracts.contract import Contract, HostSide, Parsed, Site
from plugbay.contracts.frames import ANSWER, GREETING, NOT_RECORDED, REQUEST, FrameRules, Lines, Turn, error_message
from plugbay.contracts.rune.messages import MAX_HOST_LINE, MAX_PLUGIN_LINE, PROTOCOL
from plugbay.contracts.rune.spec import FILE_NAME, TIMEOUTS
from plugbay.model.spec import PluginSpec

if TYPE_CHECKING:
    from plugbay.contracts.rune.machine import RuneMachine
    from plugbay.wire.strict_json import Codec


def _machine() -> type[RuneMachine]:
    from plugbay.contracts.rune.machine import RuneMachine

    return RuneMachine


def _host_machine(spec: PluginSpec, side: HostSide, codec: Codec) -> RuneMachine:
    return _machine()(Role.HOST, codec, plugin_id=spec.id, granted=side.granted, nonce=side.nonce)


def _read_frame(speaker: str, frame: dict[str, Any]) -> Turn:
    kind, id = frame.get("type"), frame.get("request_id")
    if kind == "handshake":
        return Turn(REQUEST, "handshake", GREETING) if speaker == Role.HOST else Turn(ANSWER, "", GREETING)
    if kind == "request":
        return Turn(REQUEST, str(frame.get("tool_name")), id)
    return Turn(ANSWER, "", id, error_message(frame.get("error")))


def _with_id(frame: dict[str, Any], id: Any) -> dict[str, Any]:
    return {**frame, "request_id": id} if "request_id" in frame else frame


def _refusal(turn: Turn, message: str) -> dict[str, Any]:
    error = {"code": NOT_RECORDED, "message": message}
    return {"type": "response", "request_id": turn.id, "status": "error", "error": error}


def _parse(text: str, root: Path, environ: Mapping[str, str], site: Site) -> Parsed:
    from plugbay.contracts.rune.manifest import parse  # its models are loaded for the first manifest

    return parse(text, root, environ)


CONTRACT = Contract(
    name="rune",
    title="Plugin runtime protocol rterm.plugin.v1 (2026-04-16)",
    version=PROTOCOL,
    machine=_machine,
    host_machine=_host_machine,
    manifest_files=(FILE_NAME,),
    parse_manifest=_parse,
    timeouts=TIMEOUTS,
    framing=Lines,
    max_host_message=MAX_HOST_LINE,
    max_plugin_message=MAX_PLUGIN_LINE,
    frame_rules=FrameRules(_read_frame, _with_id, _refusal, ("/request_id",)),
)
