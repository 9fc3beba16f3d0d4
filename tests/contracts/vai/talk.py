"""Machines at the start of a conversation, and frames to and from them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from plugbay.contracts.base import Role
from plugbay.contracts.vai.machine import VaiMachine
from plugbay.contracts.vai.messages import Identity
from plugbay.wire.content_length import OPEN_HEADERS, ContentLengthDecoder
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import stdlib_codec

if TYPE_CHECKING:
    from plugbay.wire.strict_json import Codec

EXPORTS = {"jira_search": "tool", "slack_notify": "hook", "coder_window": "compactor", "triage": "harness"}
WHO: dict[str, Any] = {"package_id": "acme/devkit", "version": "0.1.0"}


def framed(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def says(type: str, **fields: Any) -> dict[str, Any]:
    return {"protocol": "vai.rpc.v1", "type": type, **fields}


def frame(message: Any) -> bytes:
    """One frame with this body: as it is, or as JSON."""
    return framed(message if isinstance(message, bytes) else json.dumps(message, separators=(",", ":")).encode())


def request(id: Any = "req_1", op: Any = "tool.invoke", body: Any = ...) -> dict[str, Any]:
    return says("request", id=id, op=op, body={"export_id": "jira_search", "input": {}} if body is ... else body)


def response(id: Any = "req_1", body: Any = ..., **more: Any) -> dict[str, Any]:
    good = {"status": "succeeded", "result": {"n": 1}}
    return says("response", id=id, ok=True, body=good if body is ... else body, **more)


def event(id: Any = "req_1", event: Any = ...) -> dict[str, Any]:
    return says("event", request_id=id, event={"type": "progress", "message": "working"} if event is ... else event)


def hello(**more: Any) -> dict[str, Any]:
    return says("hello", role="plugin", plugin=WHO) | more


def host_hello(**more: Any) -> dict[str, Any]:
    return says("hello", role="host", host={"name": "vai-runner", "version": "0.1.0"}) | more


def frames(machine: VaiMachine) -> list[Any]:
    """What the machine wants to send, decoded; every frame names the protocol."""
    decoder = ContentLengthDecoder(OPEN_HEADERS)
    bodies = [item for item in decoder.feed(machine.outgoing()) if isinstance(item, bytes)]
    assert decoder.pending == 0
    sent = [json.loads(body) for body in bodies]
    assert all(message.pop("protocol") == "vai.rpc.v1" for message in sent)
    return sent


def greeting(codec: Codec | None = None) -> VaiMachine:
    """A host that has said hello and heard nothing yet."""
    machine = VaiMachine(Role.HOST, codec or MsgspecCodec(), **WHO)
    machine.greet()
    machine.outgoing()
    return machine


def host(codec: Codec | None = None) -> VaiMachine:
    """A host whose plugin was accepted."""
    machine = greeting(codec)
    machine.receive(frame(hello()))
    assert machine.state == "ready"
    return machine


def ungreeted(codec: Codec | None = None) -> VaiMachine:
    """A plugin that waits for its host."""
    identity = Identity(**WHO, exports=EXPORTS)
    machine = VaiMachine(Role.PLUGIN, codec or stdlib_codec(), identity=identity)
    machine.greet()
    return machine


def plugin(codec: Codec | None = None) -> VaiMachine:
    """A plugin that was greeted."""
    machine = ungreeted(codec)
    machine.receive(frame(host_hello()))
    machine.outgoing()
    assert machine.state == "ready"
    return machine
