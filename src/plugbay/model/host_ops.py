"""What a plugin asks or tells the host, one class each. `operations` says what their fields hold."""

from __future__ import annotations

from plugbay.model.values import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


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


class GetSnapshot(Value):
    """What was last published under a topic; answered with `{"data": bytes | None, "version": int}`."""

    __slots__ = ("topic",)

    def __init__(self, topic: str) -> None:
        self.topic = topic


class PublishSnapshot(Value):
    """Put bytes under a topic, in the place of what is there, and tell whoever listens."""

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
    """What a folder holds; answered with a list of `{"name": str, "is_dir": bool, "size": int}`."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path


class ReadFile(Value):
    """What a file holds; answered with bytes."""

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
    """What the plugin offers has changed; `offer` is all of it now, as its contract lists it."""

    __slots__ = ("offer",)

    def __init__(self, offer: Any) -> None:
        self.offer = offer


class ChangeResource(Value):
    """What the plugin keeps under `uri` is not what it was."""

    __slots__ = ("uri",)

    def __init__(self, uri: str) -> None:
        self.uri = uri


class AskUser(Value):
    """Put a question to a person; answered with `{"action": "accept" or "decline" or "cancel", "content"?: {…}}`.

    `schema` says what the answer may be; where `url` is given, the person is asked to go there instead. `during` is the
    operation of ours that the plugin works on when it asks; None where the contract does not say which.
    """

    __slots__ = ("during", "message", "schema", "url")

    def __init__(self, message: str, schema: Any = None, url: str | None = None, during: Any = None) -> None:
        self.message = message
        self.schema = schema
        self.url = url
        self.during = during


class ListRoots(Value):
    """Which folders the work is about; answered with a list of `{"uri": str, "name"?: str}`."""

    __slots__ = ()
