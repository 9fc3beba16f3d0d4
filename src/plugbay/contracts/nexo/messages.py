"""The nexo methods: names, operations and their fields, limits, requests, results, and the check of a greeting.

    → {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"nexo_version":…}}
    ← {"jsonrpc":"2.0","id":1,"result":{"manifest":{…},"server_version":…,"tools":[…]}}
    → {"jsonrpc":"2.0","id":2,"method":"tool.invoke","params":{"plugin_id":…,"tool_name":…,"args":…,"agent_id":…}}
    ← {"jsonrpc":"2.0","method":"broker.publish","params":{"topic":…,"event":{…}}}

Owns the contract's coercions: what a host tolerates in `memory.recall` and `llm.complete`, what a plugin tolerates in
`tool.invoke`. Only results with a fixed shape are checked; the result of a tool is passed on undecoded. The manifest in
the answer to `initialize` is read for its id only: the host trusts the file it parsed itself.
"""

from __future__ import annotations

from plugbay.contracts.nexo import errors
from plugbay.contracts.rpc import IncomingRequest, malformed
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import (
    Chat,
    CompleteChat,
    DeleteVectors,
    DeliverEvent,
    InvokeTool,
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
from plugbay.model.values import Value
from plugbay.wire.strict_json import ABSENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TypeGuard

    from plugbay.contracts.rpc import Id
    from plugbay.model.operations import Operation
    from plugbay.wire.strict_json import Codec


CONTRACT_VERSION = "1.10.0"
"""The version of the contract text this package implements."""
NEXO_VERSION = "0.2.0"
"""The host's version in `initialize`, and the version that a manifest's `min_nexo_version` is compared with."""
MAX_HOST_LINE = 1 << 20
"""Bytes a child reads in one line, without the newline. Some count the newline too, so the host stays below: a line of
this size would be dropped over there without a message, and its call would time out."""
MAX_CHILD_LINE = 16 << 20
"""Bytes the host reads in one line. The contract names none and real hosts have none; screenshots are megabytes."""
MAX_EARLY_PUBLISHES = 64
"""Events kept of a child that publishes before its greeting was accepted; as many as the host queues the other way."""
READS = ("id", "method", "error")
READS_RAW = ("params", "result")
"""`jsonrpc` is not among them: it is always written and never checked."""
INITIALIZE, SHUTDOWN = "initialize", "shutdown"
CHAT_DELTA, COMPLETE_DELTA = "llm.chat.delta", "llm.complete.delta"


class Identity(Value):
    """The answer of a plugin to `initialize`, and the operations that it has handlers for."""

    __slots__ = ("manifest", "server_version", "serves", "tools")

    def __init__(
        self,
        manifest: dict[str, Any],
        server_version: str,
        tools: tuple[dict[str, Any], ...] = (),
        serves: frozenset[type] = frozenset({InvokeTool, DeliverEvent}),
    ) -> None:
        self.manifest = manifest
        self.server_version = server_version
        self.tools = tools
        self.serves = serves

    @property
    def plugin_id(self) -> str:
        """The id in the manifest; empty when it has none."""
        table = self.manifest.get("plugin")
        id = table.get("id") if isinstance(table, dict) else None
        return id if isinstance(id, str) else ""


class Method(Value):
    """One method: its name, the operation it carries, and (parameter, field of the operation, kind) for each parameter.

    Kinds: "text", "text?" (may be null), "object", "array", "flag", "any"; `read_request` checks them.
    """

    __slots__ = ("fields", "name", "op")

    def __init__(self, name: str, op: type, *fields: tuple[str, str, str]) -> None:
        self.name = name
        self.op = op
        self.fields = fields


TOOL = Method("tool.invoke", InvokeTool)
"""Written by `tool_prefix` and read by hand: it is the one method that is asked thousands of times a second."""
TO_CHILD = (
    TOOL,
    Method("broker.event", DeliverEvent, ("topic", "topic", "text"), ("event", "payload", "any")),
    Method("channel.start", StartChannel, ("kind", "kind", "text"), ("instance", "instance", "text?")),
    Method("channel.stop", StopChannel, ("kind", "kind", "text")),
    Method("channel.send_outbound", SendOutbound, ("kind", "kind", "text"), ("msg", "message", "object")),
    Method(
        "llm.chat",
        Chat,
        ("provider", "provider", "text"),
        ("model", "model", "text"),
        ("stream", "stream", "flag"),
        ("request", "request", "object"),
    ),
    Method("hook.on_hook", RunHook, ("hook_name", "hook", "text"), ("event", "event", "any")),
    Method(
        "memory.vector_upsert",
        UpsertVectors,
        ("backend", "backend", "text"),
        ("collection", "collection", "text"),
        ("records", "records", "array"),
    ),
    Method(
        "memory.vector_search",
        SearchVectors,
        ("backend", "backend", "text"),
        ("collection", "collection", "text"),
        ("query", "query", "object"),
    ),
    Method(
        "memory.vector_delete",
        DeleteVectors,
        ("backend", "backend", "text"),
        ("collection", "collection", "text"),
        ("ids", "ids", "array"),
    ),
)
"""Messages of the host, besides `initialize`, `shutdown` and the deltas of an answer."""
TO_HOST = (
    Method("broker.publish", Publish, ("topic", "topic", "text"), ("event", "event", "object")),
    Method(
        "memory.recall",
        RecallMemory,
        ("agent_id", "agent_id", "text"),
        ("query", "query", "text"),
        ("limit", "limit", "any"),
    ),
    Method(
        "llm.complete",
        CompleteChat,
        ("provider", "provider", "text"),
        ("model", "model", "text"),
        ("messages", "messages", "array"),
        ("max_tokens", "max_tokens", "any"),
        ("temperature", "temperature", "any"),
        ("system_prompt", "system_prompt", "any"),
        ("stream", "stream", "any"),
    ),
)
"""Messages of a child, besides the deltas of an answer."""
NOTIFICATIONS = frozenset({DeliverEvent, Publish})
"""Messages that may come without an id."""
TAKES_PLUGIN_ID = frozenset({InvokeTool, RunHook})
"""Operations whose parameters begin with the id of the plugin they go to."""


def build_params(method: Method, op: Any, plugin_id: str) -> dict[str, Any]:
    """The parameters of `op`; what a completion leaves unset is not mentioned."""
    filled = {key: getattr(op, field) for key, field, _ in method.fields}
    if method.op in TAKES_PLUGIN_ID:
        return {"plugin_id": plugin_id, **filled}
    if method.op is CompleteChat:
        return {key: value for key, value in filled.items() if value is not None and value is not False}
    return filled


def tool_prefix(codec: Codec, plugin_id: str, tool: str) -> bytes:
    """Everything of a `tool.invoke` between its id and its args."""
    return b'"method":"tool.invoke","params":{"plugin_id":%b,"tool_name":%b,"args":' % (
        codec.encode(plugin_id),
        codec.encode(tool),
    )


def build_greeting_result(identity: Identity) -> dict[str, Any]:
    """The result of `initialize`: exactly these keys, and no `tools` when there are none."""
    reply: dict[str, Any] = {"manifest": identity.manifest, "server_version": identity.server_version}
    if identity.tools:
        reply["tools"] = [
            {key: tool[key] for key in ("name", "description", "input_schema")} for tool in identity.tools
        ]
    return reply


OK = {"ok": True}
NO_USAGE = {"prompt_tokens": 0, "completion_tokens": 0}  # Answers that come.


def read_answer(method: Method, message: Any, line: bytes, load: Callable[[Any], Any]) -> tuple[Any, Failure | None]:
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
    complete = _DEFAULTS.get(method.op)
    return result if complete is None else complete(load(result)), None


def _check_sent(result: Any) -> str | None:
    good = isinstance(result, dict) and isinstance(result.get("message_id"), str) and _is_int(result, "sent_at_unix")
    return None if good else "it must hold message_id (a string) and sent_at_unix (an integer)"


def _check_count(result: Any) -> str | None:
    return None if _is_int(result, "count") else "it must hold count (an integer)"


def _check_matches(result: Any) -> str | None:
    matches = result.get("matches") if isinstance(result, dict) else None
    return None if _are_objects(matches) else "it must hold matches (an array of objects)"


def _check_object(result: Any) -> str | None:
    return None if isinstance(result, dict) else "it must be an object"


def _check_chat(result: Any) -> str | None:
    if not isinstance(result, dict):
        return "it must be an object"
    if not _is_content(result.get("content")):
        return "content must be a text with its type, or tool calls with id, name and arguments"
    usage = result.get("usage")
    if not (_is_int(usage, "prompt_tokens") and _is_int(usage, "completion_tokens")):
        return "usage must hold prompt_tokens and completion_tokens (integers)"
    if not _is_finish_reason(result.get("finish_reason")):
        return "finish_reason must hold kind (stop, tool_use, length or other), and reason (a string) if it has one"
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
    return kind in ("stop", "tool_use", "length", "other") and isinstance(reason.get("reason", ""), str | None)


def _is_int(value: Any, key: str) -> bool:
    return isinstance(value, dict) and type(value.get(key)) is int


def _are_objects(values: Any) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(values, list) and all(isinstance(value, dict) for value in values)


def _check_memories(result: Any) -> str | None:
    entries = result.get("entries") if isinstance(result, dict) else None
    return None if _are_objects(entries) else "it must hold entries (an array of objects)"


_CHECKS: dict[type, Callable[[Any], str | None]] = {
    SendOutbound: _check_sent,
    UpsertVectors: _check_count,
    DeleteVectors: _check_count,
    SearchVectors: _check_matches,
    RunHook: _check_object,
    Chat: _check_chat,
    RecallMemory: _check_memories,
    CompleteChat: _check_object,
}
_DEFAULTS: dict[type, Callable[[Any], Any]] = {
    RecallMemory: lambda result: [
        {"tags": [], "concept_tags": [], "created_at": None, "memory_type": None, **entry}
        for entry in result["entries"]
    ],
    CompleteChat: lambda result: {"content": None, **result},
    Publish: lambda result: result,
}
"""Results that a plugin receives: the host may omit the tags of a memory, and the text of a streamed answer."""


# Results, built by the peer that was asked.


class StreamedRequest(IncomingRequest):
    """A request of the peer that waits for our answer; `said`: whether a delta of it went out."""

    __slots__ = ("said", "stream")

    def __init__(self, id: Id, op: Operation) -> None:
        self.id = id  # not through the base: every tool call makes one of these
        self.op = op
        self.stream: bool = getattr(op, "stream", False)
        self.said = False


def build_result(op: type, value: Any, stream: bool = False, said: bool = False) -> Any:
    """A handler's value for `op` as the contract's result; a `Failure` when it has no form there."""
    if op in _ACKNOWLEDGED:
        return OK
    if op is RecallMemory:
        return {"entries": value}
    return _build_completion(value, stream, said) if op is CompleteChat else value


_ACKNOWLEDGED = frozenset({StartChannel, StopChannel, Shutdown, Publish})


def _build_completion(value: Any, stream: bool, said: bool) -> Any:
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


TOOL_KEYS = ("name", "description", "input_schema")


def check_greeting(result: Any, expected_id: str, declared: Iterable[str]) -> dict[str, Any] | Failure:
    """The identity from the greeting, as `Ready` carries it, or the reason to refuse the plugin."""
    if not isinstance(result, dict):
        return _failed("the answer to initialize is not an object")
    manifest = result.get("manifest")
    table = manifest.get("plugin") if isinstance(manifest, dict) else None
    plugin_id = table.get("id") if isinstance(table, dict) else None
    if not isinstance(plugin_id, str):
        return _failed("the answer to initialize has no manifest with a plugin.id")
    if plugin_id not in (expected_id, expected_id.partition(".")[0]):
        ids = {"expected_id": expected_id, "plugin_id": plugin_id}
        return _failed(f"the plugin calls itself {plugin_id!r}, not {expected_id!r}", **ids)
    tools = _check_tools(result["tools"]) if "tools" in result else []
    if isinstance(tools, Failure):
        return tools
    names = {tool["name"] for tool in tools}
    promised = list(declared)
    drift = sorted(names.difference(promised))
    if drift:
        return _failed(f"offers tools its manifest does not declare: {', '.join(drift)}", undeclared=drift)
    version = result.get("server_version")
    missing = [name for name in promised if name not in names]
    return {
        "plugin_id": plugin_id,
        "server_version": version if isinstance(version, str) else "",
        "tools": tools,
        "warnings": _warnings(missing, version),
    }


def _check_tools(entries: Any) -> list[dict[str, Any]] | Failure:
    if not isinstance(entries, list):
        return _failed("tools in the answer to initialize is not an array")
    tools: dict[str, dict[str, Any]] = {}
    for position, entry in enumerate(entries):
        if not _is_tool(entry):
            wanted = "name and description (strings) and input_schema (an object)"
            return _failed(f"tools[{position}] in the answer to initialize must hold {wanted}")
        if entry["name"] in tools:
            return _failed(f"offers the tool {entry['name']!r} twice")
        tools[entry["name"]] = {key: entry[key] for key in TOOL_KEYS}
    return list(tools.values())


def _is_tool(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    name, description, schema = (entry.get(key) for key in TOOL_KEYS)
    return isinstance(name, str) and name != "" and isinstance(description, str) and isinstance(schema, dict)


def _warnings(missing: list[str], version: Any) -> list[str]:
    warnings = [f"declares the tool {name!r} but does not offer it; calls to it will fail" for name in missing]
    if not isinstance(version, str):
        warnings.append("does not say its server_version")
    return warnings


def _failed(what: str, **detail: Any) -> Failure:
    return Failure(Code.HANDSHAKE_FAILED, what, detail=detail)


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


def read_request(method: Method, params: Any, plugin_id: str) -> Operation | str:
    """The operation that `method` asks for, or what is wrong with its parameters. Missing ones read as null."""
    if not isinstance(params, dict):
        return "params must be an object"
    if method is TOOL:
        return _read_tool(params, plugin_id)
    values: dict[str, Any] = {}
    for key, field, kind in method.fields:
        value = params.get(key)
        fits, wanted = _KINDS[kind]
        if not fits(value):
            return f"{key} must be {wanted}"
        values[field] = value
    read_values = _READERS.get(method.op)
    operation: Operation | str = method.op(**values) if read_values is None else read_values(values)
    return operation


def read_shutdown(params: Any) -> Shutdown:
    """A shutdown, whatever its params."""
    reason = params.get("reason") if isinstance(params, dict) else None
    return Shutdown(reason if isinstance(reason, str) else "")


def _read_tool(params: dict[str, Any], plugin_id: str) -> Operation | str:
    tool = params.get("tool_name")
    if not (isinstance(tool, str) and tool):
        return "tool_name must be a string that is not empty"
    context = {"agent_id": params.get("agent_id"), "plugin_id": params.get("plugin_id", plugin_id)}
    return InvokeTool(tool, params.get("args"), context)


def _read_chat(values: dict[str, Any]) -> Operation | str:
    return Chat(**{**values, "stream": values["stream"] is True})


def _read_publish(values: dict[str, Any]) -> Operation | str:
    return Publish(**values) if values["topic"] else "topic must not be empty"


def _read_recall(values: dict[str, Any]) -> Operation | str:
    limit = values["limit"] if _is_count(values["limit"]) else DEFAULT_LIMIT
    return RecallMemory(**{**values, "limit": min(limit, MAX_LIMIT)})


def _read_completion(values: dict[str, Any]) -> Operation | str:
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
    """A number that other hosts read as u64: no bool, no float, not negative."""
    return type(value) is int and value >= 0


_READERS: dict[type, Callable[[dict[str, Any]], Operation | str]] = {
    Chat: _read_chat,
    Publish: _read_publish,
    RecallMemory: _read_recall,
    CompleteChat: _read_completion,
}
