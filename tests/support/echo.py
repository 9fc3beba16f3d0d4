"""A resident, multiplexed contract for tests and benchmarks: line JSON-RPC, small, both roles.

Not a published contract. It exercises what rune cannot: many calls in flight, progress, cancellation, notifications,
and requests from the plugin while its greeting is still open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from plugbay.contracts.base import Machine, Misuse, Role, Traffic
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import (
    CallArrived,
    CallFinished,
    CallProgress,
    CancelArrived,
    Closed,
    Fault,
    Noise,
    Notified,
    Ready,
)
from plugbay.model.operations import DeliverEvent, InvokeTool, WriteLog
from plugbay.wire.json_gate import plain_text
from plugbay.wire.lines import LineDecoder, TooLong, encode
from plugbay.wire.strict_json import ABSENT, Malformed
from tests.support import jsonrpc

if TYPE_CHECKING:
    from plugbay.model.events import CallId, Event
    from plugbay.model.operations import Operation
    from plugbay.wire.strict_json import Codec

MAX_LINE = 4 << 20

_TABLE = {
    ("start", "greet"): "greeting",
    ("greeting", "hello"): "ready",
    ("greeting", "violation"): "failed",
    ("ready", "violation"): "failed",
    ("greeting", "eof"): "closed",
    ("ready", "eof"): "closed",
    ("greeting", "close"): "closed",
    ("ready", "close"): "closing",
    ("closing", "close"): "closing",
    ("closing", "violation"): "failed",
    ("closing", "eof"): "closed",
    ("failed", "close"): "closed",
}


class EchoMachine(Machine):
    """Method `call` carries tools, `event` and `log` notify, `$progress` and `$cancel` do what they say."""

    __slots__ = ("_decode", "_lines", "_open")

    CONTRACT: ClassVar[str] = "echo"
    TRANSITIONS: ClassVar[dict[tuple[str, str, str], str]] = {
        (role, *key): state for role in (Role.HOST, Role.PLUGIN) for key, state in _TABLE.items()
    }
    SUPPORTS: ClassVar[frozenset[type]] = frozenset({InvokeTool, DeliverEvent})
    TRAFFIC: ClassVar[Traffic] = Traffic(capacity=4, drops="newest", urgent=frozenset({WriteLog}))

    def __init__(self, role: str, codec: Codec) -> None:
        super().__init__(role, codec)
        self._lines = LineDecoder(MAX_LINE)
        self._decode = codec.decoder(jsonrpc.FIELDS, jsonrpc.RAW_FIELDS)
        self._open: set[CallId] = set()

    @property
    def pending(self) -> int:
        return self._lines.pending

    def receive(self, data: bytes) -> list[Event]:
        events: list[Event] = []
        plain = not self._lines.pending and plain_text(data)
        for line in self._lines.feed(data):
            if isinstance(line, TooLong):
                events += self._fault(Failure(Code.FRAME_TOO_LARGE, "a line is too long"))
                break
            try:
                message = self._decode(line, plain)
            except Malformed as error:
                events.append(Noise(line, str(error)))
                continue
            if message.method is ABSENT and message.error is ABSENT:
                self._open.discard(message.id)
                events.append(CallFinished(message.id, message.result))
            else:
                events.append(self._take(message))
        return events

    def receive_eof(self) -> list[Event]:
        if not self._may("eof"):
            return []
        if self._open or self.state == "greeting":
            return self._fault(Failure(Code.CRASHED, "the peer closed its output", origin=Origin.PLUGIN))
        self._step("eof")
        return [Closed()]

    def _take(self, message: Any) -> Event:
        method = message.method
        if method is ABSENT:
            self._open.discard(message.id)
            return CallFinished(message.id, None, Failure(Code.PLUGIN_ERROR, message.error["message"]))
        if method == "hello":
            if self.role == Role.PLUGIN:
                self._say(jsonrpc.notification("hello", b"{}"))
            self._step("hello")
            return Ready({})
        params = self.codec.load(message.params)
        if method == "call":
            return CallArrived(message.id, InvokeTool(params["tool"], params["input"]))
        if method == "log":
            op = WriteLog(params["level"], params["message"])
            return Notified(op) if message.id is ABSENT else CallArrived(message.id, op)
        if method == "event":
            return Notified(DeliverEvent(params["topic"], params["payload"]))
        if method == "$progress":
            return CallProgress(params["id"], params["item"])
        if method == "$cancel":
            return CancelArrived(params["id"])
        return Fault(Failure(Code.MALFORMED_RESPONSE, f"unknown method {method!r}"))

    def greet(self) -> None:
        self._step("greet")
        if self.role == Role.HOST:
            self._say(jsonrpc.notification("hello", b"{}"))

    def call(self, id: CallId, op: Operation) -> Failure | None:
        if isinstance(op, InvokeTool) and isinstance(id, int):
            body = b'{"jsonrpc":"2.0","id":%d,"method":"call","params":{"tool":"%b","input":%b}}' % (
                id,
                op.tool.encode(),
                self.codec.encode(op.input),
            )
            self._out.append(encode(body))
        elif isinstance(op, WriteLog):
            self._say(jsonrpc.request(id, "log", self._log_params(op)))
        else:
            raise Misuse(f"cannot call {op!r}")
        self._open.add(id)
        return None

    def _log_params(self, op: WriteLog) -> bytes:
        return self.codec.encode({"level": op.level, "message": op.message})

    def notify(self, op: Operation) -> Failure | None:
        if isinstance(op, WriteLog):
            self._say(jsonrpc.notification("log", self._log_params(op)))
        elif isinstance(op, DeliverEvent):
            params = self.codec.encode({"topic": op.topic, "payload": op.payload})
            self._say(jsonrpc.notification("event", params))
        else:
            raise Misuse(f"cannot notify {op!r}")
        return None

    def cancel(self, id: CallId, reason: str) -> None:
        self._open.discard(id)
        self._say(jsonrpc.notification("$cancel", self.codec.encode({"id": id})))

    def finish(self, id: CallId, value: Any = None, failure: Failure | None = None) -> None:
        if failure is None:
            self._say(jsonrpc.result(id, self.codec.encode(value)))
        else:
            self._say(jsonrpc.error(id, -32000, failure.message, None, self.codec.encode))

    def progress(self, id: CallId, item: Any) -> None:
        self._say(jsonrpc.notification("$progress", self.codec.encode({"id": id, "item": item})))

    def close(self, reason: str) -> None:
        if self._may("close"):
            self._step("close")

    def _say(self, body: bytes) -> None:
        self._out.append(encode(body))
