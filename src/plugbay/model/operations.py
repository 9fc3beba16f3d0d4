"""The operations that cross a link: two closed unions, one for each direction.

`PluginOp`: requests of the host. `HostOp`: requests of the plugin. A machine lists those that its contract can carry
(`SUPPORTS`); the rest of the host uses these classes, never a contract's method names.
Fields called `input`, `event`, `message`, `request`, `records`, `query` and `payload` hold one JSON value as the
machine's codec treats it: raw bytes or Python values in the host, Python values in a plugin. A field called `data` or
`body` holds plain bytes, whatever form they take on the wire.
"""

from __future__ import annotations

from plugbay.model.values import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

# Requests and notifications of the host to a plugin.

_NO_CONTEXT: dict[str, Any] = {}


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


class Compact(Value):
    """Make a conversation shorter: `{"compaction_id", "source", "target", "policy"}`; answered with seed blocks."""

    __slots__ = ("compactor", "context", "request")

    def __init__(self, compactor: str, request: Any, context: Mapping[str, Any] | None = None) -> None:
        self.compactor = compactor
        self.request = request
        self.context: Mapping[str, Any] = _NO_CONTEXT if context is None else context


class RunHarness(Value):
    """Have a program of several steps run: `{"mode", "target", "trigger", "policy"}`; answered with its checkpoint."""

    __slots__ = ("context", "harness", "request")

    def __init__(self, harness: str, request: Any, context: Mapping[str, Any] | None = None) -> None:
        self.harness = harness
        self.request = request
        self.context: Mapping[str, Any] = _NO_CONTEXT if context is None else context


class CheckHealth(Value):
    """A health check; any answer proves that the plugin is alive."""

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


class Render(Value):
    """Draw a screen of `width` by `height` cells; answered with `{"buffer": …, "redraw": bool, "captures_text": bool}`.

    `generation` is the number of the last key or mouse event that the picture should show.
    """

    __slots__ = ("generation", "height", "screen", "width")

    def __init__(self, screen: str, width: int, height: int, generation: int = 0) -> None:
        self.screen = screen
        self.width = width
        self.height = height
        self.generation = generation


class PressKey(Value):
    """Tell a screen that a key was pressed: `{"code": {"type": …}, "mods": int, "kind": "press"}`."""

    __slots__ = ("generation", "key", "screen")

    def __init__(self, screen: str, key: Mapping[str, Any], generation: int = 0) -> None:
        self.screen = screen
        self.key = key
        self.generation = generation


class UseMouse(Value):
    """Tell a screen what the mouse did: `{"kind": {"type": …}, "col": int, "row": int, "mods": int}`."""

    __slots__ = ("generation", "mouse", "screen")

    def __init__(self, screen: str, mouse: Mapping[str, Any], generation: int = 0) -> None:
        self.screen = screen
        self.mouse = mouse
        self.generation = generation


class PerformAction(Value):
    """Tell the plugin to do something it offers under a name; no answer is expected."""

    __slots__ = ("action", "payload")

    def __init__(self, action: str, payload: Any = None) -> None:
        self.action = action
        self.payload = payload


class DispatchCli(Value):
    """Run a command line of the plugin's namespace; answered with `{"stdout", "stderr": base64, "exit_code": int}`."""

    __slots__ = ("argv", "namespace")

    def __init__(self, namespace: str, argv: Sequence[str]) -> None:
        self.namespace = namespace
        self.argv = argv


class DeliverSnapshot(Value):
    """Tell the plugin what was published under a topic; no answer is expected."""

    __slots__ = ("data", "topic")

    def __init__(self, topic: str, data: bytes) -> None:
        self.topic = topic
        self.data = data


class Shutdown(Value):
    """Ask the plugin to finish what it does and leave; answered when it is ready to go."""

    __slots__ = ("reason",)

    def __init__(self, reason: str = "") -> None:
        self.reason = reason


class InvokeAction(Value):
    """Run an action of the plugin that offers it; answered with bytes. `timeout_ms` 0: no timeout given."""

    __slots__ = ("action", "data", "timeout_ms")

    def __init__(self, action: str, data: bytes = b"", timeout_ms: int = 0) -> None:
        self.action = action
        self.data = data
        self.timeout_ms = timeout_ms


class ReadResource(Value):
    """Read what the plugin keeps under `uri`; answered with `{"contents": […]}`."""

    __slots__ = ("context", "uri")

    def __init__(self, uri: str, context: Mapping[str, Any] | None = None) -> None:
        self.uri = uri
        self.context: Mapping[str, Any] = _NO_CONTEXT if context is None else context


class GetPrompt(Value):
    """Fill in one of the plugin's prompts; answered with `{"description"?, "messages": […]}`."""

    __slots__ = ("context", "input", "prompt")

    def __init__(self, prompt: str, input: Any, context: Mapping[str, Any] | None = None) -> None:
        self.prompt = prompt
        self.input = input
        self.context: Mapping[str, Any] = _NO_CONTEXT if context is None else context


class CompleteArgument(Value):
    """Suggest values for one argument of a prompt or of a resource's address.

    `request` is `{"ref", "argument", "context"?}`; answered with `{"completion": {"values": […], …}}`.
    """

    __slots__ = ("request",)

    def __init__(self, request: Any) -> None:
        self.request = request


class WatchResource(Value):
    """Hear of changes of what is kept under `uri`, or no longer."""

    __slots__ = ("uri", "wanted")

    def __init__(self, uri: str, wanted: bool = True) -> None:
        self.uri = uri
        self.wanted = wanted


class SetLogLevel(Value):
    """Send log lines of this level and above; answered with nothing."""

    __slots__ = ("level",)

    def __init__(self, level: str) -> None:
        self.level = level


# Requests and notifications of a plugin to the host.


class WriteLog(Value):
    """The plugin wants a line in the host's log."""

    __slots__ = ("fields", "level", "message")

    def __init__(self, level: str, message: str, fields: Any = None) -> None:
        self.level = level
        self.message = message
        self.fields = fields


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


class ClientQuestion(Value):
    """A request that a client of the host may answer. Two are equal if they ask the same, whatever their occasion.

    `during` is the operation of ours that the plugin works on when it asks; None where the contract does not say which.
    `request` is the request as an MCP server wrote it.
    """

    __slots__ = ("during", "request")

    def __init__(self) -> None:
        self.during: Any = None
        self.request: dict[str, Any] | None = None


class CompleteChat(ClientQuestion):
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
        super().__init__()
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


class GetSnapshot(Value):
    """Read the last publication of a topic; answered with `{"data": bytes | None, "version": int}`."""

    __slots__ = ("topic",)

    def __init__(self, topic: str) -> None:
        self.topic = topic


class PublishSnapshot(Value):
    """Publish bytes under a topic, replacing the previous ones, and notify the subscribers."""

    __slots__ = ("data", "topic")

    def __init__(self, topic: str, data: bytes) -> None:
        self.topic = topic
        self.data = data


class SubscribeSnapshot(Value):
    """Hear of everything that is published under a topic from now on, for as long as this process lives."""

    __slots__ = ("topic",)

    def __init__(self, topic: str) -> None:
        self.topic = topic


class ReadFolder(Value):
    """List a folder; answered with a list of `{"name": str, "is_dir": bool, "size": int}`."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path


class ReadFile(Value):
    """Read a file; answered with bytes."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path


class FetchUrl(Value):
    """Send one HTTP request; answered with `{"status": int, "headers": [[name, value], …], "body": bytes}`."""

    __slots__ = ("body", "headers", "method", "url")

    def __init__(
        self, url: str, method: str = "GET", body: bytes | None = None, headers: Sequence[tuple[str, str]] = ()
    ) -> None:
        self.url = url
        self.method = method
        self.body = body
        self.headers = headers


class OfferExports(Value):
    """The offer of the plugin changed; `offer` is the whole new one, in the form of its contract."""

    __slots__ = ("offer",)

    def __init__(self, offer: Any) -> None:
        self.offer = offer


class ChangeResource(Value):
    """The resource under `uri` changed."""

    __slots__ = ("uri",)

    def __init__(self, uri: str) -> None:
        self.uri = uri


class AskUser(ClientQuestion):
    """Put a question to a person; answered with `{"action": "accept" or "decline" or "cancel", "content"?: {…}}`.

    `schema` says what the answer may be; where `url` is given, the person is asked to go there instead.
    """

    __slots__ = ("message", "schema", "url")

    def __init__(self, message: str, schema: Any = None, url: str | None = None) -> None:
        super().__init__()
        self.message = message
        self.schema = schema
        self.url = url


class ListRoots(ClientQuestion):
    """Which folders the work is about; answered with a list of `{"uri": str, "name"?: str}`."""

    __slots__ = ()


class ChangeRoots(Value):
    """Tell the plugin that the answer to `ListRoots` has changed; no answer is expected."""

    __slots__ = ()


if TYPE_CHECKING:
    PluginOp = (
        InvokeTool
        | DeliverEvent
        | RunHook
        | CallMethod
        | Compact
        | RunHarness
        | CheckHealth
        | StartChannel
        | StopChannel
        | SendOutbound
        | Chat
        | UpsertVectors
        | SearchVectors
        | DeleteVectors
        | Render
        | PressKey
        | UseMouse
        | PerformAction
        | DispatchCli
        | DeliverSnapshot
        | InvokeAction
        | Shutdown
        | ReadResource
        | GetPrompt
        | CompleteArgument
        | WatchResource
        | SetLogLevel
        | ChangeRoots
    )
    HostOp = (
        WriteLog
        | Publish
        | RecallMemory
        | CompleteChat
        | GetStored
        | SetStored
        | DeleteStored
        | ListStored
        | GetSnapshot
        | PublishSnapshot
        | SubscribeSnapshot
        | InvokeAction
        | ReadFolder
        | ReadFile
        | FetchUrl
        | OfferExports
        | ChangeResource
        | AskUser
        | ListRoots
    )
    Operation = PluginOp | HostOp
