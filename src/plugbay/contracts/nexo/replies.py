"""Answers: which shape each must have when it comes, and which it is given when it goes.

Only the answers with a fixed shape are looked into; what a tool returns is nobody's business here and stays unread.
Refuses to know ids and states.
"""

from __future__ import annotations

from plugbay.contracts.nexo import errors
from plugbay.contracts.rpc import IncomingRequest, malformed
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import (
    Chat,
    CompleteChat,
    DeleteVectors,
    Publish,
    RecallMemory,
    RunHook,
    SearchVectors,
    SendOutbound,
    Shutdown,
    StartChannel,
    StopChannel,
    UpsertVectors,
)
from plugbay.wire.strict_json import ABSENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeGuard

    from plugbay.contracts.nexo.messages import Method
    from plugbay.contracts.rpc import Id
    from plugbay.model.operations import Operation

OK = {"ok": True}

NO_USAGE = {"prompt_tokens": 0, "completion_tokens": 0}


# Answers that come.


def outcome(method: Method, message: Any, line: bytes, load: Callable[[Any], Any]) -> tuple[Any, Failure | None]:
    """An answer to `method` as (value, failure). To the host values stay raw; a plugin gets the whole of them."""
    error, result = message.error, message.result
    if error is not ABSENT:
        failure = errors.from_wire(method.op, method.name, error)
        if result is not ABSENT:
            what = f"the answer to {method.name} has both a result and an error ({failure.message})"
            failure = malformed(what, line, **failure.detail)
        return None, failure
    if result is ABSENT:
        return None, malformed(f"the answer to {method.name} has neither a result nor an error", line)
    check = _CHECKS.get(method.op)
    why = None if check is None else check(load(result))
    if why is not None:
        return None, malformed(f"the answer to {method.name}: {why}", line)
    complete = _COMPLETE.get(method.op)
    return result if complete is None else complete(load(result)), None


def _sent(result: Any) -> str | None:
    good = isinstance(result, dict) and isinstance(result.get("message_id"), str) and _is_int(result, "sent_at_unix")
    return None if good else "it must hold message_id (a string) and sent_at_unix (an integer)"


def _counted(result: Any) -> str | None:
    return None if _is_int(result, "count") else "it must hold count (an integer)"


def _matched(result: Any) -> str | None:
    matches = result.get("matches") if isinstance(result, dict) else None
    return None if _are_objects(matches) else "it must hold matches (an array of objects)"


def _object(result: Any) -> str | None:
    return None if isinstance(result, dict) else "it must be an object"


def _chatted(result: Any) -> str | None:
    if not isinstance(result, dict):
        return "it must be an object"
    if not _is_content(result.get("content")):
        return "content must be a text with its type, or tool calls with id, name and arguments"
    usage = result.get("usage")
    if not (_is_int(usage, "prompt_tokens") and _is_int(usage, "completion_tokens")):
        return "usage must hold prompt_tokens and completion_tokens (integers)"
    if not _is_finish_reason(result.get("finish_reason")):
        return "finish_reason must hold kind: stop, tool_use, length, or other with its reason"
    cached = result.get("cache_usage")
    return None if cached is None or isinstance(cached, dict) else "cache_usage must be an object"


def _is_content(content: Any) -> bool:
    if not isinstance(content, dict):
        return False
    if content.get("type") == "text":
        return isinstance(content.get("text"), str)
    calls = content.get("tool_calls")
    if content.get("type") != "tool_calls" or not _are_objects(calls):
        return False
    return all(
        isinstance(call.get("id"), str) and isinstance(call.get("name"), str) and "arguments" in call for call in calls
    )


def _is_finish_reason(reason: Any) -> bool:
    kind = reason.get("kind") if isinstance(reason, dict) else None
    return kind in ("stop", "tool_use", "length") or (kind == "other" and isinstance(reason.get("reason"), str))


def _is_int(value: Any, key: str) -> bool:
    return isinstance(value, dict) and type(value.get(key)) is int


def _are_objects(values: Any) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(values, list) and all(isinstance(value, dict) for value in values)


def _recalled(result: Any) -> str | None:
    entries = result.get("entries") if isinstance(result, dict) else None
    return None if _are_objects(entries) else "it must hold entries (an array of objects)"


_CHECKS: dict[type, Callable[[Any], str | None]] = {
    SendOutbound: _sent,
    UpsertVectors: _counted,
    DeleteVectors: _counted,
    SearchVectors: _matched,
    RunHook: _object,
    Chat: _chatted,
    RecallMemory: _recalled,
    CompleteChat: _object,
}


_COMPLETE: dict[type, Callable[[Any], Any]] = {
    RecallMemory: lambda result: [
        {"tags": [], "concept_tags": [], "created_at": None, "memory_type": None, **entry}
        for entry in result["entries"]
    ],
    CompleteChat: lambda result: {"content": None, **result},
    Publish: lambda result: result,
}
"""What a plugin gets: the host may leave out the tags of a memory, and the text of a streamed answer."""


# Answers we give.


class Streamed(IncomingRequest):
    """A request of the peer that waits for our answer; `said`: whether a delta of it went out."""

    __slots__ = ("said", "stream")

    def __init__(self, id: Id, op: Operation) -> None:
        super().__init__(id, op)
        self.stream: bool = getattr(op, "stream", False)
        self.said = False


def shaped(op: type, value: Any, stream: bool = False, said: bool = False) -> Any:
    """What a handler answered `op` with as the contract's result; a `Failure` when it has no form there."""
    if op in _ACKNOWLEDGED:
        return OK
    if op is RecallMemory:
        return {"entries": value}
    return _completion(value, stream, said) if op is CompleteChat else value


_ACKNOWLEDGED = frozenset({StartChannel, StopChannel, Shutdown, Publish})


def _completion(value: Any, stream: bool, said: bool) -> Any:
    if not isinstance(value, dict):
        return Failure(Code.INTERNAL, "the model's answer is not an object")
    content = value.get("content")
    if value.get("tool_calls") and not (content or said):
        what = "not implemented: the model answered with tool calls and no text"
        return Failure(Code.NOT_FOUND, what, detail={"not_implemented": True})
    ending = {
        "finish_reason": value.get("finish_reason") or ("other:stream-no-end" if stream else "stop"),
        "usage": value.get("usage") or NO_USAGE,
    }
    return ending if stream else {"content": content or "", **ending}
