"""`AinbMachine`: a greeting during which the plugin may already ask, then both directions at once. Both roles.

Owns the classification of frames and the states; `messages.py` has the shapes.

A body that cannot be read is skipped, because the next frame begins where the header says. If such a body certainly
answers a call, the call fails at once. A header that cannot be read ends the conversation.
"""

from __future__ import annotations

from plugbay.contracts.ainb import errors, messages
from plugbay.contracts.ainb.messages import INIT, MAX_BODY, SHUTDOWN
from plugbay.contracts.base import Misuse, Role, Traffic
from plugbay.contracts.rpc import (
    CLOSING,
    GREETING,
    GREETING_ID,
    HEAD_BYTES,
    OVER,
    READY,
    IncomingRequest,
    RpcMachine,
    answered_id,
    malformed,
    noise,
    transitions,
)
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import Noise, Notified, Ready
from plugbay.model.operations import DispatchCli, PressKey, Shutdown, UseMouse
from plugbay.model.text import printable
from plugbay.wire.content_length import STRICT_HEADERS, ContentLengthDecoder, FrameFault, encode
from plugbay.wire.json_gate import Malformed
from plugbay.wire.strict_json import ABSENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

    from plugbay.contracts.ainb.messages import Method
    from plugbay.model.events import Event
    from plugbay.model.operations import HostOp, PluginOp
    from plugbay.wire.strict_json import Codec

_ASKS = {Role.HOST: messages.PLUGIN_REQUESTS, Role.PLUGIN: messages.HOST_REQUESTS}
_TELLS = {Role.HOST: messages.PLUGIN_NOTIFICATIONS, Role.PLUGIN: messages.HOST_NOTIFICATIONS}
_PEER = {Role.HOST: Role.PLUGIN, Role.PLUGIN: Role.HOST}

_ASKS_BY_OP = {role: {method.op: method for method in table} for role, table in _ASKS.items()}
_TELLS_BY_OP = {role: {method.op: method for method in table} for role, table in _TELLS.items()}
_IS_ASKED = {role: {method.name: method for method in _ASKS[_PEER[role]]} for role in _PEER}
_IS_TOLD = {role: {method.name: method for method in _TELLS[_PEER[role]]} for role in _PEER}


def _given(value: Any) -> Any:
    """In this envelope null is the same as nothing."""
    return None if value is ABSENT else value


class AinbMachine(RpcMachine):
    """One ainb conversation. HOST is bound to what the manifest says; PLUGIN has an identity."""

    __slots__ = ("_decode", "_frames", "_opening", "identity", "plugin_name", "version")

    CONTRACT: ClassVar[str] = "ainb"
    TRANSITIONS: ClassVar[dict[tuple[str, str, str], str]] = transitions(
        host_breaks=(GREETING, READY, CLOSING), plugin_breaks=(GREETING, READY, CLOSING)
    )
    SUPPORTS: ClassVar[frozenset[type]] = frozenset(_ASKS_BY_OP[Role.HOST]) | frozenset(_TELLS_BY_OP[Role.HOST])
    TRAFFIC: ClassVar[Traffic] = Traffic(
        messages.MAX_EVENTS, drops="oldest", urgent=(PressKey, UseMouse), max_bytes=messages.MAX_QUEUED
    )
    HELLO: ClassVar[str] = INIT
    GOOD_BYE: ClassVar[tuple[str, bytes]] = (SHUTDOWN, messages.NOTHING)

    def __init__(
        self,
        role: str,
        codec: Codec,
        *,
        plugin_name: str = "",
        version: str = "",
        manifest_path: str = "",
        granted: tuple[str, ...] = (),
        config: dict[str, Any] | None = None,
        host_pid: int | None = None,
        identity: messages.Identity | None = None,
    ) -> None:
        super().__init__(role, codec, MAX_BODY)
        self.identity = identity or messages.Identity("", "")
        self.plugin_name = plugin_name
        self.version = version
        self._opening = messages.build_greeting(manifest_path, granted, config, host_pid)
        self._frames = ContentLengthDecoder(STRICT_HEADERS)
        self._decode = codec.decoder(messages.READS, messages.READS_RAW)

    # Frames.

    def _frame(self, body: bytes) -> bytes:
        return encode(body, MAX_BODY)

    @property
    def pending(self) -> int:
        return self._frames.pending

    def receive(self, data: bytes) -> list[Event]:
        events: list[Event] = []
        if self.state in OVER:
            return events
        for body in self._frames.feed(data):
            events += self._unframed(body) if isinstance(body, FrameFault) else self._read(body)
            if self.state in OVER:
                break
        return events

    def _unframed(self, fault: FrameFault) -> list[Event]:
        """Where the next frame begins can no longer be known."""
        peer = _PEER[self.role]
        what = f"the {peer} broke the framing: {fault.reason}"
        origin = Origin.PLUGIN if peer == Role.PLUGIN else Origin.HOST
        return self._fault(Failure(fault.code, what, origin=origin, detail={"line": printable(fault.head)}))

    def _take_unfinished(self) -> list[Event]:
        cut = self._frames.eof()
        return [] if cut is None else [Noise(cut.head, cut.reason)]

    def _read(self, body: bytes) -> list[Event]:
        try:
            message = self._decode(body)
        except Malformed as error:
            return self._skip_unreadable(answered_id(body[:HEAD_BYTES]), body, f"malformed body: {error}")
        method, id = _given(message.method), _given(message.id)
        problem = self._envelope_problem(message.jsonrpc, method, id)
        if problem:
            return self._skip_unreadable(id if method is None and type(id) is int else None, body, problem)
        if method is None:
            return self._dispatch_answer(id, message, body)
        params = None if message.params is ABSENT else self.codec.load(message.params)
        return self._take_notification(method, params, body) if id is None else self._take_request(id, method, params)

    def _envelope_problem(self, version: Any, method: Any, id: Any) -> str:
        """Why a body is not a message of this contract. Real plugins do not look at the version."""
        if self.role == Role.HOST and version != "2.0":
            return "it is not JSON-RPC 2.0"
        if not (id is None or (type(id) is int and id >= 0)):
            shown, what = f"{id!r:.40}", f"{method!r:.80}" if isinstance(method, str) else "an answer"
            return f"{what} with the id {shown} is refused: an id of this contract is an unsigned integer"
        if method is None:
            return "it has neither a method nor an id" if id is None else ""
        return "" if isinstance(method, str) else "its method is not a string"

    # What the peer asks and tells.

    def _take_request(self, id: int, name: str, params: Any) -> list[Event]:
        if self.role == Role.PLUGIN and name in (INIT, SHUTDOWN):
            return (
                self._answer_greeting(id, params)
                if name == INIT
                else self._take_shutdown(IncomingRequest(id, Shutdown()))
            )
        method = self._served(name)
        if method is None:
            self._write_error(id, *errors.not_found(name))
            return []
        op = messages.read_request(method, params)
        if isinstance(op, str):
            self._write_error(id, errors.INVALID_PARAMS, f"{name}: {op}")
            return []
        if name in _IS_TOLD[self.role]:
            self._write_result(id, messages.NOTHING)
            return [Notified(op)]
        if isinstance(op, DispatchCli) and op.namespace not in self.identity.namespaces:
            self._write_result(id, self._json(messages.build_unknown_namespace(op.namespace, self.identity.namespaces)))
            return []
        return self._accept_request(IncomingRequest(id, op))

    def _served(self, name: str) -> Method | None:
        """The requested method. A plugin accepts a notification with an id too; real hosts refuse that."""
        method = _IS_ASKED[self.role].get(name)
        if self.role == Role.HOST:
            return method
        if method is None:
            return _IS_TOLD[self.role].get(name)
        return method if method.op in self.identity.serves else None

    def _take_notification(self, name: str, params: Any, body: bytes) -> list[Event]:
        if self.role == Role.PLUGIN and name == SHUTDOWN:
            return self._take_shutdown(None)
        method = _IS_TOLD[self.role].get(name)
        if method is None:
            known = name in _IS_ASKED[self.role]
            return noise(body, f"{name} without an id" if known else f"unknown notification {name[:HEAD_BYTES]!r}")
        op = messages.read_request(method, params)
        return noise(body, f"{name}: {op}") if isinstance(op, str) else [Notified(op)]

    # PLUGIN: its host greets it, and asks it to leave.

    def _answer_greeting(self, id: int, params: Any) -> list[Event]:
        """Answer the greeting, however often the host sends it."""
        hello = messages.read_greeting(params)
        if isinstance(hello, tuple):
            self._write_error(id, *hello)
            return []
        failure = self._write_result(id, self._json(messages.build_greeting_result(self.identity)))
        if failure is not None:
            self._write_error(id, errors.INTERNAL_ERROR, f"the manifest cannot be sent: {failure.message}")
        if not self._may("hello"):
            return []
        self._step("hello")
        return [Ready(hello)]

    def _take_shutdown(self, asked: IncomingRequest | None) -> list[Event]:
        """Report the shutdown; the code that exits sends the answer, where one is expected."""
        self._step("shutdown")
        return [Notified(Shutdown())] if asked is None else self._accept_request(asked)

    # HOST: it greets, and judges the answer.

    def _send_greeting(self) -> None:
        failure = self._write_request(GREETING_ID, INIT, self._json(self._opening))
        if failure is not None:
            raise Misuse(f"ainb host: the configuration cannot be sent: {failure.message}")

    def _check_greeting(self, message: Any, frame: bytes) -> list[Event]:
        if _given(message.error) is not None:
            refusal = errors.from_plugin(Shutdown, INIT, message.error)
            what = f"the plugin was not accepted: it refused {INIT}: {refusal.message}"
            return self._fault(Failure(Code.HANDSHAKE_FAILED, what, origin=Origin.PLUGIN, detail=refusal.detail))
        result = None if message.result is ABSENT else self.codec.load(message.result)
        hello = messages.check_greeting(result, self.plugin_name, self.version)
        if isinstance(hello, Failure):
            return self._fault(hello)
        self._step("hello")
        self._greeted = True
        return [Ready(hello)]

    # What we ask and tell, and what we answer.

    def _send_call(self, wire: int, op: Any) -> Failure | None:
        method = _ASKS_BY_OP[self.role].get(type(op))
        if method is None:
            raise Misuse(f"ainb cannot ask {type(op).__name__} from {self.role}")
        failure = self._write_request(wire, method.name, messages.write_request(method, op, self.codec))
        if failure is None:
            self._remember(wire, method)
        return failure

    def notify(self, op: PluginOp | HostOp) -> Failure | None:
        """A plugin may tell until it is gone: its output outlives its input."""
        method = _TELLS_BY_OP[self.role].get(type(op))
        if method is None:
            raise Misuse(f"ainb cannot tell {type(op).__name__} from {self.role}")
        refusal = None if self.state == READY or self.role == Role.PLUGIN else self._refuse_unless_ready()
        return refusal or self._write_notification(method.name, messages.write_request(method, op, self.codec))

    def _read_answer(self, asked: Method, message: Any, frame: bytes) -> tuple[Any, Failure | None]:
        """An error counts before a result; one that is null is none."""
        if _given(message.error) is not None:
            if self.role == Role.PLUGIN:
                return None, errors.from_host(asked.name, message.error)
            return None, errors.from_plugin(asked.op, asked.name, message.error)
        if message.result is ABSENT:
            return None, malformed(f"the answer to {asked.name} has neither a result nor an error", frame)
        value, problem = messages.read_result(asked.op, message.result, self.codec)
        return (None, malformed(f"the answer to {asked.name}: {problem}", frame)) if problem else (value, None)

    def _encode_result(self, asked: IncomingRequest, value: Any) -> bytes | Failure:
        return messages.write_result(type(asked.op), value, self.codec)

    def _explain_unsent(self, problem: Failure) -> Failure:
        unsent = super()._explain_unsent(problem)
        return unsent if problem.code != Code.FRAME_TOO_LARGE else Failure(problem.code, unsent.message)

    def _encode_failure(self, asked: IncomingRequest, failure: Failure) -> tuple[int, str, dict[str, Any] | None]:
        if self.role == Role.PLUGIN:
            return errors.to_host(failure)
        return errors.to_plugin(asked.op, _ASKS_BY_OP[Role.PLUGIN][type(asked.op)].name, failure)
