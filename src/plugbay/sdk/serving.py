"""The loop inside a plugin: bytes in, machine, handler, bytes out. Blocking, one thread, no asyncio.

After its answer a rune plugin waits for the end of its input before it leaves: real hosts reap the child while they
still read from it, and a plugin that exits at once is sometimes reported as crashed.
"""

from __future__ import annotations

import os
import sys

from plugbay.contracts.base import Role
from plugbay.contracts.rune.machine import RuneMachine
from plugbay.contracts.rune.messages import Identity
from plugbay.model.errors import Failure
from plugbay.model.events import CallArrived, Fault
from plugbay.model.operations import InvokeTool
from plugbay.sdk.stdio import claim
from plugbay.wire.strict_json import stdlib_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, NoReturn, Protocol

    from plugbay.contracts.base import Machine
    from plugbay.model.events import Event
    from plugbay.sdk.stdio import Wire

    class Plugin(Protocol):
        """What is served: an identity, and something that answers."""

        @property
        def id(self) -> str: ...
        @property
        def version(self) -> str: ...
        @property
        def capabilities(self) -> tuple[str, ...]: ...
        @property
        def tools(self) -> Iterable[str]: ...
        def invoke(self, tool: str, given: Any, context: Mapping[str, Any]) -> Any: ...


def serve(plugin: Plugin) -> NoReturn:
    """Talk until the host closes our input, then leave at once, skipping the interpreter's farewell."""
    wire = claim()
    identity = Identity(plugin.id, plugin.version, tuple(plugin.tools), plugin.capabilities)
    machine = RuneMachine(Role.PLUGIN, stdlib_codec(), identity=identity)
    machine.greet()
    leave(converse(machine, wire, plugin))


def converse(machine: Machine, wire: Wire, plugin: Plugin) -> int:
    """The exit status after the conversation has ended."""
    while True:
        try:
            data = wire.read()
            fault = react(machine, data, plugin)
            wire.write(machine.outgoing())
        except BrokenPipeError:
            return 0
        if fault is not None:
            sys.stderr.write(f"{plugin.id}: the host broke the contract: {fault.message}\n")
            return 1
        if not data:
            return 0


def react(machine: Machine, data: bytes, plugin: Plugin) -> Failure | None:
    """Give bytes to the machine and answer what they ask; a failure means the host broke the contract."""
    for event in machine.receive(data) if data else machine.receive_eof():
        if isinstance(event, Fault):
            return event.failure
        answer(machine, event, plugin)
    return None


def answer(machine: Machine, event: Event, plugin: Plugin) -> None:
    if isinstance(event, CallArrived) and isinstance(event.op, InvokeTool):
        result = plugin.invoke(event.op.tool, event.op.input, event.op.context)
        if isinstance(result, Failure):
            machine.finish(event.id, None, result)
        else:
            machine.finish(event.id, result)


def leave(status: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # None, when the descriptor was closed before we started
            pass
    os._exit(status)
