"""Machines at the start of a conversation, and frames to and from them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from plugbay.contracts.ainb.machine import AinbMachine
from plugbay.contracts.ainb.messages import Identity
from plugbay.contracts.base import Role
from plugbay.model.operations import DispatchCli, InvokeAction, Render
from plugbay.wire.content_length import STRICT_HEADERS, ContentLengthDecoder
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import stdlib_codec

if TYPE_CHECKING:
    from plugbay.wire.strict_json import Codec

MANIFEST = {"plugin": {"name": "p", "version": "1.0.0", "abi_version": 2}}
HELLO = {"name": "p", "version": "1.0.0", "abi_version": 2, "manifest": MANIFEST}
ALL = frozenset({Render, DispatchCli, InvokeAction})


def framed(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def frame(message: Any) -> bytes:
    """One frame with this body: as it is, or as JSON."""
    return framed(message if isinstance(message, bytes) else json.dumps(message, separators=(",", ":")).encode())


def request(id: Any, method: str, params: Any = ...) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, **({} if params is ... else {"params": params})}


def notification(method: str, params: Any = ...) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, **({} if params is ... else {"params": params})}


def answer(id: Any, result: Any = ..., **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, **({} if result is ... else {"result": result}), **more}


def bodies(data: bytes) -> list[bytes]:
    decoder = ContentLengthDecoder(STRICT_HEADERS)
    found = [item for item in decoder.feed(data) if isinstance(item, bytes)]
    assert decoder.pending == 0
    return found


def frames(machine: AinbMachine) -> list[Any]:
    """What the machine wants to send, decoded; every frame says which JSON-RPC it is."""
    sent = [json.loads(body) for body in bodies(machine.outgoing())]
    assert all(message.pop("jsonrpc") == "2.0" for message in sent)
    return sent


def greeting(codec: Codec | None = None, **given: Any) -> AinbMachine:
    """A host that has asked `plugin/init` and heard nothing yet."""
    machine = AinbMachine(Role.HOST, codec or MsgspecCodec(), **{"plugin_name": "p", "version": "1.0.0", **given})
    machine.greet()
    machine.outgoing()
    return machine


def host(codec: Codec | None = None, **given: Any) -> AinbMachine:
    """A host whose plugin was accepted."""
    machine = greeting(codec, **given)
    machine.receive(frame(answer(1, HELLO)))
    assert machine.state == "ready"
    return machine


def plugin(codec: Codec | None = None, **identity: Any) -> AinbMachine:
    """A plugin that waits for its host."""
    who = {"name": "p", "version": "1.0.0", "manifest": MANIFEST, "serves": ALL, "namespaces": ("ns",), **identity}
    machine = AinbMachine(Role.PLUGIN, codec or stdlib_codec(), identity=Identity(**who))
    machine.greet()
    return machine
