"""The services of a host in memory: a test scripts them and inspects the requests.

    host.memory.put("ada", "Tea is a drink.")                 entries of an agent's memory
    host.llm.script(["Good morning.", ["Good ", "day."]])     answers of models, in order
    host.people.script([{"name": "Ada"}, None])               answers of people; None: declined
    host.http.answer("https://example.org/", body="…")        answers of web servers
    host.files["/notes/tea.md"] = "green"                     files that the host reads for a plugin
    host.actions["lamp.switch"] = lambda data: b"on"          actions of other plugins
    host.storage, host.snapshots                              dicts: the plugin's keys, the last value of each topic

Each request passes the gate of a real host (`model.gate`); refusals are listed in `refused`. For tests only.
"""

from __future__ import annotations

import os
from pathlib import PurePosixPath

from plugbay.contracts.schemas import answer_problem
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.gate import (
    MAX_LISTED,
    covers_topic,
    invalid,
    is_readable,
    refuse_answer,
    refuse_event_size,
    refuse_storage,
    refuse_subscription,
    value_problem,
)
from plugbay.model.operations import (
    AskUser,
    CompleteChat,
    DeleteStored,
    FetchUrl,
    GetSnapshot,
    GetStored,
    InvokeAction,
    ListRoots,
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
from plugbay.model.values import Value
from plugbay.sdk.services.brokered import as_bytes, from_json
from plugbay.wire.strict_json import stdlib_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from plugbay.model.gate import Gate
    from plugbay.model.spec import PluginSpec

    ScriptLine = str | Mapping[str, Any] | Failure | list[str] | Callable[[CompleteChat], Any]


class HostServices:
    """Answers the requests of the plugin that the gate allows with the services of the test."""

    def __init__(self, spec: PluginSpec, gate: Gate) -> None:
        self._spec = spec
        self._gate = gate
        self.memory, self.llm, self.people = FakeMemory(), FakeLlm(), FakePeople()
        self.http, self.files = FakeHttp(), FakeFiles()
        self.storage: dict[str, Any] = {}
        self.snapshots: dict[str, bytes] = {}
        self.actions: dict[str, Callable[[bytes], Any]] = {}
        self.published: list[Published] = []
        self.logs: list[LogLine] = []
        self.refused: list[Failure] = []
        """Refused requests and dropped notifications."""
        self.topics: set[str] = {topic for topic in spec.snapshots if covers_topic(gate.access, topic)}
        """Snapshot topics that the plugin is subscribed to."""
        self._version = 0

    # Requests.

    def answer(self, op: Any, progress: Callable[[Any], None]) -> Any:
        """The answer to a request: a value or a `Failure`."""
        try:
            answer = self._gate.refuse(op) or self._answer(op, progress)
        except CallFailed as error:
            answer = error.failure
        except Exception as error:
            answer = Failure(Code.INTERNAL, f"the test's replacement of a service raised {error!r}")
        if isinstance(answer, Failure):
            self.refused.append(answer)
        return answer

    def _answer(self, op: Any, progress: Callable[[Any], None]) -> Any:
        match op:
            case RecallMemory() | CompleteChat() | AskUser() | ListRoots():
                return self._ask_agent(op, progress)
            case Publish():
                return self._publish(op)
            case GetStored() | SetStored() | DeleteStored() | ListStored():
                return self._handle_storage(op)
            case GetSnapshot() | SubscribeSnapshot():
                return self._read_snapshot(op)
            case InvokeAction():
                return self._invoke(op)
            case ReadFile() | ReadFolder():
                return self._read(op)
            case FetchUrl():
                return self.http.fetch(op)
        return self.notified(op)

    def _ask_agent(self, op: RecallMemory | CompleteChat | AskUser | ListRoots, progress: Callable[[Any], None]) -> Any:
        match op:
            case RecallMemory():
                return self.memory.recall(op)
            case CompleteChat():
                return self.llm.complete(op, progress)
            case AskUser():
                return self.people.answer(op)
        return []

    def _handle_storage(self, op: GetStored | SetStored | DeleteStored | ListStored) -> Any:
        match op:
            case GetStored():
                return {"found": op.key in self.storage, "value": self.storage.get(op.key)}
            case SetStored():
                return self._store(op)
            case DeleteStored():
                return self.storage.pop(op.key, _ABSENT) is not _ABSENT
        return sorted(key for key in self.storage if key.startswith(op.prefix))[: min(op.limit, MAX_LISTED)]

    def _store(self, op: SetStored) -> Failure | None:
        problem = value_problem(_size(op.value))
        if problem is not None:
            return invalid(problem)
        stored = {**self.storage, op.key: op.value}
        used = sum(len(key.encode()) + _size(value) for key, value in stored.items())
        refusal = refuse_storage(len(stored), used)
        if refusal is None:
            self.storage[op.key] = op.value
        return refusal

    def _read_snapshot(self, op: GetSnapshot | SubscribeSnapshot) -> Any:
        if isinstance(op, SubscribeSnapshot):
            refusal = refuse_subscription(self.topics | {op.topic})
            self.topics |= set() if refusal is not None else {op.topic}
            return refusal
        return {"data": self.snapshots.get(op.topic), "version": self._version if op.topic in self.snapshots else 0}

    def _invoke(self, op: InvokeAction) -> Any:
        handler = self.actions.get(op.action)
        if handler is None:
            return Failure(
                Code.INVALID_INPUT, f"no such action: {op.action!r}; offer it with host.actions[{op.action!r}] = …"
            )
        return as_bytes(handler(op.data))

    def _read(self, op: ReadFile | ReadFolder) -> Any:
        path, roots = os.path.normpath(op.path), map(os.path.expanduser, self._gate.read_roots())
        if not is_readable(PurePosixPath(path), map(PurePosixPath, roots)):
            return self._gate.refuse_path(op.path, os.path.expanduser("~"))
        return self.files.read(path) if isinstance(op, ReadFile) else self.files.entries(path)

    # Notifications.

    def notified(self, op: Any) -> None:
        """Handle a notification; a refused one is dropped."""
        match op:
            case Publish():
                refusal = self._gate.refuse(op) or self._publish(op)
                self.refused += [refusal] if refusal is not None else []
            case PublishSnapshot():
                self._publish_snapshot(op)
            case WriteLog():
                self.logs.append(LogLine(op.level, op.message, op.fields))

    def _publish(self, op: Publish) -> Failure | None:
        optional = {key: op.event[key] for key in ("correlation_id", "metadata") if op.event.get(key) is not None}
        refusal = refuse_event_size(_size(bus_event(op.topic, self._spec.id, op.event.get("payload")) | optional))
        if refusal is None:
            self.published.append(Published(op.topic, op.event.get("payload"), op.event))
        return refusal

    def _publish_snapshot(self, op: PublishSnapshot) -> None:
        refusal = self._gate.refuse(op)
        if refusal is not None:
            self.refused.append(refusal)
            return
        self.keep(op.topic, op.data)
        self.published.append(Published(op.topic, _readable(op.data), op.data))

    def keep(self, topic: str, data: bytes) -> None:
        """Store the last value of a topic."""
        self._version += 1
        self.snapshots[topic] = data


_ABSENT = object()


def bus_event(topic: str, source: str, payload: Any) -> dict[str, Any]:
    """An event of the bus as the host completes it, with an id and a time that are always the same."""
    stamp = {"id": "00000000-0000-4000-8000-000000000000", "timestamp": "2001-02-03T04:05:06.000000Z"}
    return {**stamp, "topic": topic, "source": source, "session_id": None, "payload": payload}


def _size(value: Any) -> int:
    return len(stdlib_codec().encode(value))


def _readable(data: bytes) -> Any:
    try:
        return from_json(data)
    except ValueError:
        return data


class Published(Value):
    """An event or snapshot of the plugin; the payload of a snapshot is its JSON, or its bytes if it is not JSON."""

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
        """Add an entry to an agent's memory; `more` are `tags`, `memory_type` and the like."""
        number = len(self.entries) + 1
        entry = {"id": f"memory-{number}", "agent_id": agent_id, "content": content, "tags": []}
        self.entries.append({**entry, "concept_tags": [], "created_at": None, "memory_type": None, **more})

    def recall(self, op: RecallMemory) -> list[dict[str, Any]]:
        """The agent's entries with a word of the query; all of them for an empty query."""
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
        """The next answers: a text, a list of pieces, `{content, finish_reason, usage}`, a `Failure`, or a
        function that is given the request and returns one of these.
        """
        self._script += lines

    def complete(self, op: CompleteChat, progress: Callable[[Any], None]) -> Any:
        self.asked.append(op)
        if not self._script:
            return Failure(Code.NOT_FOUND, "no answer of a model is scripted: host.llm.script([…])")
        line: Any = self._script.pop(0)
        reply = line(op) if callable(line) else line
        if isinstance(reply, Failure):
            return reply
        pieces = [reply] if isinstance(reply, str) else reply
        whole = dict(reply) if isinstance(reply, dict) else {"content": "".join(pieces)}
        if op.stream:
            for piece in [whole["content"]] if isinstance(reply, dict) else pieces:
                progress(piece)
            whole["content"] = None
        return {"finish_reason": "stop", "usage": {"prompt_tokens": 0, "completion_tokens": 0}, **whole}


class FakePeople:
    """The users of the client; they answer from the script."""

    def __init__(self) -> None:
        self.asked: list[AskUser] = []
        self._script: list[Mapping[str, Any] | None] = []

    def script(self, answers: Iterable[Mapping[str, Any] | None]) -> None:
        """The next answers: the content of a form, or None to decline."""
        self._script += answers

    def answer(self, op: AskUser) -> Any:
        self.asked.append(op)
        if not self._script:
            return Failure(Code.NOT_FOUND, "no answer of a person is scripted: host.people.script([…])")
        reply = self._script.pop(0)
        if reply is None:
            return {"action": "decline"}
        problem = None if op.url is not None else answer_problem(op.schema, reply)
        return {"action": "accept", "content": dict(reply)} if problem is None else refuse_answer(problem)


class FakeHttp:
    """All web servers."""

    def __init__(self) -> None:
        self.asked: list[FetchUrl] = []
        self._answers: dict[str, Any] = {}

    def answer(self, url: str, body: Any = b"", *, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Set the answer at a URL; `body` is bytes, a text or a JSON value."""
        self._answers[url] = {
            "status": status,
            "headers": [[name, value] for name, value in (headers or {}).items()],
            "body": as_bytes(body),
        }

    def fetch(self, op: FetchUrl) -> Any:
        self.asked.append(op)
        unknown = f"no answer is set for {op.url}: host.http.answer({op.url!r}, …)"
        return self._answers.get(op.url) or Failure(Code.UNAVAILABLE, unknown)


class FakeFiles(dict[str, "bytes | str"]):
    """Files by their absolute paths; a folder exists if it has files."""

    def read(self, path: str) -> Any:
        found = self.get(path)
        return Failure(Code.NOT_FOUND, f"there is no file {path}") if found is None else as_bytes(found)

    def entries(self, path: str) -> Any:
        """The entries of a folder, by name."""
        start = path.rstrip("/") + "/"
        inside = {name.removeprefix(start): data for name, data in self.items() if name.startswith(start)}
        found: dict[str, dict[str, Any]] = {}
        for rest, data in sorted(inside.items()):
            name, slash, _ = rest.partition("/")
            found[name] = {"name": name, "is_dir": bool(slash), "size": 0 if slash else len(as_bytes(data))}
        return list(found.values()) if found else Failure(Code.NOT_FOUND, f"there is no folder {path}")
