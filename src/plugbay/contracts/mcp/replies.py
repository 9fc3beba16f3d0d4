"""Answers: what of them is passed on when they come, and what is added when they go.

A tool's result is looked into only where something in it matters to us; otherwise it stays unread. Above the machine a
result looks the same in both eras: what only one of them has is taken off here. Refuses to know ids and states.
"""

from __future__ import annotations

from plugbay.contracts.mcp import errors, messages
from plugbay.contracts.mcp.messages import as_object
from plugbay.contracts.rpc import malformed
from plugbay.model.errors import Failure
from plugbay.model.operations import CheckHealth, InvokeTool, ReadResource, SetLogLevel, WatchResource
from plugbay.model.values import Value
from plugbay.wire.strict_json import ABSENT, Unencodable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from plugbay.wire.strict_json import Codec

COMPLETE, INPUT_REQUIRED = "complete", "input_required"

ERA_FIELDS = ("resultType", "ttlMs", "cacheScope")
"""What only results of the modern era have."""

NO_ANSWER = frozenset({CheckHealth, SetLogLevel, WatchResource})
"""Answered with nothing: that there is an answer is all."""

FRESH_MS = 0
"""How long a client may keep what we list without asking again: what plugins offer changes when they come and go."""

_BRACE = ord("{")
_PLAIN = (dict, list, str, int, float, bool, type(None))


class InputRequired(Value):
    """Not the answer yet: questions by their keys, and what has to come back with the answers."""

    __slots__ = ("questions", "state")

    def __init__(self, questions: dict[str, Any], state: str | None) -> None:
        self.questions = questions
        self.state = state


# Answers that come.


def outcome(op: Any, method: str, message: Any, frame: bytes, codec: Codec) -> tuple[Any, Failure | None]:
    """The answer to `op`, asked for with `method`, as (value, failure); the value may be an `InputRequired`."""
    if message.error is not ABSENT:
        return None, errors.from_error(type(op), method, message.error)
    result = message.result
    if result is ABSENT:
        return None, malformed(f"the answer to {method} has neither a result nor an error", frame)
    if type(op) in NO_ANSWER:
        return None, None
    if is_plain(result, frame):
        return result, None
    value = codec.load(result)
    if not isinstance(value, dict):
        return None, malformed(f"the answer to {method} is not an object", frame)
    return _looked_at(op, method, value, frame, codec)


def _looked_at(op: Any, method: str, value: dict[str, Any], frame: bytes, codec: Codec) -> tuple[Any, Failure | None]:
    kind = value.get("resultType", COMPLETE)
    if kind == INPUT_REQUIRED:
        questions, state = value.get("inputRequests"), value.get("requestState")
        return InputRequired(as_object(questions), state if isinstance(state, str) else None), None
    if kind not in (COMPLETE, None):
        return None, malformed(f"the answer to {method} is of the kind {kind!r}, which nobody asked for", frame)
    plain = without_era(value)
    if type(op) is InvokeTool and plain.get("isError") is True:
        return None, errors.from_result(plain)
    try:
        return codec.dump(plain), None
    except Unencodable as error:
        return None, malformed(f"the answer to {method} cannot be passed on: {error}", frame)


def is_plain(raw: Any, frame: bytes) -> bool:
    """Whether a raw result is an object in which nothing makes it an error, or an answer of the modern era.

    A key may be written with escapes, and texts have them for other reasons; then it is looked into as well.
    """
    if frame.find(b"resultType") >= 0 or frame.find(b"\\u") >= 0:
        return False
    if frame.find(b"isError") >= 0 and frame.count(b"isError") != frame.count(b'"isError":false'):
        return False
    if isinstance(raw, dict):
        return True
    try:
        return memoryview(raw)[0] == _BRACE
    except TypeError:
        return False


def without_era(result: dict[str, Any]) -> dict[str, Any]:
    """A result without what only the modern era says around it."""
    plain = {key: value for key, value in result.items() if key not in ERA_FIELDS}
    meta = plain.get("_meta")
    if isinstance(meta, dict) and messages.SERVER in meta:
        rest = {key: value for key, value in meta.items() if key != messages.SERVER}
        plain.pop("_meta")
        if rest:
            plain["_meta"] = rest
    return plain


# Answers we give.


def result(op: Any, value: Any, codec: Codec) -> dict[str, Any]:
    """What a handler answered `op` with, as a result."""
    if type(op) in NO_ANSWER:
        return {}
    given = value if isinstance(value, _PLAIN) else codec.load(value)
    if type(op) is InvokeTool:
        return tool_result(given, codec)
    return as_object(given)


def tool_result(value: Any, codec: Codec) -> dict[str, Any]:
    """What a tool returned, as its result: one that is a result already stays as it is.

    Text is text; everything else is text in JSON, and an object is structured content as well.
    """
    if is_tool_result(value):
        return dict(value)
    if isinstance(value, str):
        return {"content": [{"type": "text", "text": value}]}
    content = [{"type": "text", "text": codec.encode(value).decode()}]
    return {"content": content, "structuredContent": value} if isinstance(value, dict) else {"content": content}


def is_tool_result(value: Any) -> bool:
    """Whether a value has the shape of a tool's result: content whose every part says its type."""
    content = value.get("content") if isinstance(value, dict) else None
    if not isinstance(content, list):
        return False
    return all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in content)


def in_modern(result: dict[str, Any], server: dict[str, str], *, cacheable: bool = False) -> dict[str, Any]:
    """A result as the modern era has it."""
    meta = {**as_object(result.get("_meta")), messages.SERVER: server}
    hints = {"ttlMs": FRESH_MS, "cacheScope": "private"} if cacheable else {}
    return {"resultType": COMPLETE, **result, **hints, "_meta": meta}


def is_cacheable(op: Any) -> bool:
    """Whether the modern era wants to know how long an answer may be kept."""
    return type(op) is ReadResource


def step(number: int, item: Any) -> dict[str, Any]:
    """Progress that has no number of its own."""
    return {"progress": number, "message": item} if isinstance(item, str) else {"progress": number}


def ended(subscription: Any) -> dict[str, Any]:
    """The answer that ends a subscription in good order."""
    return {"resultType": COMPLETE, "_meta": {messages.SUBSCRIPTION: subscription}}
