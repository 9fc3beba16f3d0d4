"""`ctx`: the host's services as a handler uses them, with the same names in plain and in async handlers.

A `HostClient` carries the requests. In a plain handler it blocks and `ctx.memory.recall(…)` returns the value; in an
async handler it returns an awaitable. `Secrets` are masked when printed. Independent of threads, loops and wires.
"""

from __future__ import annotations

import os
import sys
from _collections_abc import Mapping

from plugbay.model.operations import (
    AskUser,
    CompleteChat,
    DeleteStored,
    GetStored,
    ListStored,
    Publish,
    RecallMemory,
    SetStored,
    WriteLog,
)
from plugbay.sdk.errors import ServiceError
from plugbay.sdk.events import completed, event_object
from plugbay.sdk.io.stdio import note
from plugbay.sdk.services.cancellation import Cancellation
from plugbay.sdk.services.host_client import SERVICE_SECONDS, Unconnected

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from plugbay.model.events import CallId
    from plugbay.sdk.results import Compaction
    from plugbay.sdk.services.brokered import Actions, Files, Http, Snapshots
    from plugbay.sdk.services.gateway import Gateway
    from plugbay.sdk.services.host_client import HostClient

MASK = "***"
"""Shown in place of every secret; does not tell its length."""


class Config(Mapping[str, "Any"]):
    """Read-only settings by name."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._shown()})"

    def _shown(self) -> dict[str, Any]:
        return self._values


class Secrets(Config):
    """Settings that are readable by name only: printed, logged or formatted, they are masked."""

    __slots__ = ()

    def _shown(self) -> dict[str, Any]:
        return dict.fromkeys(self._values, MASK)


class Settings:
    """Configuration and secrets of one connection; empty until the host has sent them.

    `full_events` is the author's: whether published events have an id, the time and the session.
    """

    __slots__ = ("config", "full_events", "secrets")

    def __init__(self, *, full_events: bool = False) -> None:
        self.full_events = full_events
        self.take({}, {})

    def take(self, config: Mapping[str, Any], secrets: Mapping[str, Any]) -> None:
        self.config = Config(config)
        self.secrets = Secrets(secrets)


ASK_SECONDS = 300.0
"""How long a person may take to answer."""

MAX_KEYS = 1_000
"""Keys of one answer; the limit of kaged hosts."""


class Context:
    """The host's services, the ids of the call, and the operator's settings. Ids that a host does not send are None.

    `log` writes a line to the host's log. `out` and `err` take the output of a command line, text or bytes; elsewhere
    they are where `print` goes.
    """

    __slots__ = (
        "_client",
        "_report",
        "_settings",
        "_stop",
        "agent_id",
        "agent_path",
        "err",
        "events",
        "llm",
        "log",
        "memory",
        "operator_id",
        "out",
        "plugin_id",
        "project_id",
        "request_id",
        "session_id",
        "storage",
    )

    def __init__(
        self,
        client: HostClient,
        plugin_id: str,
        said: Mapping[str, Any] | None = None,
        settings: Settings | None = None,
        stop: Cancellation | None = None,
    ) -> None:
        """`stop` is the cancellation of the call; without one, nothing is ever cancelled."""
        said = said or {}
        self._client = client
        self.plugin_id = plugin_id
        self.agent_path = _text(said, "agent_path")
        self.agent_id = _text(said, "agent_id") or self.agent_path
        self.session_id = _text(said, "session_id")
        self.project_id = _text(said, "project_id")
        self.operator_id = _text(said, "operator_id")
        self.request_id = _text(said, "request_id")
        self.memory = Memory(client)
        self.llm = Llm(client)
        self._settings = settings or _NOTHING_SET
        self.events = Events(client, plugin_id, full=self._settings.full_events)
        self.storage = Storage(client)
        self.log = Log(client)
        self.out: Any = sys.stdout
        self.err: Any = sys.stderr
        self._stop = stop or _NEVER
        self._report: Callable[[str, dict[str, Any]], None] | None = None

    @property
    def config(self) -> Mapping[str, Any]:
        """The operator's configuration; empty where the contract has none."""
        return self._settings.config

    @property
    def secrets(self) -> Mapping[str, Any]:
        """The operator's secrets by name; masked when printed."""
        return self._settings.secrets

    # Set under vai; None under other contracts.

    invocation_id: str | None = None
    trace_id: str | None = None
    org_id: str | None = None
    chain_id: str | None = None
    run_id: str | None = None
    deadline_at: str | None = None
    tool_execution_id: str | None = None
    """The same in every attempt of one call, so that a tool can detect retries."""
    delivery_id: str | None = None
    """The same in every attempt to deliver one event to a hook."""
    attempt: int | None = None
    compaction: Compaction | None = None
    """In a compactor: the target size and the pinned items."""

    @property
    def remaining(self) -> float | None:
        """Seconds until the call is cancelled, at least 0: by the host's deadline, else by `timeout=` of the export.

        None without either.
        """
        return self._stop.remaining()

    @property
    def cancelled(self) -> bool:
        """Whether the call was cancelled: by the host, by the host's end, or by the deadline.

        An async handler is cancelled by itself.
        """
        return bool(self._stop.why)

    def check_cancelled(self) -> None:
        """Raise `Cancelled` if the call was cancelled."""
        self._stop.check()

    def sleep(self, seconds: float) -> None:
        """Sleep in a plain handler; raises `Cancelled` as soon as the call is cancelled."""
        if self._stop.wait(seconds):
            self._stop.check()

    def progress(self, message: str = "", **more: Any) -> None:
        """Report progress to the caller, where the contract supports it; never awaited."""
        if self._report is not None:
            self._report(message, more)

    def during(self, call: CallId | None, report: Callable[[str, dict[str, Any]], None]) -> Context:
        """Bind requests to this call, and progress to `report`."""
        self._client.within = call
        self._report = report
        return self

    def ask(
        self,
        message: str,
        schema: Mapping[str, Any] | None = None,
        *,
        url: str | None = None,
        timeout: float = ASK_SECONDS,
    ) -> Any:
        """Ask the user of the client: the object that they filled in, or None when they declined.

        `schema` is of that object, flat; with `url` they are asked to go there. Awaitable in an async handler.
        """
        op = AskUser(message, None if schema is None else dict(schema), url)
        return self._client.ask(
            op, lambda said: said.get("content", {}) if said["action"] == "accept" else None, timeout
        )

    def checkpoint(self, data: Any) -> None:
        """Save a harness's position at the host, as JSON, to resume from; never awaited."""

    @property
    def scratch(self) -> Path | None:
        """The call's own folder, deleted afterwards; None when there is none."""
        return None

    @property
    def gateway(self) -> Gateway | None:
        """The host's API with the rights of this call; None when it has none."""
        return None

    # Services that few plugins use are loaded on first access.

    @property
    def snapshots(self) -> Snapshots:
        """The last value of each topic."""
        from plugbay.sdk.services.brokered import Snapshots

        return Snapshots(self._client)

    @property
    def actions(self) -> Actions:
        """Actions of other plugins."""
        from plugbay.sdk.services.brokered import Actions

        return Actions(self._client)

    @property
    def files(self) -> Files:
        """Files read by the host."""
        from plugbay.sdk.services.brokered import Files

        return Files(self._client)

    @property
    def http(self) -> Http:
        """HTTP requests sent by the host."""
        from plugbay.sdk.services.brokered import Http

        return Http(self._client)


class Memory:
    """The memory of agents."""

    __slots__ = ("_client",)

    def __init__(self, client: HostClient) -> None:
        self._client = client

    def recall(self, agent_id: str, query: str, limit: int = 10, timeout: float = SERVICE_SECONDS) -> Any:
        """The memory entries of an agent that fit the query, as objects; awaitable in an async handler."""
        return self._client.ask(RecallMemory(agent_id, query, limit), list, timeout)


class Completion:
    """A model's answer. `content` is None at the end of a stream, whose text came in pieces."""

    __slots__ = ("content", "finish_reason", "usage")

    def __init__(self, value: Mapping[str, Any]) -> None:
        self.content: str | None = value.get("content")
        self.finish_reason: str = value.get("finish_reason") or ""
        self.usage: dict[str, int] = value.get("usage") or {}


class Llm:
    """The host's language models."""

    __slots__ = ("_client",)

    def __init__(self, client: HostClient) -> None:
        self._client = client

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
        return self._client.ask(op, Completion, timeout)

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
        return self._client.stream(op, Completion, timeout)


class Events:
    """The host's event bus."""

    __slots__ = ("_client", "_full", "_plugin_id")

    def __init__(self, client: HostClient, plugin_id: str, *, full: bool = False) -> None:
        self._client = client
        self._plugin_id = plugin_id
        self._full = full

    def publish(
        self,
        topic: str,
        payload: Any,
        *,
        source: str | None = None,
        correlation_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        session_id: str | None = None,
        full: bool | None = None,
    ) -> Any:
        """Publish an event; may be awaited in an async handler. Hosts do not confirm it.

        `full` adds an id, the time and the session, for hosts that drop events without them; the default is
        `full_events` of the plugin. An event with a `session_id`, a UUID, is always full. Events of kaged have a topic
        and a payload only.
        """
        optional = {"correlation_id": correlation_id, "metadata": metadata}
        event = event_object(topic, source or self._plugin_id, payload, optional)
        if session_id is not None or (self._full if full is None else full):
            from time import time

            event = completed(event, os.urandom(16), time(), session_id)
        return self._client.tell(Publish(topic, event))


class Storage:
    """The plugin's own keys and JSON values, which its host keeps. Everything is awaitable in an async handler."""

    __slots__ = ("_client",)

    def __init__(self, client: HostClient) -> None:
        self._client = client

    def get(self, key: str, default: Any = None, timeout: float = SERVICE_SECONDS) -> Any:
        """The value of the key, or `default` when it has none."""
        return self._client.ask(GetStored(key), lambda kept: kept["value"] if kept["found"] else default, timeout)

    def set(self, key: str, value: Any, timeout: float = SERVICE_SECONDS) -> Any:
        """Store the value; returns when the host has it."""
        return self._client.ask(SetStored(key, value), lambda _: None, timeout)

    def delete(self, key: str, timeout: float = SERVICE_SECONDS) -> Any:
        """Delete the key; True if it existed."""
        return self._client.ask(DeleteStored(key), bool, timeout)

    def keys(self, prefix: str = "", limit: int = MAX_KEYS, timeout: float = SERVICE_SECONDS) -> Any:
        """A list of the first keys that begin with `prefix`, sorted."""
        return self._client.ask(ListStored(prefix, limit), list, timeout)


def unconnected(
    plugin_id: str = "", said: Mapping[str, Any] | None = None, contract: str = "", stop: Cancellation | None = None
) -> Context:
    """The context of a call under a contract without services, or of no call at all."""
    return Context(Unconnected(contract), plugin_id, said, stop=stop)


_NOTHING_SET = Settings()

_NEVER = Cancellation()


def _text(said: Mapping[str, Any], key: str) -> str | None:
    value = said.get(key)
    return value if isinstance(value, str) else None


class Log:
    """`ctx.log("text")`, or with a level: `ctx.log.warn("text", path=path)`. Keywords are the line's fields."""

    __slots__ = ("_client",)

    def __init__(self, client: HostClient) -> None:
        self._client = client

    def __call__(self, *parts: object, **fields: Any) -> None:
        self._write("info", parts, fields)

    def trace(self, *parts: object, **fields: Any) -> None:
        self._write("trace", parts, fields)

    def debug(self, *parts: object, **fields: Any) -> None:
        self._write("debug", parts, fields)

    def info(self, *parts: object, **fields: Any) -> None:
        self._write("info", parts, fields)

    def warn(self, *parts: object, **fields: Any) -> None:
        self._write("warn", parts, fields)

    warning = warn

    def error(self, *parts: object, **fields: Any) -> None:
        self._write("error", parts, fields)

    def _write(self, level: str, parts: tuple[object, ...], fields: dict[str, Any]) -> None:
        text = " ".join(str(part) for part in parts)
        try:
            self._client.tell(WriteLog(level, text, fields or None))
        except ServiceError:  # it has no log, or cannot be sent these fields
            note(_on_one_line(level, text, fields))


def _on_one_line(level: str, text: str, fields: dict[str, Any]) -> str:
    """`info` is written without its level."""
    named = "".join(f" {key}={value!r}" for key, value in fields.items())
    return f"{text}{named}" if level == "info" else f"{level}: {text}{named}"
