"""Machines at the start of a conversation, and frames to and from them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from plugbay.contracts.base import Role
from plugbay.contracts.nexo.machine import NexoMachine
from plugbay.contracts.nexo.messages import Identity
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import stdlib_codec

if TYPE_CHECKING:
    from plugbay.wire.strict_json import Codec

TOOL = {"name": "p_t", "description": "A tool", "input_schema": {"type": "object"}}
MANIFEST = {"plugin": {"id": "p", "version": "0.2.0"}}


def hello(**changes: Any) -> dict[str, Any]:
    """The result of `initialize`; a change to `...` leaves the key out."""
    whole = {"manifest": MANIFEST, "server_version": "p-0.2.0", "tools": [TOOL]}
    return {key: value for key, value in (whole | changes).items() if value is not ...}


def line(message: Any) -> bytes:
    return message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"


def frames(machine: NexoMachine) -> list[Any]:
    """What the machine wants to send, decoded; every frame says which JSON-RPC it is, and is one line."""
    sent = [json.loads(text) for text in machine.outgoing().split(b"\n")[:-1]]
    assert all(frame.pop("jsonrpc") == "2.0" for frame in sent)
    return sent


def greeting(codec: Codec | None = None, plugin_id: str = "p", tools: tuple[str, ...] = ("p_t",)) -> NexoMachine:
    """A host that has asked `initialize` and heard nothing yet."""
    machine = NexoMachine(Role.HOST, codec or MsgspecCodec(), plugin_id=plugin_id, tools=tools)
    machine.greet()
    machine.outgoing()
    return machine


def host(codec: Codec | None = None, tools: tuple[str, ...] = ("p_t",)) -> NexoMachine:
    """A host whose child was accepted."""
    machine = greeting(codec, tools=tools)
    machine.receive(line({"id": 1, "result": hello()}))
    assert machine.state == "ready"
    return machine


def plugin(codec: Codec | None = None, **identity: Any) -> NexoMachine:
    """A plugin that waits for its host; it serves everything unless `serves` says otherwise."""
    given = {"manifest": MANIFEST, "server_version": "p-0.2.0", "tools": (TOOL,), "serves": NexoMachine.SUPPORTS}
    machine = NexoMachine(Role.PLUGIN, codec or stdlib_codec(), identity=Identity(**{**given, **identity}))
    machine.greet()
    return machine
