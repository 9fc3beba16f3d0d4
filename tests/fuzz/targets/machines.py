"""The host's end of each contract: no byte of a plugin raises, and pieces and codec change nothing that is reported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from plugbay.contracts.base import Machine
from plugbay.contracts.contract import Contract, HostSide
from plugbay.contracts.registry import CONTRACTS
from plugbay.model.errors import Code, Failure
from plugbay.model.events import CallArrived, CallFinished, Fault, Ready
from plugbay.model.operations import DispatchCli, InvokeTool
from plugbay.model.spec import Export, PluginSpec
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import stdlib_codec
from tests.fuzz.targets import pieces

if TYPE_CHECKING:
    from plugbay.model.events import Event
    from plugbay.model.operations import PluginOp
    from plugbay.wire.strict_json import Codec

NAMES = tuple(CONTRACTS)
HEAD = 4
CALL = 1
IDS = {"vai": "local/fuzz"}
TOOLS = {"nexo": "fuzz_echo"}
"""Where a contract has a rule for ids of plugins or names of tools; else `fuzz` and `echo`."""
REFUSAL = Failure(Code.NOT_FOUND, "nothing is here")
MAX_ANSWER = 16 << 10
"""Bytes that one event may make the host write: far more than any greeting or refusal has."""


def check(data: bytes) -> None:
    """The first byte names the contract, the second says how large the pieces are; the next two, how long the greeting
    is, after which the host calls a tool.
    """
    if len(data) < HEAD:
        return
    contract, size, stream = CONTRACTS[NAMES[data[0] % len(NAMES)]], data[1], data[HEAD:]
    greeting, rest = stream[: int.from_bytes(data[2:4])], stream[int.from_bytes(data[2:4]) :]
    whole = _converse(contract, MsgspecCodec(), [greeting], [rest])
    assert _converse(contract, MsgspecCodec(), pieces(greeting, size), pieces(rest, size)) == whole
    kinds = [type(event) for event in _converse(contract, stdlib_codec(), [greeting], [rest])]
    assert kinds == [type(event) for event in whole], "the codecs disagree"


def _converse(contract: Contract, codec: Codec, greeting: list[bytes], rest: list[bytes]) -> list[Event]:
    """All events of a conversation with one call of the host; requests of the plugin are refused."""
    machine = machine_of(contract, codec)
    machine.greet()
    told = _feed(machine, greeting)
    is_ready = any(isinstance(event, Ready) for event in told) and not any(isinstance(e, Fault) for e in told)
    called = is_ready and machine.call(CALL, operation_of(contract)) is None
    told += _feed(machine, rest)
    told += machine.receive_eof()
    for event in told:
        if isinstance(event, Ready) and contract.runtime_exports is not None:
            contract.runtime_exports(event.hello["offer"])
    _check_answers([event for event in told if isinstance(event, CallFinished)], called)
    answered = any(isinstance(event, CallFinished) and event.id == CALL for event in told)
    assert answered or not called or any(isinstance(event, Fault) for event in told), "a call has no end"
    assert len(machine.outgoing()) <= MAX_ANSWER * (1 + len(told)), "a plugin makes the host write without bounds"
    return told


def _check_answers(answers: list[CallFinished], called: bool) -> None:
    """An answer after the first is late: it is reported without content. The greeting is the call before the first."""
    full = [answer for answer in answers if answer.value is not None or answer.failure is not None]
    assert [answer.id for answer in full] in ([], [CALL] * called), "a call has one answer"
    assert {answer.id for answer in answers} <= {0, CALL}, "an answer to a call that was never made"


def machine_of(contract: Contract, codec: Codec) -> Machine:
    """The host's end for a plugin with one tool."""
    tool = Export("tool", TOOLS.get(contract.name, "echo"))
    plugin_id = IDS.get(contract.name, "fuzz")
    spec = PluginSpec(plugin_id, "1.0.0", contract.name, Path("/fuzz"), ("run",), exports=(tool,))
    return contract.host_machine(spec, HostSide(), codec)


def operation_of(contract: Contract) -> PluginOp:
    """A call of that tool, or of a command line where the contract has no tools."""
    tool = InvokeTool(TOOLS.get(contract.name, "echo"), {"text": "tea"})
    return tool if InvokeTool in contract.machine().SUPPORTS else DispatchCli("fuzz", ("echo", "tea"))


def _feed(machine: Machine, chunks: list[bytes]) -> list[Event]:
    told = [event for chunk in chunks for event in machine.receive(chunk)]
    for event in told:
        if isinstance(event, CallArrived):
            machine.finish(event.id, failure=REFUSAL)
    return told
