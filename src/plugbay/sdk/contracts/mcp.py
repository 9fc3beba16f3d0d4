"""A plugin under MCP, in both eras: its identity there, its machine, and what is said differently to these clients.

Loaded once a client of MCP has spoken. Owns the translation between one author's plugin and a server's tools, progress
and errors; the conversation itself is the resident loop's, and ends with the input.
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
from plugbay.sdk.contracts.mcp_names import offered, server_name
from plugbay.sdk.contracts.mcp_tools import Called, definition
from plugbay.sdk.runtime.connection import BlockingLine, Exchange
from plugbay.sdk.runtime.dispatch import Duty, Streamed
from plugbay.sdk.runtime.resident import Resident
from plugbay.sdk.services.host_client import BROKERED, STORAGE
from plugbay.sdk.types.handlers import Handler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, NoReturn, Protocol

    from plugbay.model.errors import Failure
    from plugbay.model.events import CallId
    from plugbay.model.operations import HostOp, Operation
    from plugbay.sdk.contracts.mcp_names import Named
    from plugbay.sdk.io.stdio import Wire
    from plugbay.sdk.runtime.connection import Heard, Sink
    from plugbay.sdk.runtime.dispatch import MakeContext, Send
    from plugbay.sdk.types.handlers import Tool
    from plugbay.wire.strict_json import Codec

    class Plugin(Named, Protocol):
        """What is served."""

        @property
        def version(self) -> str: ...
        @property
        def name(self) -> str: ...
        @property
        def description(self) -> str: ...
        @property
        def welcomes(self) -> Sequence[Handler]: ...
        @property
        def farewells(self) -> Sequence[Handler]: ...
        def connect(self, host: Context) -> None: ...


FAREWELL_SHARE = 0.36
"""Of the resident loop's times to leave: 1.8 s in all. Clients of the official SDK give a server 2 s after they have
closed its input, and then end it."""

LACKS = (BROKERED | STORAGE | {RecallMemory, Publish}) - {WriteLog}
"""What no client of MCP offers. Whether this one has a model or a person to ask, it says itself."""

CAPABILITIES: Mapping[str, Any] = {"tools": {}, "logging": {}}
"""What is announced: the tools of a plugin are declared once, so their list never changes."""

STATE_BYTES = 18
"""Of chance in the names of calls that wait for a person: nobody guesses them."""


def serve(plugin: Plugin, wire: Wire, codec: Codec, first: bytes) -> NoReturn:
    """Talk to a client of MCP, of which `first` was heard already."""
    duties = McpDuties(offered(plugin))
    server = _server(plugin, duties.tools)
    machine = ServerMachine(codec, server=server, entropy=lambda: os.urandom(STATE_BYTES))
    machine.greet()
    exchange = McpExchange(machine, wire, LACKS)

    def greeted(hello: Mapping[str, Any]) -> None:
        if hello["era"] == MODERN:  # whose clients read stderr, and few of them want to hear a log otherwise
            exchange.lacks = LACKS | {WriteLog}

    plugin.connect(Context(BlockingLine(exchange), server.name))
    resident = Resident(
        exchange,
        duties,
        server.name,
        plugin.welcomes,
        plugin.farewells,
        greeted=greeted,
        pace=FAREWELL_SHARE,
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


class McpExchange(Exchange):
    """What a client is told: of a tool that failed, what a model can read; of a model's words, all at once."""

    __slots__ = ()

    _machine: ServerMachine

    def finish(self, id: CallId, value: Any, failure: Failure | None) -> None:
        """Whatever fails here is a tool's doing: what has no tool, the machine refuses by itself."""
        super().finish(id, value if failure is None else to_result(failure), None)

    def ask(self, op: HostOp, sink: Sink, within: CallId | None = None) -> int:
        streams = isinstance(op, CompleteChat) and op.stream
        return super().ask(op, _in_one_piece(sink) if streams else sink, within)

    def _call(self, id: int, op: HostOp, within: CallId | None) -> Failure | None:
        return self._machine.call(id, op, within)


def _in_one_piece(sink: Sink) -> Sink:
    """Clients give a model's answer whole; who wants it in pieces gets one, and then the rest."""

    def heard(answer: Heard) -> None:
        if isinstance(answer, CallFinished) and answer.failure is None and answer.value["content"] is not None:
            sink(CallProgress(answer.id, answer.value["content"]))
            answer = CallFinished(answer.id, {**answer.value, "content": None})
        sink(answer)

    return heard


class McpDuties:
    """An author's tools, by what a client may ask."""

    __slots__ = ("tools",)

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self.tools = tools

    def of(self, op: Operation) -> Duty | Failure:
        """The machine has seen to it that the tool exists, and that nothing is asked for that was not announced."""
        if isinstance(op, SetLogLevel):
            return Duty(_NOTHING)
        assert isinstance(op, InvokeTool)
        tool = self.tools[op.tool]
        keywords = tool.arguments(op.input, op.context)
        return CallDuty(tool, keywords=keywords, said=op.context) if isinstance(keywords, dict) else keywords

    def about(self, op: Operation) -> list[Duty]:
        """What a client tells a server is about calls, and the machine deals with it."""
        return []


_NOTHING = Handler(lambda: None)


class CallDuty(Streamed):
    """A tool, whose progress a client may want to know."""

    __slots__ = ()

    handler: Tool

    def call(self, context: MakeContext, send: Send) -> Any:
        report = reports(send)
        return super().call(lambda said, stop: context(said, stop).during(self.number, report), send)

    def collector(self, send: Send) -> Called:
        return Called(self.handler, self.stop.check)


def reports(send: Send) -> Callable[[str, dict[str, Any]], None]:
    """What `ctx.progress` does: `progress=` and `total=` are numbers of the author's, else reports are counted.

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
