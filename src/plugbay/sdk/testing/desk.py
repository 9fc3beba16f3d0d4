"""`Desk`: what a plugin may ask and tell a host in memory, as a real host would let it.

Owns who gets which answer: only what is granted, only topics that the manifest names; what a real host drops without a
word is kept in `refused`. The services behind it are told what to do by the test. For tests alone.
"""

from __future__ import annotations

import os
from pathlib import PurePosixPath

from plugbay.model.errors import CallFailed, Code, Failure, Origin
from plugbay.model.operations import (
    AskUser,
    CompleteChat,
    DeleteStored,
    FetchUrl,
    GetSnapshot,
    GetStored,
    InvokeAction,
    ListStored,
    Publish,
    PublishSnapshot,
    ReadFile,
    ReadFolder,
    RecallMemory,
    SetStored,
    SubscribeSnapshot,
    WriteLog,
)
from plugbay.model.topics import covers as covers_topic
from plugbay.sdk.events import covers
from plugbay.sdk.payloads import as_bytes, from_json
from plugbay.sdk.testing.services import FakeFiles, FakeHttp, FakeLlm, FakeMemory, FakePeople, LogLine, Published

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from plugbay.model.spec import PluginSpec
    from plugbay.sdk.testing.spec import Terms


MODELS = {"mcp": "sampling"}
"""The capability that models are behind, where it is not called as most do."""


class Desk:
    """The host as one plugin sees it."""

    def __init__(self, spec: PluginSpec, terms: Terms) -> None:
        self._spec = spec
        self._terms = terms
        self.memory, self.llm, self.people = FakeMemory(), FakeLlm(), FakePeople()
        self.http, self.files = FakeHttp(), FakeFiles()
        self.storage: dict[str, Any] = {}
        self.snapshots: dict[str, bytes] = {}
        self.actions: dict[str, Callable[[bytes], Any]] = {}
        self.published: list[Published] = []
        self.logs: list[LogLine] = []
        self.refused: list[Failure] = []
        """Every no that the plugin was given, and what was dropped of what it told."""
        self.topics: set[str] = set(spec.snapshots) if self._may_hear_of_snapshots() else set()
        """The snapshots that it hears of."""
        self._version = 0

    def _may_hear_of_snapshots(self) -> bool:
        return any(item.kind == "topic" for item in self._terms.access)

    # What it asks.

    def answer(self, op: Any, progress: Callable[[Any], None]) -> Any:
        """The value for what was asked, or a `Failure`."""
        try:
            answer = self._answer(op, progress)
        except CallFailed as error:
            answer = error.failure
        except Exception as error:
            answer = Failure(Code.INTERNAL, f"what the test put in the place of a service raised {error!r}")
        if isinstance(answer, Failure):
            self.refused.append(answer)
        return answer

    def _answer(self, op: Any, progress: Callable[[Any], None]) -> Any:
        match op:
            case RecallMemory():
                return self._needs("memory.recall") or self.memory.recall(op)
            case CompleteChat():
                return self._needs(MODELS.get(self._spec.contract, "llm.complete")) or self.llm.complete(op, progress)
            case AskUser():
                return self._needs("elicitation") or self.people.answer(op)
            case Publish():
                return self._publish(op)
            case GetStored() | SetStored() | DeleteStored() | ListStored():
                return self._stored(op)
            case GetSnapshot() | SubscribeSnapshot():
                return self._snapshot(op)
            case InvokeAction():
                return self._act(op)
            case ReadFile() | ReadFolder():
                return self._read(op)
            case FetchUrl():
                return self._fetch(op)
        return Failure(Code.NOT_FOUND, f"there is no {type(op).__name__} here", detail={"absent": True})

    def _needs(self, capability: str) -> Failure | None:
        if capability in self._terms.granted:
            return None
        return _denied(capability, f"{capability} is not granted to {self._spec.id}")

    def _stored(self, op: GetStored | SetStored | DeleteStored | ListStored) -> Any:
        kind = "storage_write" if isinstance(op, SetStored | DeleteStored) else "storage_read"
        if not any(item.kind == kind for item in self._terms.access):
            return _denied(kind, f"{kind.replace('_', ' ')} access was not requested and granted")
        match op:
            case GetStored():
                return {"found": op.key in self.storage, "value": self.storage.get(op.key)}
            case SetStored():
                self.storage[op.key] = op.value
                return None
            case DeleteStored():
                return self.storage.pop(op.key, _ABSENT) is not _ABSENT
        return sorted(key for key in self.storage if key.startswith(op.prefix))[: op.limit]

    def _snapshot(self, op: GetSnapshot | SubscribeSnapshot) -> Any:
        if not self.covers(op.topic):
            return _denied("event_bus", f"the event bus is not granted for {op.topic}")
        if isinstance(op, SubscribeSnapshot):
            self.topics.add(op.topic)
            return None
        return {"data": self.snapshots.get(op.topic), "version": self._version if op.topic in self.snapshots else 0}

    def _act(self, op: InvokeAction) -> Any:
        handler = self.actions.get(op.action)
        if handler is None:
            return Failure(Code.INVALID_INPUT, f"nobody offers {op.action!r}: host.actions[{op.action!r}] = …")
        return as_bytes(handler(op.data))

    def _read(self, op: ReadFile | ReadFolder) -> Any:
        roots = [os.path.expanduser(item.target) for item in self._terms.access if item.kind == "read_path"]
        if not any(PurePosixPath(op.path).is_relative_to(root) for root in roots):
            return _denied("read_paths", f"{op.path} is outside of what is granted to {self._spec.id}")
        return self.files.read(op.path) if isinstance(op, ReadFile) else self.files.entries(op.path)

    def _fetch(self, op: FetchUrl) -> Any:
        from urllib.parse import urlsplit

        parts = urlsplit(op.url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        if not self._terms.reaches(host, port):
            return _denied("network", f"the network is not granted for {host}, port {port}")
        return self.http.fetch(op)

    # What it tells.

    def notified(self, op: Any) -> None:
        match op:
            case Publish():
                refusal = self._publish(op)
                self.refused += [refusal] if refusal is not None else []
            case PublishSnapshot():
                self._publish_snapshot(op)
            case WriteLog():
                self.logs.append(LogLine(op.level, op.message, op.fields))

    def _publish(self, op: Publish) -> Failure | None:
        if not any(covers(pattern, op.topic) for pattern in self._spec.publishes):
            allowed = ", ".join(self._spec.publishes) or "nothing"
            return _denied("publish", f"{op.topic!r} is outside this plugin's topics ({allowed})")
        payload = op.event.get("payload") if isinstance(op.event, dict) else op.event
        self.published.append(Published(op.topic, payload, op.event))
        return None

    def _publish_snapshot(self, op: PublishSnapshot) -> None:
        if not self.covers(op.topic):
            self.refused.append(_denied("event_bus", f"the event bus is not granted for {op.topic}"))
            return
        self.keep(op.topic, op.data)
        self.published.append(Published(op.topic, _readable(op.data), op.data))

    def keep(self, topic: str, data: bytes) -> None:
        """This is what was last published under a topic."""
        self._version += 1
        self.snapshots[topic] = data

    def covers(self, topic: str) -> bool:
        """Whether the snapshots of a topic may be seen and published."""
        return any(item.kind == "topic" and covers_topic(item.target, topic) for item in self._terms.access)


_ABSENT = object()


def _readable(data: bytes) -> Any:
    try:
        return from_json(data)
    except ValueError:
        return data


def _denied(capability: str, text: str) -> Failure:
    return Failure(Code.CAPABILITY_NOT_ALLOWED, text, origin=Origin.POLICY, detail={"capability": capability})
