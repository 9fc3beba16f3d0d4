"""Classifies the frames of each contract: request, answer, part of an answer, or notification.

Knows where each contract keeps ids and names, how a plugin refuses a request, and which values a host changes in every
run (ids, times, paths). Knows no framing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from plugbay.contracts.base import Role
from plugbay.contracts.kaged.errors import DEFINED
from plugbay.contracts.mcp import messages as mcp
from plugbay.contracts.nexo.errors import INTERNAL_ERROR, TOOL_FAILED
from plugbay.contracts.nexo.messages import CHAT_DELTA, COMPLETE_DELTA
from plugbay.contracts.vai import messages as vai

REQUEST, ANSWER, PIECE, CANCEL, NOTICE = "request", "answer", "piece", "cancel", "notice"

GREETING = "greeting"
"""The id of a greeting where the contract gives it none."""

MAX_NAME = 80
"""Characters of a name that are shown: a plugin chooses them."""

NOT_RECORDED = "not_recorded"
"""The code of a refusal where codes are words."""


class Turn(NamedTuple):
    """One frame, as a part of a conversation."""

    kind: str
    """A `request` expects an `answer`; a `piece` comes before one; a `cancel` cancels the request; a `notice` expects
    nothing."""
    name: str
    """The method or export; empty where the id tells it."""
    id: Any = None
    """The id of the request that it makes, answers or cancels. Each side counts its own."""
    failed: str = ""
    """The message of an error."""


class FrameRules(NamedTuple):
    """How the frames of one contract are read and written."""

    read: Callable[[str, dict[str, Any]], Turn]
    """(the sender's role, the frame) → its role in the conversation."""
    with_id: Callable[[dict[str, Any], Any], dict[str, Any]]
    """The same frame with another request id."""
    refusal: Callable[[Turn, str], dict[str, Any]]
    """A plugin's error as the answer to a request of its host."""
    volatile: tuple[str, ...] = ()
    """Values that a host changes in every run: JSON pointers in which `*` is any step."""

    def turn(self, speaker: str, frame: Any) -> Turn:
        """The role of a frame; one that fits no rule is a notice without a name."""
        turn = self.read(speaker, frame) if isinstance(frame, dict) else Turn(NOTICE, "")
        return turn._replace(name=turn.name[:MAX_NAME])


# JSON-RPC 2.0.


def _read_rpc(speaker: str, frame: dict[str, Any]) -> Turn:
    method, params = frame.get("method"), frame.get("params")
    if not isinstance(method, str):
        return Turn(ANSWER, "", frame.get("id"), _message(frame["error"]) if frame.get("error") is not None else "")
    if method in (CHAT_DELTA, COMPLETE_DELTA) and isinstance(params, dict):
        return Turn(PIECE, method, params.get("request_id"))
    return Turn(REQUEST if "id" in frame else NOTICE, method, frame.get("id"))


def _rpc_with_id(frame: dict[str, Any], id: Any) -> dict[str, Any]:
    return {**frame, "id": id} if "id" in frame else {**frame, "params": {**frame["params"], "request_id": id}}


def _rpc(code: int, *volatile: str) -> FrameRules:
    def refusal(turn: Turn, message: str) -> dict[str, Any]:
        number = TOOL_FAILED if turn.name == "tool.invoke" else code
        return {"jsonrpc": "2.0", "id": turn.id, "error": {"code": number, "message": message}}

    return FrameRules(_read_rpc, _rpc_with_id, refusal, ("/id", "/params/request_id", *volatile))


# MCP: cancellations and progress are notifications.


def _read_mcp(speaker: str, frame: dict[str, Any]) -> Turn:
    method, params = frame.get("method"), frame.get("params")
    if method == mcp.CANCELLED and isinstance(params, dict):
        return Turn(CANCEL, method, params.get("requestId"))
    if method == mcp.PROGRESS and isinstance(params, dict):
        return Turn(PIECE, method, params.get(mcp.TOKEN))
    return _read_rpc(speaker, frame)


def _mcp_with_id(frame: dict[str, Any], id: Any) -> dict[str, Any]:
    if "id" in frame:
        return {**frame, "id": id}
    key = "requestId" if frame["method"] == mcp.CANCELLED else mcp.TOKEN
    return {**frame, "params": {**frame["params"], key: id}}


_MCP_ANEW = ("/id", "/params/requestId", f"/params/_meta/{mcp.TOKEN}", "/params/clientInfo/version")


# rune.


def _read_rune(speaker: str, frame: dict[str, Any]) -> Turn:
    kind, id, error = frame.get("type"), frame.get("request_id"), frame.get("error")
    if kind == "handshake":
        return Turn(REQUEST, "handshake", GREETING) if speaker == Role.HOST else Turn(ANSWER, "", GREETING)
    if kind == "request":
        return Turn(REQUEST, str(frame.get("tool_name")), id)
    return Turn(ANSWER, "", id, _message(error) if error is not None else "")


def _rune_with_id(frame: dict[str, Any], id: Any) -> dict[str, Any]:
    return {**frame, "request_id": id} if "request_id" in frame else frame


def _rune_refusal(turn: Turn, message: str) -> dict[str, Any]:
    error = {"code": NOT_RECORDED, "message": message}
    return {"type": "response", "request_id": turn.id, "status": "error", "error": error}


# vai.


def _read_vai(speaker: str, frame: dict[str, Any]) -> Turn:
    kind, body = frame.get("type"), frame.get("body")
    said = body if isinstance(body, dict) else {}
    if kind == vai.HELLO:
        return Turn(REQUEST, vai.HELLO, GREETING) if speaker == Role.HOST else Turn(ANSWER, "", GREETING)
    if kind == vai.REQUEST:
        return Turn(REQUEST, f"{frame.get('op')} {said.get('export_id')}", frame.get("id"))
    if kind == vai.RESPONSE:
        error = frame.get("error", said.get("error"))
        return Turn(ANSWER, "", frame.get("id"), _message(error) if error is not None else "")
    if kind in (vai.EVENT, vai.CANCEL):
        return Turn(PIECE if kind == vai.EVENT else CANCEL, kind, frame.get("request_id"))
    return Turn(NOTICE, str(kind))


def _vai_with_id(frame: dict[str, Any], id: Any) -> dict[str, Any]:
    return {**frame, key: id} if (key := "id" if "id" in frame else "request_id") in frame else frame


def _vai_refusal(turn: Turn, message: str) -> dict[str, Any]:
    error = {"code": NOT_RECORDED, "message": message}
    return {"protocol": vai.PROTOCOL, "type": vai.RESPONSE, "id": turn.id, "ok": False, "error": error}


_VAI_ANEW = (
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


def _message(error: Any) -> str:
    """The message of an error, in one line."""
    said = error if isinstance(error, dict) else {}
    text = said.get("message")
    return str(text if isinstance(text, str) and text.strip() else said.get("code", "an error"))


FRAME_RULES = {
    "rune": FrameRules(_read_rune, _rune_with_id, _rune_refusal, ("/request_id",)),
    "nexo": _rpc(INTERNAL_ERROR, "/params/event/id", "/params/event/timestamp"),
    "kaged": _rpc(DEFINED, "/params/daemon_version"),
    "ainb": _rpc(
        INTERNAL_ERROR,
        "/params/manifest_path",
        "/params/host/pid",
        "/params/generation",
    ),
    "vai": FrameRules(_read_vai, _vai_with_id, _vai_refusal, _VAI_ANEW),
    "mcp": FrameRules(_read_mcp, _mcp_with_id, _rpc(INTERNAL_ERROR).refusal, _MCP_ANEW),
}
"""By contract."""
