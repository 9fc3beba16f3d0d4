"""`ModelTools`: the tools of a host for a language model: definitions, and calls.

    tools = ModelTools(host)
    await tools.ready()
    reply = await client.messages.create(..., tools=tools.definitions("anthropic"))
    answer = await tools.use(block.name, block.input)      # .text goes back to the model, .failed with it

Every call gets an answer that the model can read, also for unknown names, arguments that are not JSON, and failing
tools. Names and definitions are the same as over MCP. `SyncModelTools` is the same for a `SyncHost`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import msgspec

from plugbay.host.catalog.catalog import Entry
from plugbay.host.host import Host
from plugbay.host.request import CallResult
from plugbay.host.sync import SyncHost
from plugbay.mcp_server import listing
from plugbay.mcp_server.listing import build_listing
from plugbay.mcp_server.results import failed_result, tool_result
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.lifecycle import State
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import Malformed

LONGEST = 100_000
"""Characters of an answer; about a quarter of the context of current models."""

MAX_SUGGESTED = 3
"""Suggestions for an unknown name."""

Arguments = str | bytes | Mapping[str, Any] | None
"""As models send them: JSON text, or parsed already."""


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
"""By provider format; most other providers accept one of these."""


class ToolAnswer(NamedTuple):
    """The result of one call."""

    text: str
    """For the model, also on failure: a model that reads the error can try again."""
    failed: bool
    content: Sequence[Mapping[str, Any]]
    """The full MCP content, including images and audio."""
    value: Any = None
    """The value that `host.call` returns; None on failure."""
    failure: Failure | None = None


class _Use(msgspec.Struct, frozen=True):
    """A tool and its decoded input."""

    entry: Entry
    input: Any


class _ToolsBase:
    """The parts that do not await."""

    def __init__(self, host: Host, only: Sequence[str], short: bool, longest: int) -> None:
        self._host = host
        self._only = (only,) if isinstance(only, str) else tuple(only)
        self._rule = listing.short_name if short else listing.qualified_name
        self._longest = longest
        self._codec = MsgspecCodec()

    def definitions(self, shape: str) -> list[dict[str, Any]]:
        """Definitions of all tools in this shape; raises `NamesCollide` when two tools get the same name."""
        if shape not in SHAPES:
            raise ValueError(f"{shape!r} is not a shape; there are {', '.join(SHAPES)}")
        return [SHAPES[shape](listing.describe_tool(entry.export, name)) for name, entry in self._table().items()]

    def exports(self) -> dict[str, str]:
        """The full export name of each listed tool."""
        return {name: entry.full_name for name, entry in self._table().items()}

    def _table(self) -> dict[str, Entry]:
        calls = self._host.calls
        gone = {status.spec.id for status in self._host.plugins() if status.state == State.QUARANTINED}
        tools = (entry for entry in calls.catalog.of_kind("tool") if entry.spec.id not in gone and calls.admits(entry))
        listed = build_listing(tools, self._rule, self._only)
        if listed.collisions:
            raise listed.collisions[0]
        return listed.tools

    def _resolve(self, name: str, arguments: Arguments) -> _Use | ToolAnswer:
        """Find the tool and decode its input; a failed answer if that is impossible."""
        table = self._table()
        entry = table.get(name)
        if entry is None:
            close = get_close_matches(name, table, MAX_SUGGESTED)
            hint = f"; did you mean {' or '.join(close)}?" if close else ""
            return _failed_answer(Failure(Code.TOOL_NOT_EXPOSED, f"there is no tool called {name!r}{hint}"))
        try:
            given = self._decode(arguments)
        except Malformed as error:
            return _failed_answer(Failure(Code.INVALID_INPUT, f"the arguments are not JSON: {error}"))
        if not isinstance(given, Mapping):
            return _failed_answer(Failure(Code.INVALID_INPUT, "the arguments must be one JSON object"))
        return _Use(entry, given if listing.takes_object(entry.export) else given.get(listing.INPUT_ARGUMENT))

    def _decode(self, arguments: Arguments) -> Any:
        """Decode arguments. Some models send nothing for a tool without parameters."""
        if arguments is None or (isinstance(arguments, str | bytes) and not arguments.strip()):
            return {}
        if isinstance(arguments, str):
            return self._codec.decode(arguments.encode("utf-8", "surrogatepass"))
        return self._codec.decode(arguments) if isinstance(arguments, bytes) else arguments

    def _to_answer(self, entry: Entry, result: CallResult) -> ToolAnswer:
        shaped = result.failure or tool_result(entry.export, result.output)
        if isinstance(shaped, Failure):
            content = (failed_result(entry.export, shaped) or {"content": []})["content"]
            return _failed_answer(shaped, content, self._truncate("\n".join(_texts(content))))
        if not isinstance(shaped, dict):
            shaped = self._codec.load(shaped)
        content = [item for item in shaped.get("content") or () if isinstance(item, dict)]
        texts = _texts(content)
        if not texts and "structuredContent" in shaped:
            texts = [msgspec.json.encode(shaped["structuredContent"]).decode()]
        return ToolAnswer(self._truncate("\n".join(texts)), bool(shaped.get("isError")), content, result.value())

    def _truncate(self, text: str) -> str:
        if len(text) <= self._longest:
            return text
        return f"{text[: self._longest]}\n[the first {self._longest:,} of {len(text):,} characters]"


class ModelTools(_ToolsBase):
    """The tools of a host, for a model. Plugins may come and go: each call uses the current tools."""

    def __init__(self, host: Host, *, only: Sequence[str] = (), short: bool = False, longest: int = LONGEST) -> None:
        """`only` selects plugins (`text_tools`, `example.*`) or tools (`text_tools/*_count`).

        With `short`, names have no plugin prefix. Texts of more than `longest` characters are truncated; `content` and
        `value` are complete.
        """
        super().__init__(host, only, short, longest)

    async def ready(self, timeout: float | None = None) -> bool:
        """Wait until all plugins have declared their exports.

        False on timeout; slow plugins appear later.
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
        """Call a tool as the model asked. Never raises for errors of the model or of a plugin."""
        use = self._resolve(name, arguments)
        if isinstance(use, ToolAnswer):
            return use
        result = await self._host.attempt(use.entry.full_name, use.input, timeout=timeout, context=context, kind="tool")
        return self._to_answer(use.entry, result)


class SyncModelTools(_ToolsBase):
    """`ModelTools` for synchronous code."""

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
        use = self._resolve(name, arguments)
        if isinstance(use, ToolAnswer):
            return use
        result = self._sync.attempt(use.entry.full_name, use.input, timeout=timeout, context=context, kind="tool")
        return self._to_answer(use.entry, result)


def _texts(content: Sequence[Mapping[str, Any]]) -> list[str]:
    return [item["text"] for item in content if isinstance(item.get("text"), str)]


def _failed_answer(failure: Failure, content: Sequence[Mapping[str, Any]] = (), said: str = "") -> ToolAnswer:
    """A failure as text for the model, with every invalid argument. `content` and its text `said` are the plugin's."""
    errors = failure.detail.get("errors", ()) if failure.origin == Origin.HOST else ()
    more = [f"{error['path']}: {error['rule']}" for error in errors[1:]]
    text = "\n".join([f"{failure.code}: {failure.message}", *more])
    whole = f"{said}\n{text}" if said else text
    return ToolAnswer(whole, True, (*content, {"type": "text", "text": text}), failure=failure)
