"""The services of a host in memory: each does as it is told, and remembers what it was asked.

    host.memory.put("ada", "Tea is a drink.")          what agents remember
    host.llm.script(["Good morning.", ["Good ", "day."]])     what models say, one answer after the other
    host.people.script([{"name": "Ada"}, None])         what people answer; None: they would rather not
    host.http.answer("https://example.org/", body="…")  what servers answer
    host.files["/notes/tea.md"] = "green"               what the host reads for a plugin
    host.actions["lamp.switch"] = lambda data: b"on"    what others do when they are asked
    host.storage, host.snapshots                        dicts, of what a plugin keeps and of each topic's last value

Refuses to know contracts, and who may ask for what. For tests alone.
"""

from __future__ import annotations

from plugbay.model.errors import Code, Failure
from plugbay.model.values import Value
from plugbay.sdk.payloads import as_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from plugbay.model.operations import AskUser, CompleteChat, FetchUrl, RecallMemory

    Line = str | Mapping[str, Any] | Failure | list[str] | Callable[[CompleteChat], Any]


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
    """What agents remember, in the order in which it was put here."""

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
    """Every model there is: they say what the script says."""

    def __init__(self) -> None:
        self.asked: list[CompleteChat] = []
        self._script: list[Line] = []

    def script(self, lines: Iterable[Line]) -> None:
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
    """Whoever sits before the client: they answer as the script says."""

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
    """Every server there is."""

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
