"""Machines at the start of a conversation, and messages to and from them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from plugbay.contracts.mcp.client import ClientMachine
from plugbay.contracts.mcp.machine import McpMachine
from plugbay.contracts.mcp.messages import CAPABILITIES, CLIENT, HANDSHAKE, MODERN, VERSION, Server
from plugbay.contracts.mcp.server import ServerMachine
from plugbay.model.events import CallArrived, CallFinished
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import stdlib_codec

if TYPE_CHECKING:
    from plugbay.model.events import Event
    from plugbay.wire.strict_json import Codec

ECHO: dict[str, Any] = {"name": "echo", "inputSchema": {"type": "object"}}
OFFER: dict[str, list[dict[str, Any]]] = {
    "tools": [ECHO],
    "resources": [{"uri": "note:a", "name": "a"}],
    "resource_templates": [{"uriTemplate": "note:{name}", "name": "note"}],
    "prompts": [{"name": "greet", "arguments": [{"name": "who", "required": True}]}],
}
ALL: dict[str, Any] = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
}
"""The capabilities of a server that has everything."""

EVERYTHING = frozenset({"sampling", "elicitation", "roots"})
CAN_BE_ASKED: dict[str, Any] = {"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {}}
ME = {"name": "tester", "version": "1"}


def line(message: Any) -> bytes:
    return message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"


def request(id: Any, method: str, params: Any = ...) -> dict[str, Any]:
    given = {} if params is ... else {"params": params}
    return {"jsonrpc": "2.0", "id": id, "method": method, **given}


def told(method: str, params: Any = ...) -> dict[str, Any]:
    given = {} if params is ... else {"params": params}
    return {"jsonrpc": "2.0", "method": method, **given}


def modern(**params: Any) -> dict[str, Any]:
    """Parameters with what every request of the modern era says; what is in `_meta` is added."""
    own = params.pop("_meta", {})
    return {"_meta": {VERSION: "2026-07-28", CLIENT: ME, CAPABILITIES: CAN_BE_ASKED, **own}, **params}


def frames(machine: McpMachine) -> list[Any]:
    """What the machine wants to send, decoded; every frame says which JSON-RPC it is, and is one line."""
    sent = [json.loads(text) for text in machine.outgoing().split(b"\n")[:-1]]
    assert all(frame.pop("jsonrpc") == "2.0" for frame in sent)
    return sent


def greeting(codec: Codec | None = None, era: str = HANDSHAKE, offers: frozenset[str] = EVERYTHING) -> ClientMachine:
    """A host that has opened and heard nothing yet."""
    machine = ClientMachine(codec or MsgspecCodec(), era=era, client=ME, offers=offers)
    machine.greet()
    machine.outgoing()
    return machine


def welcome(**changes: Any) -> dict[str, Any]:
    """The result of `initialize`; a change to `...` leaves the key out."""
    whole = {
        "protocolVersion": "2025-11-25",
        "capabilities": ALL,
        "serverInfo": {"name": "notes", "version": "2.0"},
    }
    return {key: value for key, value in (whole | changes).items() if value is not ...}


def discovered(**changes: Any) -> dict[str, Any]:
    """The result of `server/discover`; a change to `...` leaves the key out."""
    whole = {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": ALL,
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "notes", "version": "2.0"}},
        "ttlMs": 0,
        "cacheScope": "private",
    }
    return {key: value for key, value in (whole | changes).items() if value is not ...}


KEYS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
_NAMES = {"resourceTemplates": "resource_templates"}


def list_answers(machine: McpMachine, offer: dict[str, list[dict[str, Any]]] = OFFER) -> list[Event]:
    """Answer whatever list the machine asks for, until it asks for none; what it reported."""
    events: list[Event] = []
    while pages := [frame for frame in frames(machine) if frame.get("method") in KEYS]:
        for frame in pages:
            key = KEYS[frame["method"]]
            answer = {"id": frame["id"], "result": {key: offer[_NAMES.get(key, key)]}}
            events += machine.receive(line(answer))
    return events


def host(
    codec: Codec | None = None,
    era: str = HANDSHAKE,
    offers: frozenset[str] = EVERYTHING,
    offer: dict[str, list[dict[str, Any]]] = OFFER,
    **changes: Any,
) -> ClientMachine:
    """A host that knows its server; requests that it makes next are numbered on from `machine._last_id`."""
    machine = greeting(codec, era, offers)
    hello = welcome(**changes) if era == HANDSHAKE else discovered(**changes)
    machine.receive(line({"id": 1, "result": hello}))
    list_answers(machine, offer)
    assert machine.state == "ready"
    machine.outgoing()
    return machine


def plugin(codec: Codec | None = None, **server: Any) -> ServerMachine:
    """A plugin that waits for its client."""
    told = {"offer": OFFER, "capabilities": ALL, **server}
    numbers = iter(range(1, 1_000_000))
    machine = ServerMachine(
        codec or stdlib_codec(),
        server=Server("notes", "2.0", **told),
        entropy=lambda: next(numbers).to_bytes(16, "big"),
    )
    machine.greet()
    return machine


def session(codec: Codec | None = None, version: str = "2025-11-25", **server: Any) -> ServerMachine:
    """A plugin whose client has said `initialize`."""
    machine = plugin(codec, **server)
    params = {"protocolVersion": version, "capabilities": CAN_BE_ASKED, "clientInfo": ME}
    machine.receive(line(request(0, "initialize", params)))
    machine.receive(line(told("notifications/initialized")))
    machine.outgoing()
    return machine


def in_era(era: str, codec: Codec | None = None, **server: Any) -> ServerMachine:
    """A plugin whose client speaks in this era."""
    if era == HANDSHAKE:
        return session(codec, **server)
    machine = plugin(codec, **server)
    machine.receive(line(request(0, "server/discover", modern())))
    machine.outgoing()
    return machine


def of_era(era: str, **params: Any) -> dict[str, Any]:
    """Parameters as a client of this era writes them."""
    return modern(**params) if era == MODERN else params


def asked(events: list[Event]) -> CallArrived:
    (event,) = events
    assert isinstance(event, CallArrived), event
    return event


def finished(events: list[Event]) -> CallFinished:
    (event,) = events
    assert isinstance(event, CallFinished), event
    return event


def value_of(machine: McpMachine, event: CallFinished) -> Any:
    """The value of an answer, read."""
    assert event.failure is None, event.failure
    return machine.codec.load(event.value)
