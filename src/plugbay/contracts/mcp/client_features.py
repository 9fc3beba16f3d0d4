"""Requests of a server to its client: sampling, elicitation and roots.

The same three in both eras: as requests of their own, or inside a result with `input_required`. Owns how each is
written, read and answered, and which capability of the client it needs.
"""

from __future__ import annotations

from plugbay.contracts.mcp import messages
from plugbay.contracts.mcp.messages import as_object, as_text
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import AskUser, CompleteChat, ListRoots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from plugbay.model.operations import Operation

CAPABILITIES = {messages.SAMPLE: "sampling", messages.ELICIT: "elicitation", messages.ROOTS: "roots"}
METHODS: dict[type, str] = {CompleteChat: messages.SAMPLE, AskUser: messages.ELICIT, ListRoots: messages.ROOTS}

ACTIONS = ("accept", "decline", "cancel")

_OF_THE_SESSION = ("_meta", "task")
"""Parameters of a request that mean nothing in another session."""

_STOP_REASONS = {"stop": "endTurn", "length": "maxTokens", "tool_use": "toolUse"}
_FINISH_REASONS = {word: reason for reason, word in _STOP_REASONS.items()}
"""Why a model stopped: our word → MCP's, and back. A word that is not here travels as it is."""


def read_request(method: str, params: dict[str, Any]) -> Operation | str | None:
    """The question that `method` puts, or what is wrong with it; None: there is no such question."""
    reader = _READERS.get(method)
    return None if reader is None else reader(params)


def _read_sampling(params: dict[str, Any]) -> Operation | str:
    said, tokens, temperature = params.get("messages"), params.get("maxTokens"), params.get("temperature")
    if not isinstance(said, list) or not said:
        return "messages must be an array that is not empty"
    if not all(isinstance(message, dict) and message.get("role") in ("user", "assistant") for message in said):
        return "each of messages must be an object whose role is user or assistant"
    optional: dict[str, Any] = {}
    if type(tokens) is int and tokens > 0:
        optional["max_tokens"] = tokens
    if type(temperature) in (int, float):
        optional["temperature"] = temperature
    prompt = as_text(params.get("systemPrompt")) or None
    words = [{"role": message["role"], "content": _flatten_text(message.get("content"))} for message in said]
    op = CompleteChat("", _preferred_model(params), words, system_prompt=prompt, **optional)
    op.request = {key: value for key, value in params.items() if key not in _OF_THE_SESSION}
    return op


def _flatten_text(content: Any) -> Any:
    """A text where the content is nothing else; everything else stays what it is."""
    blocks = content if isinstance(content, list) else [content]
    texts: list[str] = [block["text"] for block in blocks if isinstance(block, dict) and _is_text(block)]
    return "\n".join(texts) if len(texts) == len(blocks) else content


def _is_text(block: dict[str, Any]) -> bool:
    return block.get("type") == "text" and isinstance(block.get("text"), str)


def _preferred_model(params: dict[str, Any]) -> str:
    """The first model that is named; a wish, no order."""
    hints = as_object(params.get("modelPreferences")).get("hints")
    names = [as_text(as_object(hint).get("name")) for hint in (hints if isinstance(hints, list) else [])]
    return next((name for name in names if name), "")


def _read_elicitation(params: dict[str, Any]) -> Operation | str:
    message, schema, url = (params.get(key) for key in ("message", "requestedSchema", "url"))
    if not isinstance(message, str):
        return "message must be a string"
    if params.get("mode") == "url":
        return AskUser(message, None, url) if isinstance(url, str) and url else "url must be a string"
    if params.get("mode") not in (None, "form"):
        return "mode must be form or url"
    return AskUser(message, schema) if isinstance(schema, dict) else "requestedSchema must be an object"


_READERS: dict[str, Callable[[dict[str, Any]], Operation | str]] = {
    messages.SAMPLE: _read_sampling,
    messages.ELICIT: _read_elicitation,
    messages.ROOTS: lambda params: ListRoots(),
}


# What a server writes.


def write_request(op: Any, fresh: str, *, modern: bool) -> tuple[str, dict[str, Any]]:
    """The method that asks for `op`, and its parameters. `fresh` names this question, where that is wanted."""
    if isinstance(op, CompleteChat):
        return messages.SAMPLE, _write_sampling(op)
    if isinstance(op, AskUser):
        return messages.ELICIT, _write_elicitation(op, fresh, modern)
    return messages.ROOTS, {}


def _write_sampling(op: CompleteChat) -> dict[str, Any]:
    """A request of a hosted server goes on as it came."""
    if op.request is not None:
        return {"maxTokens": op.max_tokens, **op.request}

    def block(content: Any) -> Any:
        return {"type": "text", "text": content} if isinstance(content, str) else content

    params: dict[str, Any] = {
        "messages": [{"role": said["role"], "content": block(said.get("content"))} for said in op.messages],
        "maxTokens": op.max_tokens,
        "temperature": op.temperature,
    }
    if op.system_prompt:
        params["systemPrompt"] = op.system_prompt
    if op.model:
        params["modelPreferences"] = {"hints": [{"name": op.model}]}
    return params


def _write_elicitation(op: AskUser, fresh: str, modern: bool) -> dict[str, Any]:
    """Only the handshake era numbers the pages that people are sent to; and only a page needs its mode said."""
    if op.url is not None:
        number = {} if modern else {"elicitationId": fresh}
        return {"mode": "url", "message": op.message, "url": op.url, **number}
    schema = op.schema if isinstance(op.schema, dict) else {"type": "object", "properties": {}}
    return {"message": op.message, "requestedSchema": schema}


def find_missing(op: Any, capabilities: dict[str, Any]) -> dict[str, Any] | None:
    """The capability that this question needs and the client lacks; None when it has it."""
    needed = CAPABILITIES[METHODS[type(op)]]
    settings = capabilities.get(needed)
    if isinstance(op, AskUser) and isinstance(settings, dict):
        mode = "form" if op.url is None else "url"
        # A client that names no mode knows forms: it is older than the other one.
        return None if mode in settings or (mode == "form" and not settings) else {needed: {mode: {}}}
    return None if isinstance(settings, dict) else {needed: {}}


# Answers.


def build_result(op: Any, value: Any) -> dict[str, Any] | Failure:
    """The answer to `op`, as its result."""
    if isinstance(op, ListRoots):
        return {"roots": list(value or ())}
    if not isinstance(value, dict):
        return Failure(Code.INTERNAL, "the answer is not an object")
    if isinstance(op, AskUser) or "role" in value:
        return value  # as the client of the host wrote it
    content = value.get("content")
    said = {"type": "text", "text": content or ""} if content is None or isinstance(content, str) else content
    reason = as_text(value.get("finish_reason")) or "stop"
    return {
        "role": "assistant",
        "content": said,
        "model": as_text(value.get("model")) or op.model or "unknown",
        "stopReason": _STOP_REASONS.get(reason, reason),
    }


def build_refusal(op: Any) -> dict[str, Any] | None:
    """The answer to a question that was not answered, in an era without errors; None: there is none."""
    return {"action": "cancel"} if isinstance(op, AskUser) else None


def read_result(op: Any, said: Any) -> Any:
    """The answer of a client to `op`; a text describes the problem with it."""
    if not isinstance(said, dict):
        return "it must be an object"
    if isinstance(op, ListRoots):
        roots = said.get("roots")
        return roots if isinstance(roots, list) else "it must hold roots (an array)"
    if isinstance(op, AskUser):
        return said if said.get("action") in ACTIONS else f"action must be one of {', '.join(ACTIONS)}"
    if op.request is not None:
        return said if "role" in said and "content" in said else "it must hold role and content"
    reason = as_text(said.get("stopReason")) or "endTurn"
    return {
        "content": _flatten_text(said.get("content")),
        "finish_reason": _FINISH_REASONS.get(reason, reason),
        "usage": None,
        "tool_calls": [],
        "model": as_text(said.get("model")),
    }
