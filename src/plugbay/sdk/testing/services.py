"""The services of a host in memory: a test scripts them and inspects the requests.

    host.memory.put("ada", "Tea is a drink.")                 entries of an agent's memory
    host.llm.script(["Good morning.", ["Good ", "day."]])     answers of models, in order
    host.people.script([{"name": "Ada"}, None])               answers of people; None: declined
    host.http.answer("https://example.org/", body="…")        answers of web servers
    host.files["/notes/tea.md"] = "green"                     files that the host reads for a plugin
    host.actions["lamp.switch"] = lambda data: b"on"          actions of other plugins
    host.storage, host.snapshots                              dicts: the plugin's keys, the last value of each topic

`HostServices` checks grants and topics as a real host does; refusals are listed in `refused`. For tests only.
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
from plugbay.model.topics import covers, matches
from plugbay.model.values import Value
from plugbay.sdk.services.brokered import as_bytes, from_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from plugbay.model.spec import PluginSpec
    from plugbay.sdk.testing.spec import OperatorSettings

    ScriptLine = str | Mapping[str, Any] | Failure | list[str] | Callable[[CompleteChat], Any]

MODELS = {"mcp": "sampling"}
"""By contract: the capability for models, where it is not `llm.complete`."""


class HostServices:
    """Answers the plugin's requests with the test's services, and checks grants as a real host does."""

    def __init__(self, spec: PluginSpec, terms: OperatorSettings) -> None:
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
        """Refused requests and dropped notifications."""
        self.topics: set[str] = set(spec.snapshots) if self._may_hear_of_snapshots() else set()
        """Topics that the plugin is subscribed to."""
        self._version = 0

    def _may_hear_of_snapshots(self) -> bool:
        return any(item.kind == "topic" for item in self._terms.access)

    # What it asks.

    def answer(self, op: Any, progress: Callable[[Any], None]) -> Any:
        """The answer to a request: a value or a `Failure`."""
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
        if not any(matches(pattern, op.topic) for pattern in self._spec.publishes):
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
        """Store the last value of a topic."""
        self._version += 1
        self.snapshots[topic] = data

    def covers(self, topic: str) -> bool:
        """Whether the snapshots of a topic may be seen and published."""
        return any(item.kind == "topic" and covers(item.target, topic) for item in self._terms.access)


_ABSENT = object()


def _readable(data: bytes) -> Any:
    try:
        return from_json(data)
    except ValueError:
        return data


def _denied(capability: str, text: str) -> Failure:
    return Failure(Code.CAPABILITY_NOT_ALLOWED, text, origin=Origin.POLICY, detail={"capability": capability})


class Published(Value):
    """Something a plugin published: an event's payload, or a snapshot as JSON where it is some, else as bytes."""

    __slots__ = ("payload", "raw", "topic")

    def __init__(self, topic: str, payload: Any, raw: Any) -> None:
        self.topic = topic
        self.payload = payload
        self.raw = raw
        """The whole event, or the bytes of the snapshot."""


class LogLine(Value):
    """A line for the host's log."""

    __slots__ = ("fields", "level", "message")

    def __init__(self, level: str, message: str, fields: Any = None) -> None:
        self.level = level
        self.message = message
        self.fields = fields


class FakeMemory:
    """Entries of agents' memories, in the order in which they were added."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.asked: list[RecallMemory] = []

    def put(self, agent_id: str, content: str, **more: Any) -> None:
        """Have an agent remember something; `more` are `tags`, `memory_type` and the like."""
        number = len(self.entries) + 1
        entry = {"id": f"memory-{number}", "agent_id": agent_id, "content": content, "tags": []}
        self.entries.append({**entry, "concept_tags": [], "created_at": None, "memory_type": None, **more})

    def recall(self, op: RecallMemory) -> list[dict[str, Any]]:
        """The agent's entries that have a word of the query in them; all of them for an empty query."""
        self.asked.append(op)
        words = op.query.lower().split()
        own = [entry for entry in self.entries if entry["agent_id"] == op.agent_id]
        fit = [entry for entry in own if not words or any(word in entry["content"].lower() for word in words)]
        return fit[: op.limit]


class FakeLlm:
    """All models; they answer from the script."""

    def __init__(self) -> None:
        self.asked: list[CompleteChat] = []
        self._script: list[ScriptLine] = []

    def script(self, lines: Iterable[ScriptLine]) -> None:
        """What is answered next: a text, a list of pieces, `{content, finish_reason, usage}`, a `Failure`, or a
        function that is given the request and returns one of these.
        """
        self._script += lines

    def complete(self, op: CompleteChat, progress: Callable[[Any], None]) -> Any:
        self.asked.append(op)
        if not self._script:
            return Failure(Code.NOT_FOUND, "nothing is scripted for a model to say: host.llm.script([…])")
        line: Any = self._script.pop(0)
        said = line(op) if callable(line) else line
        if isinstance(said, Failure):
            return said
        pieces = [said] if isinstance(said, str) else said
        whole = dict(said) if isinstance(said, dict) else {"content": "".join(pieces)}
        if op.stream:
            for piece in [whole["content"]] if isinstance(said, dict) else pieces:
                progress(piece)
            whole["content"] = None
        return {"finish_reason": "stop", "usage": {"prompt_tokens": 0, "completion_tokens": 0}, **whole}


class FakePeople:
    """The users of the client; they answer from the script."""

    def __init__(self) -> None:
        self.asked: list[AskUser] = []
        self._script: list[Mapping[str, Any] | None] = []

    def script(self, answers: Iterable[Mapping[str, Any] | None]) -> None:
        """What is answered next: what they fill in, or None when they decline."""
        self._script += answers

    def answer(self, op: AskUser) -> Any:
        self.asked.append(op)
        if not self._script:
            return Failure(Code.NOT_FOUND, "nothing is scripted for people to answer: host.people.script([…])")
        said = self._script.pop(0)
        return {"action": "decline"} if said is None else {"action": "accept", "content": dict(said)}


class FakeHttp:
    """All web servers."""

    def __init__(self) -> None:
        self.asked: list[FetchUrl] = []
        self._answers: dict[str, Any] = {}

    def answer(self, url: str, body: Any = b"", *, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """What is answered at a URL from now on; `body` is bytes, a text or a JSON value."""
        self._answers[url] = {
            "status": status,
            "headers": [[name, value] for name, value in (headers or {}).items()],
            "body": as_bytes(body),
        }

    def fetch(self, op: FetchUrl) -> Any:
        self.asked.append(op)
        unknown = f"nobody answers at {op.url}: host.http.answer({op.url!r}, …)"
        return self._answers.get(op.url) or Failure(Code.UNAVAILABLE, unknown)


class FakeFiles(dict[str, "bytes | str"]):
    """Files by their absolute paths; folders are there because files are in them."""

    def read(self, path: str) -> Any:
        found = self.get(path)
        return Failure(Code.NOT_FOUND, f"there is no file {path}") if found is None else as_bytes(found)

    def entries(self, path: str) -> Any:
        """What is in a folder, by name."""
        start = path.rstrip("/") + "/"
        inside = {name.removeprefix(start): data for name, data in self.items() if name.startswith(start)}
        found: dict[str, dict[str, Any]] = {}
        for rest, data in sorted(inside.items()):
            name, slash, _ = rest.partition("/")
            found[name] = {"name": name, "is_dir": bool(slash), "size": 0 if slash else len(as_bytes(data))}
        return list(found.values()) if found else Failure(Code.NOT_FOUND, f"there is no folder {path}")
