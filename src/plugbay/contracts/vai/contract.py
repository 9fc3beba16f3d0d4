"""vai as one value: `CONTRACT`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plugbay.contracts.base import Role
from plugbay.contracts.contract import HOST_VERSION, Contract, HostSide, Parsed, Site
from plugbay.contracts.frames import (
    ANSWER,
    GREETING,
    NOT_RECORDED,
    NOTICE,
    PIECE,
    FrameRules,
    OpenLengths,
    Turn,
    error_message,
)
from plugbay.contracts.frames import CANCEL as CANCELS
from plugbay.contracts.frames import REQUEST as REQUESTS
from plugbay.contracts.vai.messages import CANCEL, EVENT, HELLO, MAX_BODY, PROTOCOL, REQUEST, RESPONSE
from plugbay.contracts.vai.spec import FILE_NAME
from plugbay.model.spec import PluginSpec

if TYPE_CHECKING:
    from plugbay.contracts.vai.machine import VaiMachine
    from plugbay.wire.strict_json import Codec


def _machine() -> type[VaiMachine]:
    from plugbay.contracts.vai.machine import VaiMachine

    return VaiMachine


def _host_machine(spec: PluginSpec, side: HostSide, codec: Codec) -> VaiMachine:
    return _machine()(Role.HOST, codec, package_id=spec.id, version=spec.version, host_version=HOST_VERSION)


def _read_frame(speaker: str, frame: dict[str, Any]) -> Turn:
    kind, body = frame.get("type"), frame.get("body")
    said = body if isinstance(body, dict) else {}
    if kind == HELLO:
        return Turn(REQUESTS, HELLO, GREETING) if speaker == Role.HOST else Turn(ANSWER, "", GREETING)
    if kind == REQUEST:
        return Turn(REQUESTS, f"{frame.get('op')} {said.get('export_id')}", frame.get("id"))
    if kind == RESPONSE:
        return Turn(ANSWER, "", frame.get("id"), error_message(frame.get("error", said.get("error"))))
    if kind in (EVENT, CANCEL):
        return Turn(PIECE if kind == EVENT else CANCELS, kind, frame.get("request_id"))
    return Turn(NOTICE, str(kind))


def _with_id(frame: dict[str, Any], id: Any) -> dict[str, Any]:
    return {**frame, key: id} if (key := "id" if "id" in frame else "request_id") in frame else frame


def _refusal(turn: Turn, message: str) -> dict[str, Any]:
    error = {"code": NOT_RECORDED, "message": message}
    return {"protocol": PROTOCOL, "type": RESPONSE, "id": turn.id, "ok": False, "error": error}


_VOLATILE = (
    "/id",
    "/request_id",
    "/host/version",
    "/body/context/invocation_id",
    "/body/context/trace_id",
    "/body/context/deadline_at",
    "/body/context/scratch_dir",
    "/body/context/run_id",
    "/body/context/gateway/base_url",
    "/body/context/gateway/delegation_token",
    "/body/tool_execution_id",
    "/body/delivery_id",
    "/body/compaction_id",
    "/body/target/execution_id",
    "/body/source/projection/artifact",
)


def _parse(text: str, root: Path, environ: Mapping[str, str], site: Site) -> Parsed:
    from plugbay.contracts.vai.manifest import parse  # its models are loaded for the first manifest

    return parse(text, root, environ, site)


CONTRACT = Contract(
    name="vai",
    title="VAI Plugin System, vai.rpc.v1",
    version=PROTOCOL,
    machine=_machine,
    host_machine=_host_machine,
    manifest_files=(FILE_NAME,),
    parse_manifest=_parse,
    framing=OpenLengths,
    max_host_message=MAX_BODY,
    max_plugin_message=MAX_BODY,
    frame_rules=FrameRules(_read_frame, _with_id, _refusal, _VOLATILE),
)
