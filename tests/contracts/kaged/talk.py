"""Machines at the start of a conversation, and frames to and from them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from plugbay.contracts.base import Role
from plugbay.contracts.kaged.machine import KagedMachine
from plugbay.contracts.kaged.messages import Identity
from plugbay.contracts.kaged.storage import READ, WRITE
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import stdlib_codec

if TYPE_CHECKING:
    from plugbay.wire.strict_json import Codec

SURFACE: dict[str, Any] = {"methods": ("p.report.daily",), "tools": ("t",), "notifications": ("ticked",)}
"""What the plugin of these tests declares and serves."""


def hello(**changes: Any) -> dict[str, Any]:
    """The result of `initialize`; a change to `...` leaves the key out."""
    whole = {
        "name": "p",
        "version": "0.2.0",
        "api_version": 1,
        "methods": ["p.report.daily", "p.t"],
        "notifications": ["ticked"],
        "capabilities_used": [],
    }
    return {key: value for key, value in (whole | changes).items() if value is not ...}


def line(message: Any) -> bytes:
    return message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"


def request(id: Any, method: str, params: Any = ...) -> dict[str, Any]:
    given = {} if params is ... else {"params": params}
    return {"jsonrpc": "2.0", "id": id, "method": method, **given}


def frames(machine: KagedMachine) -> list[Any]:
    """What the machine wants to send, decoded; every frame says which JSON-RPC it is, and is one line."""
    sent = [json.loads(text) for text in machine.outgoing().split(b"\n")[:-1]]
    assert all(frame.pop("jsonrpc") == "2.0" for frame in sent)
    return sent


def greeting(codec: Codec | None = None, **given: Any) -> KagedMachine:
    """A host that has asked `initialize` and heard nothing yet."""
    promised = {**SURFACE, "storage": True, "granted": (READ, WRITE), **given}
    machine = KagedMachine(Role.HOST, codec or MsgspecCodec(), plugin_name="p", **promised)
    machine.greet()
    machine.outgoing()
    return machine


def host(codec: Codec | None = None, **given: Any) -> KagedMachine:
    """A host whose plugin was accepted."""
    machine = greeting(codec, **given)
    machine.receive(line({"id": 1, "result": hello()}))
    assert machine.state == "ready"
    machine.outgoing()
    return machine


def plugin(codec: Codec | None = None, **identity: Any) -> KagedMachine:
    """A plugin that waits for its host."""
    given = {"name": "p", "version": "0.2.0", **SURFACE, "hooks": ("on_session_idle", "post_compact"), **identity}
    machine = KagedMachine(Role.PLUGIN, codec or stdlib_codec(), identity=Identity(**given))
    machine.greet()
    return machine
