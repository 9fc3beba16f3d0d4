"""A plugin as an MCP server, with a handshake and without: tool definitions, progress, logs and errors.

Loaded when an MCP client has spoken. Tool names are spelt in MCP's alphabet; two tools with the same spelling are
refused. The conversation runs in the resident loop and ends with the input.
"""

from __future__ import annotations

import os

from plugbay.contracts.mcp.errors import to_result
from plugbay.contracts.mcp.messages import MODERN, Server
from plugbay.contracts.mcp.server import ServerMachine
from plugbay.model.errors import Code
from plugbay.model.events import CallFinished, CallProgress
from plugbay.model.operations import CompleteChat, InvokeTool, Publish, RecallMemory, SetLogLevel, WriteLog
from plugbay.sdk.context import Context
from plugbay.sdk.results import RESULT, ToolResult, as_text, content_items, merge_pieces
from plugbay.sdk.runtime.connection import BlockingClient, Connection
from plugbay.sdk.runtime.dispatch import Task, ToolCall
from plugbay.sdk.runtime.resident import Resident
from plugbay.sdk.services.host_client import BROKERED, STORAGE
from plugbay.sdk.types.handlers import Handler, Pieces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, NoReturn, Protocol

    from plugbay.model.errors import Failure
    from plugbay.model.events import CallId
    from plugbay.model.operations import HostOp, Operation
    from plugbay.sdk.io.stdio import Wire
    from plugbay.sdk.runtime.connection import Reply, Sink
    from plugbay.sdk.runtime.dispatch import MakeContext, Send
    from plugbay.sdk.runtime.resident import Served
    from plugbay.sdk.types.handlers import Tool
    from plugbay.wire.strict_json import Codec

    class Plugin(Served, Protocol):
        """The plugin that is served."""


SHUTDOWN_SHARE = 0.36
"""Of the resident loop's times to leave: 1.8 s in all. Clients of the official SDK give a server 2 s after they have
closed its input, and then end it."""

UNSUPPORTED = (BROKERED | STORAGE | {RecallMemory, Publish}) - {WriteLog}
"""Operations that no MCP client supports; sampling and elicitation depend on the client's capabilities."""

CAPABILITIES: Mapping[str, Any] = {"tools": {}, "logging": {}}
"""Announced capabilities: the tools of a plugin are declared once, so their list never changes."""

STATE_BYTES = 18
"""Random bytes in the state of calls that wait for a person, so that it cannot be guessed."""


def serve(plugin: Plugin, wire: Wire, codec: Codec, first: bytes) -> NoReturn:
    """Serve an MCP client; `first` was read already."""
    dispatcher = McpDispatcher(tools_by_name(plugin))
    server = _server(plugin, dispatcher.tools)
    machine = ServerMachine(codec, server=server, entropy=lambda: os.urandom(STATE_BYTES))
    machine.greet()
    connection = McpConnection(machine, wire, UNSUPPORTED)

    def greeted(hello: Mapping[str, Any]) -> None:
        if hello["era"] == MODERN:  # whose clients read stderr, and few of them want to hear a log otherwise
            connection.unsupported = UNSUPPORTED | {WriteLog}

    plugin.connect(Context(BlockingClient(connection), server.name))
    resident = Resident(
        connection,
        dispatcher,
        server.name,
        plugin.ready_handlers,
        plugin.shutdown_handlers,
        greeted=greeted,
        pace=SHUTDOWN_SHARE,
        busy=Code.OVERLOADED,
    )
    wire.attend(resident)
    resident.run(first)


def _server(plugin: Plugin, tools: Mapping[str, Tool]) -> Server:
    return Server(
        server_name(plugin.id),
        plugin.version,
        title=plugin.name,
        instructions=plugin.description,
        offer={"tools": [definition(name, tool) for name, tool in tools.items()]},
        capabilities=CAPABILITIES,
    )


class McpConnection(Connection):
    """Answers a failed tool with content that a model can read; a model's answer comes in one piece."""

    __slots__ = ()

    _machine: ServerMachine

    def finish(self, id: CallId, value: Any, failure: Failure | None) -> None:
        """Every failure here is a tool's; the machine refuses other requests itself."""
        super().finish(id, value if failure is None else to_result(failure), None)

    def ask(self, op: HostOp, sink: Sink, within: CallId | None = None) -> int:
        streams = isinstance(op, CompleteChat) and op.stream
        return super().ask(op, _split_once(sink) if streams else sink, within)

    def _call(self, id: int, op: Operation, within: CallId | None) -> Failure | None:
        return self._machine.call(id, op, within)


def _split_once(sink: Sink) -> Sink:
    """Clients send a model's answer whole; a handler that streams gets it as one piece, and then the end."""

    def heard(answer: Reply) -> None:
        if isinstance(answer, CallFinished) and answer.failure is None and answer.value["content"] is not None:
            sink(CallProgress(answer.id, answer.value["content"]))
            answer = CallFinished(answer.id, {**answer.value, "content": None})
        sink(answer)

    return heard


class McpDispatcher:
    """Finds the task for each tool call."""

    __slots__ = ("tools",)

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self.tools = tools

    def task_for(self, op: Operation) -> Task | Failure:
        """The machine has checked that the tool exists."""
        if isinstance(op, SetLogLevel):
            return Task(_NOTHING)
        assert isinstance(op, InvokeTool)
        tool = self.tools[op.tool]
        keywords = tool.arguments(op.input, op.context)
        return CallTask(tool, keywords, op.context) if isinstance(keywords, dict) else keywords

    def tasks_for(self, op: Operation) -> list[Task]:
        """The machine handles all notifications of a client."""
        return []


_NOTHING = Handler(lambda: None)


class CallTask(ToolCall):
    """A tool call with progress notifications."""

    __slots__ = ()

    def call(self, context: MakeContext, send: Send) -> Any:
        if not self.handler.takes_ctx:
            return super().call(context, send)
        report = progress_reporter(send)
        return super().call(lambda said, stop: context(said, stop).during(self.number, report), send)

    def collector(self, send: Send) -> CallResult:
        return CallResult(self.handler, self.check)


def progress_reporter(send: Send) -> Callable[[str, dict[str, Any]], None]:
    """Sends the reports of `ctx.progress`: `progress=` and `total=` are the author's numbers, else reports are counted.

    Progress must grow, so a number that does not is one more than the last.
    """
    last: float = 0

    def report(message: str, more: dict[str, Any]) -> None:
        nonlocal last
        said, total = _number(more.get("progress")), _number(more.get("total"))
        last = said if said is not None and said > last else last + 1
        item = {"progress": last, "total": total, "message": message or None}
        send({key: value for key, value in item.items() if value is not None})

    return report


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


LONGEST = 128
"""Characters of a tool's name."""

_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


def server_name(id: str) -> str:
    """An id as the name of a server: every other character than letters, digits, `_` and `-` becomes `-`."""
    return "".join(char if char in _LETTERS else "-" for char in id)


def tool_name(name: str) -> str:
    """The name of a tool, with `_` for characters that are not in MCP's alphabet."""
    return "".join(char if char in _LETTERS or char == "." else "_" for char in name)[:LONGEST]


def tools_by_name(plugin: Plugin) -> dict[str, Tool]:
    """Every tool by its name on the wire; raises ValueError when two have one."""
    tools = {tool_name(tool.name): tool for tool in plugin.tools.values()}
    if len(tools) < len(plugin.tools):
        raise ValueError(f"two tools of {plugin.id} have one name in MCP's alphabet: {', '.join(plugin.tools)}")
    return tools


HINTS = {
    "read_only": {"readOnlyHint": True},
    "idempotent_write": {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True},
    "non_idempotent_write": {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False},
}
"""Annotations by a tool's effect; without any, clients assume the worst."""


def definition(name: str, tool: Tool) -> dict[str, Any]:
    """An entry of `tools/list`."""
    said = {
        "name": name,
        "description": tool.description,
        "inputSchema": {**tool.input_schema, "type": "object"},
        "outputSchema": promised_schema(tool.output_schema),
        "annotations": HINTS.get(tool.effect),
    }
    return {key: value for key, value in said.items() if value not in (None, "")}


def promised_schema(schema: dict[str, Any] | None) -> dict[str, Any] | None:
    """The schema of structured content for a tool that returns values of `schema`."""
    if schema is None or not _is_wrapped(schema):
        return schema
    shared = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    inner = {name: rule for name, rule in schema.items() if name != "$defs"}
    return {"type": "object", "properties": {RESULT: inner}, "required": [RESULT], **shared}


def _is_wrapped(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") != "object"


class CallResult(Pieces):
    """Builds the result of a call from returned or yielded values."""

    __slots__ = ("_check", "_schema")

    def __init__(self, tool: Tool, check: Callable[[], None]) -> None:
        super().__init__(tool.written)
        self._check = check
        self._schema = tool.output_schema

    def add(self, piece: Any) -> None:
        self._check()
        super().add(piece)

    def whole(self, value: Any) -> dict[str, Any]:
        if isinstance(value, ToolResult):
            return _said(value)
        return _said(self._result(self._write(value)))

    def end(self) -> dict[str, Any]:
        if self._whole is not None:
            return self.whole(self._whole)
        if all(isinstance(piece, str) for piece in self._pieces):
            return _said(self._result("".join(self._pieces)))
        if all(isinstance(piece, str) or _is_item(piece) for piece in self._pieces):
            return _said(ToolResult(merge_pieces(self._pieces)))
        return _said(self._result(self._pieces))

    def _result(self, value: Any) -> ToolResult:
        """A value that is not an object, or is not declared as one, is wrapped in one."""
        is_bare = isinstance(value, dict) and (self._schema is None or not _is_wrapped(self._schema))
        output = value if is_bare else {RESULT: value}
        if value is None or isinstance(value, str):
            return ToolResult(value or (), None if self._schema is None else output)
        return ToolResult((), output)


def _is_item(piece: Any) -> bool:
    return isinstance(piece, dict) and isinstance(piece.get("type"), str)


def _is_ascii(item: Mapping[str, Any]) -> bool:
    """Whether an item is certainly JSON: plain text, of plain letters."""
    words = item.get("text")
    return len(item) == 2 and item["type"] == "text" and isinstance(words, str) and words.isascii()


def _said(result: ToolResult) -> dict[str, Any]:
    content, output = content_items(result.content), result.structured_output
    if output is not None and not content:
        content = content_items(as_text(output))
    elif not all(_is_ascii(item) for item in content):
        as_text({"content": content})  # a value that cannot be sent is an error of the author, not of the connection
    return {
        "content": content,
        **({} if output is None else {"structuredContent": dict(output)}),
        **({"isError": True} if result.is_error else {}),
    }
