"""`KagedMachine`: greeting, calls to the plugin and storage requests in parallel, shutdown. Both roles.

Owns the classification of frames and the states. `messages.py` has the greeting, `calls.py` and `storage.py`
the parameters and results.
"""

from __future__ import annotations

from plugbay.contracts.base import Misuse, Role, Traffic
from plugbay.contracts.kaged import calls, errors, messages, storage
from plugbay.contracts.kaged.messages import HEALTH_CHECK, INITIALIZE, INITIALIZED, NO_ID, PING, SHUTDOWN
from plugbay.contracts.rpc import (
    GREETING,
    GREETING_ID,
    OVER,
    READY,
    IncomingRequest,
    RpcMachine,
    answered_id,
    last_line,
    noise,
    transitions,
)
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import CallFinished, Notified, Ready
from plugbay.model.operations import CallMethod, CheckHealth, InvokeTool, Publish, RunHook, Shutdown
from plugbay.wire.json_gate import Malformed
from plugbay.wire.lines import HEAD_BYTES, LineDecoder, TooLong, encode
from plugbay.wire.strict_json import ABSENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

    from plugbay.contracts.rpc import Id
    from plugbay.model.events import Event
    from plugbay.model.operations import HostOp, PluginOp
    from plugbay.wire.strict_json import Codec

TOO_LONG = f"a line longer than the maximum of {messages.MAX_READ:,} bytes"

_NUMBERS = (int, float)
_IDS = (*_NUMBERS, str, type(None))


class KagedMachine(RpcMachine):
    """One kaged conversation. HOST is bound to what the manifest promises; PLUGIN has an identity."""

    __slots__ = tuple("_decode _lines _opening _probe granted identity plugin_name promise storage".split())

    CONTRACT: ClassVar[str] = "kaged"
    TRANSITIONS: ClassVar[dict[tuple[str, str, str], str]] = transitions(host_breaks=(GREETING, READY))
    SUPPORTS: ClassVar[frozenset[type]] = frozenset({InvokeTool, CallMethod, RunHook, CheckHealth})
    TRAFFIC: ClassVar[Traffic] = Traffic()

    def __init__(
        self,
        role: str,
        codec: Codec,
        *,
        plugin_name: str = "",
        version: str = "",
        api_version: int = messages.API_VERSION,
        methods: tuple[str, ...] = (),
        tools: tuple[str, ...] = (),
        capabilities: tuple[str, ...] = (),
        notifications: tuple[str, ...] = (),
        granted: tuple[str, ...] = (),
        storage: bool = False,
        projects: tuple[str, ...] = (),
        config: dict[str, Any] | None = None,
        system_config: dict[str, Any] | None = None,
        daemon_version: str = messages.DAEMON_VERSION,
        identity: messages.Identity | None = None,
    ) -> None:
        super().__init__(role, codec, messages.MAX_SENT)
        self._lines = LineDecoder(messages.MAX_READ)
        self._decode = codec.decoder(messages.READS, messages.READS_RAW)
        self.identity = identity or messages.Identity("", "")
        self.plugin_name = name = plugin_name or self.identity.name
        self.promise = messages.Promise(name, version, api_version, methods, tools, notifications, capabilities)
        self.granted = granted
        self.storage = storage
        self._opening = messages.build_greeting(self.promise, storage, projects, daemon_version, config, system_config)
        self._probe = HEALTH_CHECK

    @property
    def has_probe(self) -> bool:
        return self.role == Role.HOST

    # Lines.

    @property
    def pending(self) -> int:
        return self._lines.pending

    def _frame(self, body: bytes) -> bytes:
        return encode(body)

    def _take_unfinished(self) -> list[Event]:
        """The last line of a plugin may lack its line feed; that of a host that is gone is not obeyed."""
        return self.receive(last_line(self._lines, self.codec) + b"\n") if self.role == Role.HOST else []

    def receive(self, data: bytes) -> list[Event]:
        events: list[Event] = []
        if self.state in OVER:
            return events
        for line in self._lines.feed(data):
            if isinstance(line, TooLong):
                events += self._skip_unreadable(answered_id(line.head), line.head, TOO_LONG, Code.FRAME_TOO_LARGE)
            elif line:
                events += self._read(line)
            if self.state in OVER:
                break
        return events

    def _read(self, line: bytes) -> list[Event]:
        try:
            message = self._decode(line)
        except Malformed as error:
            return self._unreadable(line, str(error))
        method, id = message.method, message.id
        named = isinstance(method, str) and method != ""
        answers = message.result is not ABSENT or message.error is not ABSENT
        if not named and (answers or self.role == Role.HOST):
            return (
                self._dispatch_answer(id, message, line)
                if type(id) is int
                else noise(line, "an answer to an unknown call")
            )
        if not named or (self.role == Role.PLUGIN and message.jsonrpc != "2.0"):
            return self._invalid(line, "neither a request, a notification nor an answer")
        params = None if message.params is ABSENT else self.codec.load(message.params)
        if self.role == Role.HOST:
            if id is ABSENT:
                return self._take_plugin_notification(method, params, line)
            return self._take_plugin_request(id, method, params, line)
        if id is ABSENT:
            return self._take_host_notification(method, line)
        return self._take_host_request(id, method, params)

    def _unreadable(self, line: bytes, why: str) -> list[Event]:
        """No object: a host skips it, a plugin says whether it was at least JSON."""
        try:
            self.codec.decode(line)
        except Malformed:
            if self.role == Role.PLUGIN:
                self._write_error(NO_ID, errors.PARSE_ERROR, f"Parse error: {why}")
            return self._skip_unreadable(answered_id(line[:HEAD_BYTES]), line, f"malformed line: {why}")
        return self._invalid(line, "a batch, which kaged does not have" if line[:1] == b"[" else "not an object")

    def _method(self, asked: tuple[type, str]) -> str:
        return asked[1]

    def _end_unreadable(self, wire: int, asked: tuple[type, str], failure: Failure | None) -> CallFinished:
        healthy = asked[0] is CheckHealth  # any answer proves life
        return super()._end_unreadable(wire, asked, None if healthy else failure)

    def _invalid(self, line: bytes, why: str) -> list[Event]:
        if self.role == Role.PLUGIN:
            self._write_error(NO_ID, errors.INVALID_REQUEST, f"Invalid request: {why}")
        return noise(line, why)

    # HOST: what a plugin asks and tells.

    def _take_plugin_request(self, id: Id, name: str, params: Any, line: bytes) -> list[Event]:
        if type(id) not in _IDS:
            return noise(line, "a request whose id is neither a number, a string nor null")
        if not self._greeted:
            self._write_error(id, errors.INTERNAL_ERROR, f"{name}: initialize was not accepted yet")
            return []
        op = storage.read_request(name, params) if self.storage else None
        if op is None:
            self._write_error(id, errors.METHOD_NOT_FOUND, f"Method not found: {name}")
            return []
        if isinstance(op, str):
            self._write_error(id, errors.INVALID_PARAMS, f"{name}: {op}")
            return []
        needed = storage.NEEDS[type(op)]
        if needed in self.granted:
            return self._accept_request(IncomingRequest(id, op))
        why = f"{name} needs {needed}, which is not granted"
        self._write_error(id, *errors.to_wire(type(op), Failure(Code.CAPABILITY_NOT_ALLOWED, why)))
        return noise(line, why)

    def _take_plugin_notification(self, name: str, params: Any, line: bytes) -> list[Event]:
        if not self._greeted:
            return noise(line, "a notification before initialize was accepted")
        if name not in self.promise.notifications:
            return noise(line, f"a notification {name[:HEAD_BYTES]!r} that the manifest does not declare")
        return [Notified(Publish(messages.topic(self.plugin_name, name), {"payload": params}))]

    # PLUGIN: what a host asks and tells.

    def _take_host_request(self, id: Any, name: str, params: Any) -> list[Event]:
        """A request of the host; one whose id is neither a number nor a string is answered with 0."""
        id = id if type(id) in (*_NUMBERS, str) else NO_ID
        if name == INITIALIZE:
            return self._answer_greeting(id, params)
        if name == SHUTDOWN:
            self._step("shutdown")
            return self._accept_request(IncomingRequest(id, Shutdown()))
        if name in (HEALTH_CHECK, PING):
            self._write_result(id, self._json(messages.STATUS_OK))
            return []
        op = calls.read_call(self.identity, name, params)
        if op is None or type(op) not in self.identity.serves:
            self._write_error(id, errors.METHOD_NOT_FOUND, f"Method not found: {name}")
            return []
        return self._accept_request(IncomingRequest(id, op))

    def _answer_greeting(self, id: Id, params: Any) -> list[Event]:
        """Answer the greeting, however often the host sends it."""
        failure = self._write_result(id, self._json(messages.build_greeting_result(self.identity)))
        if failure is not None:
            self._write_error(id, errors.INTERNAL_ERROR, f"Internal error: {failure.message}")
        if not self._may("hello"):
            return []
        self._step("hello")
        return [Ready(messages.read_greeting(params))]

    def _take_host_notification(self, name: str, line: bytes) -> list[Event]:
        if name == SHUTDOWN:
            self._step("shutdown")
            return [Notified(Shutdown())]
        return [] if name == INITIALIZED else noise(line, f"unknown notification {name[:HEAD_BYTES]!r}")

    # Answers of the peer.

    def _read_answer(self, asked: tuple[type, str], message: Any, frame: bytes) -> tuple[Any, Failure | None]:
        op, method = asked
        if op is not CheckHealth:
            return calls.read_answer(op, method, message, frame, self.codec.load)
        if calls.is_unknown_method(message.error):
            self._probe = PING
        return None, None  # any answer proves life

    def _check_greeting(self, message: Any, frame: bytes) -> list[Event]:
        if message.error is not ABSENT:
            refusal = errors.from_wire(Shutdown, INITIALIZE, message.error)
            what = f"the plugin refused initialize: {refusal.message}"
            return self._fault(Failure(Code.HANDSHAKE_FAILED, what, origin=Origin.PLUGIN, detail=refusal.detail))
        hello = messages.check_greeting(
            None if message.result is ABSENT else self.codec.load(message.result), self.promise
        )
        if isinstance(hello, Failure):
            return self._fault(hello)
        self._step("hello")
        self._greeted = True
        self._write_notification(INITIALIZED, b"{}")
        return [Ready(hello)]

    # What we do.

    def _send_greeting(self) -> None:
        failure = self._write_request(GREETING_ID, INITIALIZE, self._json(self._opening))
        if failure is not None:
            raise Misuse(f"kaged host: the configuration cannot be sent: {failure.message}")

    def _send_call(self, wire: int, op: Any) -> Failure | None:
        asked = self._written(op)
        if isinstance(asked, Failure):
            return asked
        method, params = asked
        failure = self._write_request(wire, method, params)
        if failure is None:
            self._remember(wire, (type(op), method))
        return failure

    def _written(self, op: Any) -> tuple[str, bytes] | Failure:
        """The method and the parameters that ask for `op`, or why it must not be asked."""
        if type(op) not in (self.SUPPORTS if self.role == Role.HOST else storage.NAMES):
            raise Misuse(f"kaged cannot ask {type(op).__name__} from {self.role}")
        if self.role == Role.PLUGIN:
            return storage.write_request(op, self.codec)
        return (self._probe, b"{}") if type(op) is CheckHealth else calls.write_call(op, self.promise, self.codec)

    def notify(self, op: PluginOp | HostOp) -> Failure | None:
        """PLUGIN: a notification under a declared name, or under the topic it is published as."""
        if self.role == Role.HOST or not isinstance(op, Publish):
            raise Misuse(f"kaged cannot tell {type(op).__name__} from {self.role}")
        name = op.topic.removeprefix(messages.topic(self.plugin_name, ""))
        if self.state == GREETING:
            return Failure(Code.UNAVAILABLE, f"{name!r} is not sent: the handshake is not complete")
        if name not in self.identity.notifications:
            return Failure(Code.CAPABILITY_NOT_DECLARED, f"{name!r} is not among the declared notifications")
        return self._refuse_unless_ready() or self._tell_payload(name, op.event.get("payload"))

    def _tell_payload(self, name: str, payload: Any) -> Failure | None:
        """Null is no parameters."""
        if payload is None:
            return self._write(b'{"jsonrpc":"2.0","method":%b}' % self.codec.encode(name))
        return self._write_notification(name, self._json(payload))

    def _encode_result(self, asked: IncomingRequest, value: Any) -> bytes | Failure:
        op = type(asked.op)
        if op is Shutdown:
            return self._json(messages.STATUS_OK)
        return self._json(storage.build_result(op, value) if op in errors.STORAGE else value)

    def _explain_unsent(self, problem: Failure) -> Failure:
        return Failure(Code.INTERNAL, f"Internal error: {super()._explain_unsent(problem).message}")

    def _encode_failure(self, asked: IncomingRequest, failure: Failure) -> tuple[int, str, dict[str, Any] | None]:
        return errors.to_wire(type(asked.op), failure)
