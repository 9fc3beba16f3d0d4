"""Reading what the peer asks for: parameters into an operation, or what is wrong with them.

Owns the checks and the contract's coercions: what a host forgives in `memory.recall` and `llm.complete`, what a plugin
forgives in `tool.invoke`. Unknown parameters are ignored. Refuses to know frames, ids and states.
"""

from __future__ import annotations

from plugbay.model.operations import Chat, CompleteChat, InvokeTool, Publish, RecallMemory, Shutdown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from plugbay.contracts.nexo.messages import Method
    from plugbay.model.operations import Operation

DEFAULT_LIMIT, MAX_LIMIT = 10, 1000
"""Memories in one answer: when the child does not say, and at most."""

DEFAULT_MAX_TOKENS, MAX_MAX_TOKENS = 4096, 2**32 - 1
DEFAULT_TEMPERATURE = 0.7

ROLES = frozenset({"system", "user", "assistant", "tool"})

_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "text": (lambda value: isinstance(value, str), "a string"),
    "text?": (lambda value: value is None or isinstance(value, str), "a string or null"),
    "object": (lambda value: isinstance(value, dict), "an object"),
    "array": (lambda value: isinstance(value, list), "an array"),
    "flag": (lambda value: value is None or isinstance(value, bool), "true or false"),
    "any": (lambda value: True, "anything"),
}


def read(method: Method, params: Any, plugin_id: str) -> Operation | str:
    """The operation that `method` asks for, or what is wrong with its parameters. Missing ones read as null."""
    if not isinstance(params, dict):
        return "params must be an object"
    if method.op is InvokeTool:
        return _tool(params, plugin_id)
    values: dict[str, Any] = {}
    for key, field, kind in method.fields:
        value = params.get(key)
        fits, wanted = _KINDS[kind]
        if not fits(value):
            return f"{key} must be {wanted}"
        values[field] = value
    read_values = _CHECKED.get(method.op)
    operation: Operation | str = method.op(**values) if read_values is None else read_values(values)
    return operation


def shutdown(params: Any) -> Shutdown:
    """A good-bye is one whatever it says."""
    reason = params.get("reason") if isinstance(params, dict) else None
    return Shutdown(reason if isinstance(reason, str) else "")


def _tool(params: dict[str, Any], plugin_id: str) -> Operation | str:
    tool = params.get("tool_name")
    if not (isinstance(tool, str) and tool):
        return "tool_name must be a string that is not empty"
    context = {"agent_id": params.get("agent_id"), "plugin_id": params.get("plugin_id", plugin_id)}
    return InvokeTool(tool, params.get("args"), context)


def _chat(values: dict[str, Any]) -> Operation | str:
    return Chat(**{**values, "stream": values["stream"] is True})


def _publish(values: dict[str, Any]) -> Operation | str:
    return Publish(**values) if values["topic"] else "topic must not be empty"


def _recall(values: dict[str, Any]) -> Operation | str:
    limit = values["limit"] if _is_count(values["limit"]) else DEFAULT_LIMIT
    return RecallMemory(**{**values, "limit": min(limit, MAX_LIMIT)})


def _completion(values: dict[str, Any]) -> Operation | str:
    problem = _messages_problem(values["messages"])
    if problem:
        return problem
    tokens, temperature, prompt = values["max_tokens"], values["temperature"], values["system_prompt"]
    coerced = {
        "max_tokens": min(tokens, MAX_MAX_TOKENS) if _is_count(tokens) else DEFAULT_MAX_TOKENS,
        "temperature": temperature if type(temperature) in (int, float) else DEFAULT_TEMPERATURE,
        "system_prompt": prompt if isinstance(prompt, str) else None,
        "stream": values["stream"] is True,
    }
    return CompleteChat(**{**values, **coerced})


def _messages_problem(messages: list[Any]) -> str | None:
    if not messages:
        return "messages must not be empty"
    for position, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if not (isinstance(role, str) and role in ROLES):
            return f"messages[{position}] must be an object whose role is one of {', '.join(sorted(ROLES))}"
        content = message.get("content")
        if not (isinstance(content, str) or (content is None and message.get("tool_calls"))):
            return f"messages[{position}].content must be a string"
    return None


def _is_count(value: Any) -> bool:
    """What other hosts read as u64: no bool, no float, nothing negative."""
    return type(value) is int and value >= 0


_CHECKED: dict[type, Callable[[dict[str, Any]], Operation | str]] = {
    Chat: _chat,
    Publish: _publish,
    RecallMemory: _recall,
    CompleteChat: _completion,
}
