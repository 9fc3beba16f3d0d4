"""`ctx`: what a handler may ask of the host. The same names in plain and in async handlers.

The services here say what is asked and how an answer reads; a line carries it. In a plain handler the line blocks and
`ctx.memory.recall(…)` returns; in an async handler it returns something to await. Knows no threads, no loop, no wire.
"""

from __future__ import annotations

import os

from plugbay.model.errors import Code
from plugbay.model.operations import (
    CompleteChat,
    DeleteStored,
    GetStored,
    ListStored,
    Publish,
    RecallMemory,
    SetStored,
)
from plugbay.sdk.errors import ServiceError
from plugbay.sdk.events import completed, event_object
from plugbay.sdk.settings import Settings
from plugbay.sdk.stdio import note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Protocol

    from plugbay.model.operations import HostOp

    class Line(Protocol):
        """How what is asked reaches the host; blocking, awaitable, or not at all."""

        def ask(self, op: HostOp, read: Callable[[Any], Any], timeout: float) -> Any: ...
        def stream(self, op: HostOp, read: Callable[[Any], Any], timeout: float) -> Any: ...
        def tell(self, op: HostOp) -> Any: ...


SERVICE_SECONDS = 30.0
"""How long a service may take, unless the caller says otherwise; what the published SDKs of nexo wait."""


STORAGE = frozenset({GetStored, SetStored, DeleteStored, ListStored})

MAX_KEYS = 1_000
"""Keys of one answer; what hosts of kaged list at most."""


class Context:
    """The host's services, who the call is for, and what the operator set. What a host does not say is None."""

    __slots__ = (
        "_settings",
        "agent_id",
        "agent_path",
        "events",
        "llm",
        "memory",
        "operator_id",
        "plugin_id",
        "project_id",
        "request_id",
        "session_id",
        "storage",
    )

    def __init__(
        self, line: Line, plugin_id: str, said: Mapping[str, Any] | None = None, settings: Settings | None = None
    ) -> None:
        said = said or {}
        self.plugin_id = plugin_id
        self.agent_path = _text(said, "agent_path")
        self.agent_id = _text(said, "agent_id") or self.agent_path
        self.session_id = _text(said, "session_id")
        self.project_id = _text(said, "project_id")
        self.operator_id = _text(said, "operator_id")
        self.request_id = _text(said, "request_id")
        self.memory = Memory(line)
        self.llm = Llm(line)
        self.events = Events(line, plugin_id)
        self.storage = Storage(line)
        self._settings = settings or _NOTHING_SET

    @property
    def config(self) -> Mapping[str, Any]:
        """What the operator configured; empty where hosts have no word for it."""
        return self._settings.config

    @property
    def secrets(self) -> Mapping[str, Any]:
        """What the operator keeps secret, by name; masked when it is printed."""
        return self._settings.secrets

    def log(self, *parts: object) -> None:
        """One line on stderr, which the host keeps."""
        note(" ".join(str(part) for part in parts))


class Memory:
    """What agents remember."""

    __slots__ = ("_line",)

    def __init__(self, line: Line) -> None:
        self._line = line

    def recall(self, agent_id: str, query: str, limit: int = 10, timeout: float = SERVICE_SECONDS) -> Any:
        """The memory entries of an agent that fit the query, as objects; awaitable in an async handler."""
        return self._line.ask(RecallMemory(agent_id, query, limit), list, timeout)


class Completion:
    """A model's answer. `content` is None at the end of a stream, whose text was heard already."""

    __slots__ = ("content", "finish_reason", "usage")

    def __init__(self, value: Mapping[str, Any]) -> None:
        self.content: str | None = value.get("content")
        self.finish_reason: str = value.get("finish_reason") or ""
        self.usage: dict[str, int] = value.get("usage") or {}


class Llm:
    """The host's language models."""

    __slots__ = ("_line",)

    def __init__(self, line: Line) -> None:
        self._line = line

    def complete(
        self,
        provider: str,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        *,
        max_tokens: int = 4096,
        temperature: float = 0.7,
        system_prompt: str | None = None,
        timeout: float = SERVICE_SECONDS,
    ) -> Any:
        """The `Completion`; awaitable in an async handler."""
        op = CompleteChat(
            provider,
            model,
            list(messages),
            max_tokens=max_tokens,
            temperature=temperature,
            system_prompt=system_prompt,
        )
        return self._line.ask(op, Completion, timeout)

    def stream(
        self,
        provider: str,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        *,
        max_tokens: int = 4096,
        temperature: float = 0.7,
        system_prompt: str | None = None,
        timeout: float = SERVICE_SECONDS,
    ) -> Any:
        """An iterator over pieces of text, `async for` in an async handler; its `result` is there after the last.

        `timeout` bounds the silence before each piece, not the whole.
        """
        op = CompleteChat(
            provider,
            model,
            list(messages),
            max_tokens=max_tokens,
            temperature=temperature,
            system_prompt=system_prompt,
            stream=True,
        )
        return self._line.stream(op, Completion, timeout)


class Events:
    """The host's bus."""

    __slots__ = ("_line", "_plugin_id")

    def __init__(self, line: Line, plugin_id: str) -> None:
        self._line = line
        self._plugin_id = plugin_id

    def publish(
        self,
        topic: str,
        payload: Any,
        *,
        source: str | None = None,
        correlation_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        session_id: str | None = None,
        full: bool = False,
    ) -> Any:
        """Put an event on the bus; may be awaited in an async handler. No host says whether it wanted the event.

        `full` adds an id, the time and the session, for hosts that drop events without them.
        """
        optional = {"correlation_id": correlation_id, "metadata": metadata}
        event = event_object(topic, source or self._plugin_id, payload, optional)
        if full:
            from time import time

            event = completed(event, os.urandom(16), time(), session_id)
        return self._line.tell(Publish(topic, event))


class Storage:
    """The plugin's own keys and JSON values, which its host keeps. Everything is awaitable in an async handler."""

    __slots__ = ("_line",)

    def __init__(self, line: Line) -> None:
        self._line = line

    def get(self, key: str, default: Any = None, timeout: float = SERVICE_SECONDS) -> Any:
        """The value of the key, or `default` when it has none."""
        return self._line.ask(GetStored(key), lambda kept: kept["value"] if kept["found"] else default, timeout)

    def set(self, key: str, value: Any, timeout: float = SERVICE_SECONDS) -> Any:
        """Keep the value; returns when the host has it."""
        return self._line.ask(SetStored(key, value), lambda _: None, timeout)

    def delete(self, key: str, timeout: float = SERVICE_SECONDS) -> Any:
        """Forget the key; whether it was there."""
        return self._line.ask(DeleteStored(key), bool, timeout)

    def keys(self, prefix: str = "", limit: int = MAX_KEYS, timeout: float = SERVICE_SECONDS) -> Any:
        """A list of the first keys that begin with `prefix`, sorted."""
        return self._line.ask(ListStored(prefix, limit), list, timeout)


class Unconnected:
    """The line of a plugin that has no host with services: every question is refused, with the reason."""

    __slots__ = ()

    def ask(self, op: HostOp, read: Callable[[Any], Any], timeout: float) -> Any:
        raise lacking(op)

    stream = ask

    def tell(self, op: HostOp) -> Any:
        raise lacking(op)


def unconnected(plugin_id: str = "", said: Mapping[str, Any] | None = None) -> Context:
    """The context of a call under a contract without services, or of no call at all."""
    return Context(Unconnected(), plugin_id, said)


def lacking(op: HostOp) -> ServiceError:
    """What a plugin hears that asks for something its host's contract has no word for."""
    return ServiceError(Code.NOT_FOUND, f"this host has no {_SERVICES.get(type(op), 'storage')}")


_NOTHING_SET = Settings()

_SERVICES: dict[type, str] = {RecallMemory: "memory", CompleteChat: "language models", Publish: "event bus"}


def _text(said: Mapping[str, Any], key: str) -> str | None:
    value = said.get(key)
    return value if isinstance(value, str) else None
