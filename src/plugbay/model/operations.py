"""What can be asked across a link. Two closed unions, told apart by direction.

`PluginOp`: the host asks the plugin. `HostOp`: the plugin asks the host. A machine says which of them its contract can
carry (`SUPPORTS`); everything else in the host is written against these, never against a contract's method names.
Fields called `input`, `event`, `message`, `request`, `records`, `query` and `payload` hold one JSON value as the
machine's codec treats it: raw bytes or Python values in the host, Python values in a plugin.
"""

from __future__ import annotations

from plugbay.model.values import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


_NO_CONTEXT: dict[str, Any] = {}


# Host asks plugin.


class InvokeTool(Value):
    """Run one tool with one input and answer with its output."""

    __slots__ = ("context", "input", "tool")

    def __init__(self, tool: str, input: Any, context: Mapping[str, Any] | None = None) -> None:
        self.tool = tool
        self.input = input
        self.context: Mapping[str, Any] = _NO_CONTEXT if context is None else context


class DeliverEvent(Value):
    """Tell the plugin that something happened; no answer is expected. `payload` is the whole event object."""

    __slots__ = ("payload", "topic")

    def __init__(self, topic: str, payload: Any) -> None:
        self.topic = topic
        self.payload = payload


class RunHook(Value):
    """Ask the plugin what it thinks of `event` before or after it happens; answered with a hook response object."""

    __slots__ = ("context", "event", "hook")

    def __init__(self, hook: str, event: Any, context: Mapping[str, Any] | None = None) -> None:
        self.hook = hook
        self.event = event
        self.context: Mapping[str, Any] = _NO_CONTEXT if context is None else context


class CallMethod(Value):
    """Call a method that the plugin declares under a name of its own."""

    __slots__ = ("context", "input", "method")

    def __init__(self, method: str, input: Any, context: Mapping[str, Any] | None = None) -> None:
        self.method = method
        self.input = input
        self.context: Mapping[str, Any] = _NO_CONTEXT if context is None else context


class CheckHealth(Value):
    """Is anybody there? Any answer proves life."""

    __slots__ = ()


class StartChannel(Value):
    """Begin to carry messages of one channel kind; `instance` tells several accounts of one kind apart."""

    __slots__ = ("instance", "kind")

    def __init__(self, kind: str, instance: str | None = None) -> None:
        self.kind = kind
        self.instance = instance


class StopChannel(Value):
    """Stop carrying messages of one channel kind; may be asked twice."""

    __slots__ = ("kind",)

    def __init__(self, kind: str) -> None:
        self.kind = kind


class SendOutbound(Value):
    """Send one message out through a channel; answered with `{"message_id": str, "sent_at_unix": int}`."""

    __slots__ = ("kind", "message")

    def __init__(self, kind: str, message: Any) -> None:
        self.kind = kind
        self.message = message


class Chat(Value):
    """Ask the plugin's language model. When `stream`, chunks arrive as progress before the answer."""

    __slots__ = ("model", "provider", "request", "stream")

    def __init__(self, provider: str, model: str, request: Any, *, stream: bool = False) -> None:
        self.provider = provider
        self.model = model
        self.request = request
        self.stream = stream


class UpsertVectors(Value):
    """Store records `{id, content, embedding, metadata}`; answered with `{"count": int}`."""

    __slots__ = ("backend", "collection", "records")

    def __init__(self, backend: str, collection: str, records: Any) -> None:
        self.backend = backend
        self.collection = collection
        self.records = records


class SearchVectors(Value):
    """Find the records nearest to `query` `{embedding, limit, filter?}`; answered with `{"matches": […]}`."""

    __slots__ = ("backend", "collection", "query")

    def __init__(self, backend: str, collection: str, query: Any) -> None:
        self.backend = backend
        self.collection = collection
        self.query = query


class DeleteVectors(Value):
    """Forget records by id; answered with `{"count": int}`."""

    __slots__ = ("backend", "collection", "ids")

    def __init__(self, backend: str, collection: str, ids: Any) -> None:
        self.backend = backend
        self.collection = collection
        self.ids = ids


class Shutdown(Value):
    """Ask the plugin to finish what it does and leave; answered when it is ready to go."""

    __slots__ = ("reason",)

    def __init__(self, reason: str = "") -> None:
        self.reason = reason


# Plugin asks host.


class WriteLog(Value):
    """The plugin wants a line in the host's log."""

    __slots__ = ("level", "message")

    def __init__(self, level: str, message: str) -> None:
        self.level = level
        self.message = message


class Publish(Value):
    """Put an event on the bus. `event` is the object as the plugin wrote it; the host completes and stamps it."""

    __slots__ = ("event", "topic")

    def __init__(self, topic: str, event: Any) -> None:
        self.topic = topic
        self.event = event


class RecallMemory(Value):
    """Look up what an agent remembers; answered with a list of memory entry objects."""

    __slots__ = ("agent_id", "limit", "query")

    def __init__(self, agent_id: str, query: str, limit: int = 10) -> None:
        self.agent_id = agent_id
        self.query = query
        self.limit = limit


class CompleteChat(Value):
    """Ask one of the host's language models; answered with `{content, finish_reason, usage, tool_calls}`.

    When `stream`, each piece of text goes to the plugin as progress, and the answer repeats none of it.
    """

    __slots__ = ("max_tokens", "messages", "model", "provider", "stream", "system_prompt", "temperature")

    def __init__(
        self,
        provider: str,
        model: str,
        messages: Any,
        *,
        max_tokens: int = 4096,
        temperature: float = 0.7,
        system_prompt: str | None = None,
        stream: bool = False,
    ) -> None:
        self.provider = provider
        self.model = model
        self.messages = messages
        self.max_tokens = max_tokens
        self.temperature = temperature
        self.system_prompt = system_prompt
        self.stream = stream


class GetStored(Value):
    """Read one value of the plugin's own storage; answered with the value, or null."""

    __slots__ = ("key",)

    def __init__(self, key: str) -> None:
        self.key = key


class SetStored(Value):
    """Keep one JSON value in the plugin's own storage."""

    __slots__ = ("key", "value")

    def __init__(self, key: str, value: Any) -> None:
        self.key = key
        self.value = value


class DeleteStored(Value):
    """Forget one key of the plugin's own storage; answered with whether it was there."""

    __slots__ = ("key",)

    def __init__(self, key: str) -> None:
        self.key = key


class ListStored(Value):
    """The keys of the plugin's own storage that begin with `prefix`, sorted; answered with a list."""

    __slots__ = ("limit", "prefix")

    def __init__(self, prefix: str = "", limit: int = 1000) -> None:
        self.prefix = prefix
        self.limit = limit


if TYPE_CHECKING:
    PluginOp = (
        InvokeTool
        | DeliverEvent
        | RunHook
        | CallMethod
        | CheckHealth
        | StartChannel
        | StopChannel
        | SendOutbound
        | Chat
        | UpsertVectors
        | SearchVectors
        | DeleteVectors
        | Shutdown
    )
    HostOp = WriteLog | Publish | RecallMemory | CompleteChat | GetStored | SetStored | DeleteStored | ListStored
    Operation = PluginOp | HostOp
