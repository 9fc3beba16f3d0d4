"""Serves a plugin: detects the contract from the host's first message and loads the module of that contract.

The rune loop is here, because most plugins need no more: blocking, one thread, no asyncio. After its answer a rune
plugin waits for the end of its input: real hosts reap the child while they still read from it, and sometimes report a
plugin that exits at once as crashed.
"""

from __future__ import annotations

from plugbay.contracts.base import Role
from plugbay.contracts.rune.machine import RuneMachine
from plugbay.contracts.rune.messages import Identity
from plugbay.model.errors import Failure
from plugbay.model.events import CallArrived, Fault
from plugbay.model.operations import InvokeTool
from plugbay.sdk.io.detect import AINB, KAGED, MCP, NEXO, RUNE, VAI, detect
from plugbay.sdk.io.stdio import claim, leave, note, when_host_gone
from plugbay.wire.strict_json import stdlib_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn, Protocol

    from plugbay.contracts.base import Machine
    from plugbay.model.events import Event
    from plugbay.sdk.contracts.ainb import Plugin as AinbPlugin
    from plugbay.sdk.contracts.kaged import Plugin as KagedPlugin
    from plugbay.sdk.contracts.mcp import Plugin as McpPlugin
    from plugbay.sdk.contracts.nexo import Plugin as NexoPlugin
    from plugbay.sdk.contracts.vai import Plugin as VaiPlugin
    from plugbay.sdk.io.stdio import Wire
    from plugbay.wire.strict_json import Codec

    class Plugin(VaiPlugin, NexoPlugin, KagedPlugin, AinbPlugin, McpPlugin, Protocol):
        """The plugin that is served."""

        def invoke(self, tool: str, given: Any, context: Mapping[str, Any], contract: str = "") -> Any: ...


_serving = False


def serve(plugin: Plugin) -> NoReturn:
    """Serve until the host leaves, then exit. A process has one wire, so it serves once."""
    global _serving
    if _serving:
        raise RuntimeError("this process serves a plugin already; run() is called once")
    _serving = True
    wire, codec = claim(), stdlib_codec()
    first = begin(plugin, wire, codec)
    when_host_gone(wire, lambda: leave(1))
    leave(serve_rune(plugin, wire, codec, first))


def begin(plugin: Plugin, wire: Wire, codec: Codec) -> bytes:
    """The bytes that a host of rune has sent so far. Any other host is served here, until this process ends."""
    contract, first = greeting(wire, codec, plugin)
    if contract == KAGED:
        from plugbay.sdk.contracts.kaged import serve as serve_kaged

        serve_kaged(plugin, wire, codec, first)
    if contract == NEXO:
        from plugbay.sdk.contracts.nexo import serve as serve_nexo

        serve_nexo(plugin, wire, codec, first)
    if contract == AINB:
        from plugbay.sdk.contracts.ainb import serve as serve_ainb

        serve_ainb(plugin, wire, codec, first)
    if contract == VAI:
        from plugbay.sdk.contracts.vai import serve as serve_vai

        serve_vai(plugin, wire, codec, first)
    if contract == MCP:
        from plugbay.sdk.contracts.mcp import serve as serve_mcp

        serve_mcp(plugin, wire, codec, first)
    return first


def serve_rune(plugin: Plugin, wire: Wire, codec: Codec, first: bytes) -> int:
    """The exit status after a conversation of rune."""
    identity = Identity(plugin.id, plugin.version, tuple(plugin.tools), plugin.capabilities)
    machine = RuneMachine(Role.PLUGIN, codec, identity=identity)
    machine.greet()
    return converse(machine, wire, plugin, first)


def greeting(wire: Wire, codec: Codec, plugin: Plugin) -> tuple[str, bytes]:
    """The contract of the host, and the bytes that it has sent so far."""

    def owns(method: str) -> bool:
        from plugbay.sdk.io.detect import is_own_method

        return is_own_method(plugin, method)

    first = b""
    while True:
        data = wire.read()
        first += data
        contract = detect(codec, first, not data, owns)
        if contract is not None:
            return contract, first


def converse(machine: Machine, wire: Wire, plugin: Plugin, first: bytes) -> int:
    """The exit status after the conversation has ended. `first` was read already; empty if that was the end."""
    data = first
    while True:
        try:
            fault = react(machine, data, plugin)
            wire.write(machine.outgoing())
        except BrokenPipeError:
            return 0
        if fault is not None:
            note(f"{plugin.id}: the host broke the contract: {fault.message}")
            return 1
        if not data:
            return 0
        data = wire.read()


def react(machine: Machine, data: bytes, plugin: Plugin) -> Failure | None:
    """Give bytes to the machine and answer its requests; a failure means the host broke the contract."""
    for event in machine.receive(data) if data else machine.receive_eof():
        if isinstance(event, Fault):
            return event.failure
        answer(machine, event, plugin)
    return None


def answer(machine: Machine, event: Event, plugin: Plugin) -> None:
    if isinstance(event, CallArrived) and isinstance(event.op, InvokeTool):
        result = plugin.invoke(event.op.tool, event.op.input, event.op.context, RUNE)
        if isinstance(result, Failure):
            machine.finish(event.id, None, result)
        else:
            machine.finish(event.id, result)
