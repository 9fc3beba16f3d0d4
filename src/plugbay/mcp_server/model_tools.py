"""`ModelTools`: every tool of a host as a language model is shown it, and what the model asks for, done.

    tools = ModelTools(host)
    await tools.ready()
    reply = await client.messages.create(..., tools=tools.definitions("anthropic"))
    answer = await tools.use(block.name, block.input)      # .text goes back to the model, .failed with it

Owns the shapes in which models' interfaces want tools, and that whatever a model says has an answer it can read: a name
that does not exist, arguments that are no JSON, a tool that fails. Names and definitions are those of MCP; refuses to
know any client. `SyncModelTools` is the same for a `SyncHost`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

import msgspec

from plugbay.host.calls.calls import CallResult
from plugbay.host.catalog.catalog import Entry
from plugbay.host.host import Host
from plugbay.host.sync import SyncHost
from plugbay.mcp_server import listing
from plugbay.mcp_server.listing import build_listing
from plugbay.mcp_server.results import tool_result
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.lifecycle import State
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import Malformed

LONGEST = 100_000
"""Characters of an answer: about a quarter of what today's models can read at all."""

MAX_SUGGESTED = 3
"""Names that a model is reminded of when it invents one."""

Arguments = str | bytes | Mapping[str, Any] | None
"""As a model says them: text, or what somebody has made of it already."""


def _anthropic(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": tool["name"], "description": tool.get("description", ""), "input_schema": tool["inputSchema"]}


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": tool["name"], "description": tool.get("description", ""), "parameters": tool["inputSchema"]}


SHAPES: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "anthropic": _anthropic,
    "openai": lambda tool: {"type": "function", "function": _function(tool)},
    "openai-responses": lambda tool: {"type": "function", **_function(tool)},
    "mcp": dict,
}
"""By whose interface wants it so. Most others take one of these."""


class ToolAnswer(NamedTuple):
    """What came of one use of a tool."""

    text: str
    """For the model, also when it failed: a model that reads what is wrong tries again."""
    failed: bool
    content: Sequence[Mapping[str, Any]]
    """All of it, as MCP has it: pictures and sound are here, and whole."""
    value: Any = None
    """What `host.call` gives back; None when it failed."""
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class _Use:
    """A tool, and the input that a model's arguments are for it."""

    entry: Entry
    input: Any


class _Tools:
    """What needs no waiting."""

    def __init__(self, host: Host, only: Sequence[str], short: bool, longest: int) -> None:
        self._host = host
        self._only = (only,) if isinstance(only, str) else tuple(only)
        self._rule = listing.short_name if short else listing.qualified_name
        self._longest = longest
        self._codec = MsgspecCodec()

    def definitions(self, shape: str) -> list[dict[str, Any]]:
        """Every tool that may be used now, as `shape` wants it; raises `NamesCollide` where two have one name."""
        if shape not in SHAPES:
            raise ValueError(f"there are the shapes {', '.join(SHAPES)}; {shape!r} is none of them")
        return [SHAPES[shape](listing.describe_tool(entry.export, name)) for name, entry in self._table().items()]

    def exports(self) -> dict[str, str]:
        """The full name of the export behind each name that a model is told."""
        return {name: entry.full_name for name, entry in self._table().items()}

    def _table(self) -> dict[str, Entry]:
        calls = self._host.calls
        gone = {status.spec.id for status in self._host.plugins() if status.state == State.QUARANTINED}
        tools = (entry for entry in calls.catalog.of_kind("tool") if entry.spec.id not in gone and calls.admits(entry))
        offering = build_listing(tools, self._rule, self._only)
        if offering.collisions:
            raise offering.collisions[0]
        return offering.tools

    def _meant(self, name: str, arguments: Arguments) -> _Use | ToolAnswer:
        """What a model asks for, or the answer when that is nothing."""
        table = self._table()
        entry = table.get(name)
        if entry is None:
            close = get_close_matches(name, table, MAX_SUGGESTED)
            hint = f"; did you mean {' or '.join(close)}?" if close else ""
            return _refused(Failure(Code.TOOL_NOT_EXPOSED, f"there is no tool called {name!r}{hint}"))
        try:
            given = self._decoded(arguments)
        except Malformed as error:
            return _refused(Failure(Code.INVALID_INPUT, f"the arguments are not JSON: {error}"))
        if not isinstance(given, Mapping):
            return _refused(Failure(Code.INVALID_INPUT, "the arguments have to be one JSON object"))
        return _Use(entry, given if listing.takes_object(entry.export) else given.get(listing.WRAPPED))

    def _decoded(self, arguments: Arguments) -> Any:
        """Some models say nothing at all where a tool takes nothing."""
        if arguments is None or (isinstance(arguments, str | bytes) and not arguments.strip()):
            return {}
        if isinstance(arguments, str):
            return self._codec.decode(arguments.encode("utf-8", "surrogatepass"))
        return self._codec.decode(arguments) if isinstance(arguments, bytes) else arguments

    def _answered(self, entry: Entry, result: CallResult) -> ToolAnswer:
        shaped = result.failure or tool_result(entry.export, result.output)
        if isinstance(shaped, Failure):
            return _refused(shaped)
        if not isinstance(shaped, dict):
            shaped = self._codec.load(shaped)
        content = [item for item in shaped.get("content") or () if isinstance(item, dict)]
        texts = [item["text"] for item in content if isinstance(item.get("text"), str)]
        if not texts and "structuredContent" in shaped:
            texts = [msgspec.json.encode(shaped["structuredContent"]).decode()]
        return ToolAnswer(self._cut("\n".join(texts)), bool(shaped.get("isError")), content, result.value())

    def _cut(self, text: str) -> str:
        if len(text) <= self._longest:
            return text
        return f"{text[: self._longest]}\n[the first {self._longest:,} of {len(text):,} characters]"


class ModelTools(_Tools):
    """The tools of a host, for a model. Plugins may come and go: each question is about what there is by then."""

    def __init__(self, host: Host, *, only: Sequence[str] = (), short: bool = False, longest: int = LONGEST) -> None:
        """`only` names plugins (`text_tools`, `example.*`) or their tools (`text_tools/*_count`).

        With `short` a tool has its own name, without its plugin's before it. Texts of more than `longest` characters
        are cut; `content` and `value` are whole.
        """
        super().__init__(host, only, short, longest)

    async def ready(self, timeout: float | None = None) -> bool:
        """Wait until every plugin that starts with the host or has to be asked has said what it offers.

        False when that takes longer than `timeout`; who is late comes later.
        """
        settled, _ = await asyncio.gather(self._host.settled(timeout), self._host.meet(timeout=timeout))
        return settled

    async def use(
        self,
        name: str,
        arguments: Arguments = None,
        *,
        timeout: float | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> ToolAnswer:
        """Do what a model asks for. Never raises for what the model or a plugin does."""
        meant = self._meant(name, arguments)
        if isinstance(meant, ToolAnswer):
            return meant
        result = await self._host.attempt(
            meant.entry.full_name, meant.input, timeout=timeout, context=context, kind="tool"
        )
        return self._answered(meant.entry, result)


class SyncModelTools(_Tools):
    """`ModelTools` for code without a loop."""

    def __init__(
        self, host: SyncHost, *, only: Sequence[str] = (), short: bool = False, longest: int = LONGEST
    ) -> None:
        """As `ModelTools`."""
        super().__init__(host.host, only, short, longest)
        self._sync = host

    def ready(self, timeout: float | None = None) -> bool:
        """As `ModelTools.ready`."""
        self._sync.meet(timeout=timeout)
        return self._sync.settled(timeout)

    def use(
        self,
        name: str,
        arguments: Arguments = None,
        *,
        timeout: float | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> ToolAnswer:
        """As `ModelTools.use`."""
        meant = self._meant(name, arguments)
        if isinstance(meant, ToolAnswer):
            return meant
        result = self._sync.attempt(meant.entry.full_name, meant.input, timeout=timeout, context=context, kind="tool")
        return self._answered(meant.entry, result)


def _refused(failure: Failure) -> ToolAnswer:
    """A failure in words for a model: what its author or we say, with every argument that is wrong."""
    errors = failure.detail.get("errors", ()) if failure.origin == Origin.HOST else ()
    more = [f"{error['path']}: {error['rule']}" for error in errors[1:]]
    text = "\n".join([f"{failure.code}: {failure.message}", *more])
    return ToolAnswer(text, True, ({"type": "text", "text": text},), failure=failure)
