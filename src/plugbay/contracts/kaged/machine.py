"""The kaged conversation: a greeting, then calls to the plugin and requests for storage at once, then a good-bye.

Owns what each frame is, which answer belongs to which call, and what may be said when, for both roles. Refuses to know
what a call means: parameters are `calls.py`'s and `storage.py`'s, who a plugin may claim to be `greeting.py`'s.

The two directions number their calls independently. Ours on the wire: a host's call n is n + 1, since `initialize`
is 1; a plugin's call n is n. What the peer asks is reported under a number of our own, because its ids may repeat; its
own id comes back in the answer.
"""

from __future__ import annotations

from plugbay.contracts.base import Misuse, Role, Traffic
from plugbay.contracts.kaged import calls, errors, greeting, messages, replies, storage
from plugbay.contracts.kaged.framing import TOO_LONG, FramedMachine, answered_id
from plugbay.contracts.kaged.messages import HEALTH_CHECK, INITIALIZE, INITIALIZE_ID, INITIALIZED, NO_ID, PING, SHUTDOWN
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import CallArrived, CallFinished, Closed, Noise, Notified, Ready
from plugbay.model.operations import CallMethod, CheckHealth, InvokeTool, Publish, RunHook, Shutdown
from plugbay.wire.json_gate import Malformed
from plugbay.wire.lines import HEAD_BYTES, TooLong
from plugbay.wire.strict_json import ABSENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

    from plugbay.contracts.kaged.framing import Id
    from plugbay.model.events import CallId, Event
    from plugbay.model.operations import HostOp, PluginOp
    from plugbay.wire.strict_json import Codec

START, GREETING, READY, CLOSING, CLOSED, FAILED = "start greeting ready closing closed failed".split()
OVER = (CLOSED, FAILED)


def _transitions() -> dict[tuple[str, str, str], str]:
    both = {
        (START, "greet"): GREETING,
        (GREETING, "hello"): READY,
        (CLOSING, "farewell"): CLOSED,
        (CLOSING, "eof"): CLOSED,
        **{(state, "close"): CLOSED for state in (START, CLOSED)},
    }
    host = {
        (FAILED, "close"): CLOSED,
        **{(state, "close"): CLOSING for state in (GREETING, READY, CLOSING)},
        **{(state, "violation"): FAILED for state in (GREETING, READY)},
    }
    plugin = {
        **{(state, "close"): CLOSED for state in (GREETING, READY, CLOSING)},
        **{(state, "shutdown"): CLOSING for state in (GREETING, READY, CLOSING)},
        **{(state, "eof"): CLOSED for state in (GREETING, READY)},
    }
    """A host may go away whenever it likes; a plugin that does so before it was asked to has crashed."""
    return {
        **{(Role.HOST, *key): state for key, state in {**both, **host}.items()},
        **{(Role.PLUGIN, *key): state for key, state in {**both, **plugin}.items()},
    }


_NUMBERS = (int, float)
_IDS = (*_NUMBERS, str, type(None))


def _noise(line: bytes, why: str) -> list[Event]:
    return [Noise(line[:HEAD_BYTES], why)]


class KagedMachine(FramedMachine):
    """One kaged conversation. HOST is bound to what the manifest promises; PLUGIN has an identity."""

    __slots__ = (
        "_arrived",
        "_asked",
        "_farewell",
        "_greeted",
        "_last",
        "_offset",
        "_open",
        "_opening",
        "_probe",
        "granted",
        "identity",
        "plugin_name",
        "promise",
        "storage",
    )

    CONTRACT: ClassVar[str] = "kaged"
    FIRST_STATE: ClassVar[str] = START
    TRANSITIONS: ClassVar[dict[tuple[str, str, str], str]] = _transitions()
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
        super().__init__(role, codec)
        self.identity = identity or messages.Identity("", "")
        self.plugin_name = name = plugin_name or self.identity.name
        self.promise = greeting.Promise(name, version, api_version, methods, tools, notifications, capabilities)
        self.granted = granted
        self.storage = storage
        self._opening = greeting.opening(self.promise, storage, projects, daemon_version, config, system_config)
        self._offset = INITIALIZE_ID if role == Role.HOST else 0
        self._open: dict[int, tuple[type, str]] = {}
        """What we wait for: the operation, and the method it was asked with."""
        self._asked: dict[CallId, tuple[Id, type]] = {}
        """What waits for us: the peer's id, and the operation."""
        self._arrived = self._last = 0
        self._farewell: int | None = None
        self._greeted = False
        self._probe = HEALTH_CHECK

    # What the peer does.

    def receive(self, data: bytes) -> list[Event]:
        events: list[Event] = []
        if self.state in OVER:
            return events
        for line in self._lines.feed(data):
            if isinstance(line, TooLong):
                events += self._useless(line.head, Code.FRAME_TOO_LARGE, TOO_LONG)
            elif line:
                events += self._read(line)
            if self.state in OVER:
                break
        return events

    def receive_eof(self) -> list[Event]:
        """The last line of a plugin need not have had its end; that of a host that is gone is not obeyed."""
        events = self.receive(b"\n" if self.role == Role.HOST else b"")
        if self.state == START or self.state in OVER:
            return events
        if self._may("eof"):
            self._step("eof")
            return [*events, Closed()]
        when = " before it answered initialize" if self.state == GREETING else ""
        return events + self._fault(Failure(Code.CRASHED, f"the plugin closed its output{when}", origin=Origin.PLUGIN))

    def _read(self, line: bytes) -> list[Event]:
        try:
            message = self._decode(line)
        except Malformed as error:
            return self._unreadable(line, str(error))
        method, id = message.method, message.id
        named = isinstance(method, str) and method != ""
        answers = message.result is not ABSENT or message.error is not ABSENT
        if not named and (answers or self.role == Role.HOST):
            return self._answered(id, message, line)
        if not named or (self.role == Role.PLUGIN and message.jsonrpc != "2.0"):
            return self._invalid(line, "neither a request, a notification nor an answer")
        params = None if message.params is ABSENT else self.codec.load(message.params)
        if self.role == Role.HOST:
            return self._told(method, params, line) if id is ABSENT else self._requested(id, method, params, line)
        return self._heard(method, line) if id is ABSENT else self._was_called(id, method, params)

    def _unreadable(self, line: bytes, why: str) -> list[Event]:
        """No object: a host skips it, a plugin says whether it was at least JSON."""
        try:
            self.codec.decode(line)
        except Malformed:
            if self.role == Role.PLUGIN:
                self._error(NO_ID, errors.PARSE_ERROR, f"Parse error: {why}")
            return self._useless(line[:HEAD_BYTES], Code.MALFORMED_RESPONSE, f"malformed line: {why}")
        return self._invalid(line, "a batch, which kaged has none of" if line[:1] == b"[" else "not an object")

    def _useless(self, head: bytes, code: str, why: str) -> list[Event]:
        """A line that cannot be read is noise; where it certainly answers a call, that call need not wait any more."""
        id = answered_id(head) if self.role == Role.HOST else None
        if id is None or id not in self._open:
            return _noise(head, why)
        op, method = self._open.pop(id)
        failure = Failure(code, f"the answer to {method} cannot be used: {why}", origin=Origin.PLUGIN)
        return [*_noise(head, why), CallFinished(id - self._offset, None, None if op is CheckHealth else failure)]

    def _invalid(self, line: bytes, why: str) -> list[Event]:
        if self.role == Role.PLUGIN:
            self._error(NO_ID, errors.INVALID_REQUEST, f"Invalid request: {why}")
        return _noise(line, why)

    def _arrival(self, id: Id, op: Any) -> list[Event]:
        self._arrived = number = self._arrived + 1
        self._asked[number] = (id, type(op))
        return [CallArrived(number, op)]

    # HOST: what a plugin asks and tells.

    def _requested(self, id: Id, name: str, params: Any, line: bytes) -> list[Event]:
        if type(id) not in _IDS:
            return _noise(line, "a request whose id is neither a number, a string nor null")
        if not self._greeted:
            self._error(id, errors.INTERNAL_ERROR, f"{name}: initialize was not accepted yet")
            return []
        op = storage.read(name, params) if self.storage else None
        if op is None:
            self._error(id, errors.METHOD_NOT_FOUND, f"Method not found: {name}")
            return []
        if isinstance(op, str):
            self._error(id, errors.INVALID_PARAMS, f"{name}: {op}")
            return []
        needed = storage.NEEDS[type(op)]
        if needed in self.granted:
            return self._arrival(id, op)
        why = f"{name} needs {needed}, which is not granted"
        self._error(id, *errors.to_wire(type(op), Failure(Code.CAPABILITY_NOT_ALLOWED, why)))
        return _noise(line, why)

    def _told(self, name: str, params: Any, line: bytes) -> list[Event]:
        if not self._greeted:
            return _noise(line, "a notification before initialize was accepted")
        if name not in self.promise.notifications:
            return _noise(line, f"a notification {name[:HEAD_BYTES]!r} that the manifest does not declare")
        return [Notified(Publish(messages.topic(self.plugin_name, name), {"payload": params}))]

    # PLUGIN: what a host asks and tells.

    def _was_called(self, id: Any, name: str, params: Any) -> list[Event]:
        """A request of the host; one whose id is no number is answered with 0."""
        id = id if type(id) in _NUMBERS else NO_ID
        if name == INITIALIZE:
            return self._initialize(id, params)
        if name == SHUTDOWN:
            self._step("shutdown")
            return self._arrival(id, Shutdown())
        if name in (HEALTH_CHECK, PING):
            self._reply(id, messages.STATUS_OK)
            return []
        op = calls.read(self.identity, name, params)
        if op is None or type(op) not in self.identity.serves:
            self._error(id, errors.METHOD_NOT_FOUND, f"Method not found: {name}")
            return []
        return self._arrival(id, op)

    def _initialize(self, id: Id, params: Any) -> list[Event]:
        """Say who we are, however often the host asks."""
        failure = self._reply(id, messages.identity_reply(self.identity))
        if failure is not None:
            self._error(id, errors.INTERNAL_ERROR, f"Internal error: {failure.message}")
        if not self._may("hello"):
            return []
        self._step("hello")
        return [Ready(greeting.heard(params))]

    def _heard(self, name: str, line: bytes) -> list[Event]:
        if name == SHUTDOWN:
            self._step("shutdown")
            return [Notified(Shutdown())]
        return [] if name == INITIALIZED else _noise(line, f"unknown notification {name[:HEAD_BYTES]!r}")

    # Answers of the peer.

    def _answered(self, id: Any, message: Any, line: bytes) -> list[Event]:
        if type(id) is not int:
            return _noise(line, "an answer to no call")
        if self.role == Role.HOST and id == INITIALIZE_ID and not self._greeted:
            return self._judged(message)
        if id == self._farewell:
            self._step("farewell")  # whatever it says, it has heard us
            return [Closed()]
        asked = self._open.pop(id, None)
        if asked is not None:
            value, failure = self._outcome(*asked, message, line)
            return [CallFinished(id - self._offset, value, failure)]
        if 0 < id <= self._last:
            return [CallFinished(id - self._offset)]  # we no longer wait for it
        return _noise(line, "an answer to a call nobody made")

    def _outcome(self, op: type, method: str, message: Any, line: bytes) -> tuple[Any, Failure | None]:
        if op is not CheckHealth:
            return replies.outcome(op, method, message, line, self.codec.load)
        if replies.is_unknown_method(message.error):
            self._probe = PING
        return None, None  # any answer proves life

    def _judged(self, message: Any) -> list[Event]:
        """HOST: the plugin said who it is. One we no longer want may say what it likes."""
        if not self._may("hello"):
            return []
        if message.error is not ABSENT:
            refusal = errors.from_wire(Shutdown, INITIALIZE, message.error)
            what = f"the plugin refused initialize: {refusal.message}"
            return self._fault(Failure(Code.HANDSHAKE_FAILED, what, origin=Origin.PLUGIN, detail=refusal.detail))
        hello = greeting.judge(None if message.result is ABSENT else self.codec.load(message.result), self.promise)
        if isinstance(hello, Failure):
            return self._fault(hello)
        self._step("hello")
        self._greeted = True
        self._tell(INITIALIZED, {})
        return [Ready(hello)]

    # What we do.

    def greet(self) -> None:
        self._step("greet")
        if self.role == Role.PLUGIN:
            return
        self._last = INITIALIZE_ID
        failure = self._say({"id": INITIALIZE_ID, "method": INITIALIZE, "params": self._opening})
        if failure is not None:
            raise Misuse(f"kaged host: the configuration cannot be sent: {failure.message}")

    def call(self, id: CallId, op: PluginOp | HostOp) -> Failure | None:
        if self.state != READY and (refusal := self._not_ready()) is not None:
            return refusal
        if not isinstance(id, int):
            raise Misuse("kaged numbers its calls")
        asked = self._written(op)
        if isinstance(asked, Failure):
            return asked
        method, params = asked
        wire = id + self._offset
        failure = self._ask(wire, method, params)
        if failure is None:
            self._open[wire] = (type(op), method)
            self._last = wire
        return failure

    def _not_ready(self) -> Failure | None:
        """Why nothing can be asked now; a plugin may ask while it is leaving."""
        if self.state in OVER or (self.role == Role.HOST and self.state == CLOSING):
            return Failure(Code.UNAVAILABLE, "the conversation is being closed")
        if self.state == START or self.role == Role.HOST:
            raise Misuse(f"kaged {self.role}: nothing can be asked in {self.state!r}")
        return None

    def _written(self, op: Any) -> tuple[str, bytes] | Failure:
        """The method and the parameters that ask for `op`, or why it must not be asked."""
        if type(op) not in (self.SUPPORTS if self.role == Role.HOST else storage.NAMES):
            raise Misuse(f"kaged cannot ask {type(op).__name__} from {self.role}")
        if self.role == Role.PLUGIN:
            return storage.written(op, self.codec)
        return (self._probe, b"{}") if type(op) is CheckHealth else calls.written(op, self.promise, self.codec)

    def notify(self, op: PluginOp | HostOp) -> Failure | None:
        """PLUGIN: a notification under a declared name, or under the topic it is published as."""
        if self.role == Role.HOST or not isinstance(op, Publish):
            raise Misuse(f"kaged cannot tell {type(op).__name__} from {self.role}")
        name = op.topic.removeprefix(messages.topic(self.plugin_name, ""))
        if self.state == GREETING:
            return Failure(Code.UNAVAILABLE, f"{name!r} is not sent: the host has not said hello yet")
        if name not in self.identity.notifications:
            return Failure(Code.CAPABILITY_NOT_DECLARED, f"{name!r} is not among the declared notifications")
        return self._not_ready() or self._tell(name, op.event.get("payload"))

    def cancel(self, id: CallId, reason: str) -> None:
        """kaged has no word for it: the peer works on, and its answer is late."""
        if isinstance(id, int):
            self._open.pop(id + self._offset, None)

    def finish(self, id: CallId, value: Any = None, failure: Failure | None = None) -> None:
        waiting = self._asked.pop(id, None)
        if waiting is None:
            raise Misuse(f"{id!r} is not a request that waits for an answer")
        peers_id, op = waiting
        if failure is None:
            failure = self._reply(peers_id, self._shaped(op, value))
            failure = failure and Failure(
                Code.INTERNAL, f"Internal error: the result cannot be sent: {failure.message}"
            )
        if failure is not None:
            self._error(peers_id, *errors.to_wire(op, failure))
        if op is Shutdown and self._may("farewell"):
            self._step("farewell")

    def _shaped(self, op: type, value: Any) -> Any:
        if op is Shutdown:
            return messages.STATUS_OK
        return storage.result(op, value) if op in errors.STORAGE else value

    def progress(self, id: CallId, item: Any) -> None:
        """kaged carries none."""

    def close(self, reason: str) -> None:
        """A host asks its plugin to leave, once and only when it is ready; a plugin has nothing to say."""
        asks = self.role == Role.HOST and self.state == READY
        self._step("close")
        if asks:
            self._last = self._farewell = self._last + 1
            self._ask(self._farewell, SHUTDOWN, b"{}")
