"""The nexo conversation: a greeting, then requests and notifications both ways at once, then a good-bye. Both roles.

Owns what each frame is, which answer belongs to which call, and what may be said when. Refuses to know what a call
means: how parameters are read is `requests.py`'s, what an answer must look like `replies.py`'s, who a child may claim
to be `greeting.py`'s.

The two directions number their calls independently. Ours on the wire: a host's call n is n + 1, since `initialize`
is 1; a plugin's call n is n. What the peer asks is reported under a number of our own, because its ids may be null or
repeat; its own id comes back in the answer, verbatim.
"""

from __future__ import annotations

from plugbay.contracts.base import Misuse, Role, Traffic
from plugbay.contracts.nexo import errors, greeting, messages, replies, requests
from plugbay.contracts.nexo.framing import FramedMachine
from plugbay.contracts.nexo.messages import INITIALIZE, INITIALIZE_ID, SHUTDOWN, TOOL
from plugbay.contracts.nexo.replies import Asked
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import CallArrived, CallFinished, CallProgress, Closed, Noise, Notified, Ready
from plugbay.model.operations import DeliverEvent, InvokeTool, Shutdown
from plugbay.wire.json_gate import Malformed, gate
from plugbay.wire.lines import HEAD_BYTES, TooLong, encode
from plugbay.wire.strict_json import ABSENT, Unencodable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

    from plugbay.contracts.nexo.messages import Method
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
        **{(state, "violation"): FAILED for state in (GREETING, READY, CLOSING)},
    }
    plugin = {
        **{(state, "close"): CLOSED for state in (GREETING, READY, CLOSING)},
        **{(state, "shutdown"): CLOSING for state in (GREETING, READY, CLOSING)},
        **{(state, "eof"): CLOSED for state in (GREETING, READY)},
    }
    """A host may go away whenever it likes; a child that does so before it was asked to has crashed."""
    return {
        **{(Role.HOST, *key): state for key, state in {**both, **host}.items()},
        **{(Role.PLUGIN, *key): state for key, state in {**both, **plugin}.items()},
    }


_SAYS = {
    Role.HOST: {method.op: method for method in messages.TO_CHILD},
    Role.PLUGIN: {method.op: method for method in messages.TO_HOST},
}
_HEARS = {
    Role.HOST: {method.name: method for method in messages.TO_HOST},
    Role.PLUGIN: {method.name: method for method in messages.TO_CHILD},
}
_IDS = (int, str, type(None))


def _noise(line: bytes, why: str) -> list[Event]:
    return [Noise(line[:HEAD_BYTES], why)]


class NexoMachine(FramedMachine):
    """One nexo conversation. HOST is bound to an id and the tools its manifest declares; PLUGIN has an identity."""

    __slots__ = (
        "_arrived",
        "_asked",
        "_early",
        "_farewell",
        "_last",
        "_offset",
        "_open",
        "_serves",
        "_streams",
        "_tools",
        "declared",
        "identity",
        "nexo_version",
        "plugin_id",
    )

    CONTRACT: ClassVar[str] = "nexo"
    FIRST_STATE: ClassVar[str] = START
    TRANSITIONS: ClassVar[dict[tuple[str, str, str], str]] = _transitions()
    SUPPORTS: ClassVar[frozenset[type]] = frozenset(_SAYS[Role.HOST])
    TRAFFIC: ClassVar[Traffic] = Traffic(capacity=64, drops="newest")

    def __init__(
        self,
        role: str,
        codec: Codec,
        *,
        plugin_id: str = "",
        tools: tuple[str, ...] = (),
        nexo_version: str = messages.NEXO_VERSION,
        identity: messages.Identity | None = None,
    ) -> None:
        super().__init__(role, codec)
        self.identity = identity or messages.Identity({}, "")
        self.plugin_id = plugin_id or self.identity.plugin_id
        self._serves = self.identity.serves - {DeliverEvent}
        self.declared = tools
        self.nexo_version = nexo_version
        self._offset = INITIALIZE_ID if role == Role.HOST else 0
        self._open: dict[int, Method] = {}
        self._streams: set[int] = set()
        self._asked: dict[CallId, Asked] = {}
        self._arrived = self._last = 0
        self._farewell: int | None = None
        self._tools: dict[str, bytes] = {}
        self._early: list[Event] | None = [] if role == Role.HOST else None
        """Publishes that came before the greeting was accepted; None once it is."""

    # What the peer does.

    def receive(self, data: bytes) -> list[Event]:
        events: list[Event] = []
        if self.state in OVER:
            return events
        open = self._open
        for line in self._lines.feed(data):
            if isinstance(line, TooLong):
                events.append(self._too_long(line))
                continue
            try:
                message = self._decode(line)
            except Malformed as error:
                if line:
                    events.append(Noise(line[:HEAD_BYTES], f"malformed line: {error}"))
                continue
            id = message.id
            answers = message.method is ABSENT and message.error is ABSENT and message.result is not ABSENT
            if answers and type(id) is int and open.get(id) is TOOL:
                del open[id]
                events.append(CallFinished(id - self._offset, message.result))
                continue
            events += self._take(message, line)
            if self.state in OVER:
                break
        return events

    def receive_eof(self) -> list[Event]:
        events = self.receive(b"\n")  # the last line need not have had its end
        if self.state == START or self.state in OVER:
            return events
        if self._may("eof"):
            self._step("eof")
            return [*events, Closed()]
        when = " before it answered initialize" if self.state == GREETING else ""
        return events + self._fault(Failure(Code.CRASHED, f"the plugin closed its output{when}", origin=Origin.PLUGIN))

    def _take(self, message: Any, line: bytes) -> list[Event]:
        """What a frame is: a method makes it a request or a notification; else a number makes it an answer."""
        method, id = message.method, message.id
        if not (isinstance(method, str) and method):
            if type(id) is int:
                return self._answered(id, message, line)
            why = "neither a request, a notification nor an answer"
            return _noise(line, why if message.error is ABSENT else "an error to no call")
        if id is not ABSENT and type(id) not in _IDS:
            return _noise(line, "a request whose id is neither a number, a string nor null")
        params = None if message.params is ABSENT else self.codec.load(message.params)
        if self.role == Role.PLUGIN and method in (INITIALIZE, SHUTDOWN):
            return self._initialize(id, params) if method == INITIALIZE else [self._shutdown(id, params)]
        return self._told(method, params, line) if id is ABSENT else self._was_asked(id, method, params)

    # Requests and notifications of the peer.

    def _was_asked(self, id: int | str | None, name: str, params: Any) -> list[Event]:
        if self._early is not None:
            self._error(id, errors.INTERNAL_ERROR, f"{name} is not yet wired: initialize was not accepted yet")
            return []
        method = _HEARS[self.role].get(name)
        if method is None or (self.role == Role.PLUGIN and method.op not in self._serves):
            self._error(id, errors.METHOD_NOT_FOUND, f"method not found: {name}")
            return []
        op = requests.read(method, params, self.plugin_id)
        if isinstance(op, str):
            self._error(id, errors.INVALID_PARAMS, f"{name}: {op}")
            return []
        return [self._arrival(id, op)]

    def _arrival(self, id: int | str | None, op: Any) -> Event:
        self._arrived = number = self._arrived + 1
        self._asked[number] = Asked(id, type(op), getattr(op, "stream", False))
        return CallArrived(number, op)

    def _told(self, name: str, params: Any, line: bytes) -> list[Event]:
        if name == (messages.CHAT_DELTA if self.role == Role.HOST else messages.COMPLETE_DELTA):
            return self._progressed(params, line)
        method = _HEARS[self.role].get(name)
        if method is None or method.op not in messages.NOTIFICATIONS:
            return _noise(line, f"unknown notification {name[:HEAD_BYTES]!r}")
        op = requests.read(method, params, self.plugin_id)
        if isinstance(op, str):
            return _noise(line, f"{name}: {op}")
        if self._early is None:
            return [Notified(op)]
        if len(self._early) >= messages.MAX_EARLY_PUBLISHES:
            return _noise(line, f"more than {messages.MAX_EARLY_PUBLISHES} events before initialize was answered")
        self._early.append(Notified(op))
        return []

    def _progressed(self, params: Any, line: bytes) -> list[Event]:
        wanted, what = (dict, "an object") if self.role == Role.HOST else (str, "a string")
        id = params.get("request_id") if isinstance(params, dict) else None
        if type(id) is not int or not isinstance(params.get("chunk"), wanted):
            return _noise(line, f"a delta needs request_id (a number) and chunk ({what})")
        if id in self._streams or self._is_late(id):
            return [CallProgress(id - self._offset, params["chunk"])]
        return _noise(line, "a delta to a call that asked for none")

    def _initialize(self, id: Any, params: Any) -> list[Event]:
        """PLUGIN: say who we are, however often the host asks."""
        if id is not ABSENT:
            failure = self._reply(id, messages.identity_reply(self.identity))
            if failure is not None:
                self._error(id, errors.INTERNAL_ERROR, f"the manifest cannot be sent: {failure.message}")
        if not self._may("hello"):
            return []
        self._step("hello")
        version = params.get("nexo_version") if isinstance(params, dict) else None
        return [Ready({"nexo_version": version if isinstance(version, str) else ""})]

    def _shutdown(self, id: Any, params: Any) -> Event:
        """PLUGIN: the host wants us to leave; the answer is for whoever does the leaving."""
        self._step("shutdown")
        op = requests.shutdown(params)
        return Notified(op) if id is ABSENT else self._arrival(id, op)

    # Answers of the peer.

    def _answered(self, id: int, message: Any, line: bytes) -> list[Event]:
        if self._early is not None and id == INITIALIZE_ID:
            return self._greeted(message)
        if id == self._farewell:
            return self._left(message)
        method = self._open.pop(id, None)
        self._streams.discard(id)
        if method is not None:
            value, failure = replies.outcome(method, message, line, self.codec.load)
            return [CallFinished(id - self._offset, value, failure)]
        if self._is_late(id):
            return [CallFinished(id - self._offset)]
        return _noise(line, "an answer to a call nobody made")

    def _is_late(self, id: int) -> bool:
        """Whether we asked this once and no longer wait."""
        return 0 < id <= self._last and id not in self._open

    def _greeted(self, message: Any) -> list[Event]:
        """HOST: the child said who it is. One we no longer want may say what it likes."""
        if not self._may("hello"):
            return []
        if message.error is not ABSENT:
            refusal = errors.from_wire(Shutdown, INITIALIZE, message.error)
            what = f"the plugin refused initialize: {refusal.message}"
            return self._fault(Failure(Code.HANDSHAKE_FAILED, what, origin=Origin.PLUGIN, detail=refusal.detail))
        result = None if message.result is ABSENT else self.codec.load(message.result)
        hello = greeting.judge(result, self.plugin_id, self.declared)
        if isinstance(hello, Failure):
            return self._fault(hello)
        for tool in hello["tools"]:
            self._tools[tool["name"]] = messages.tool_prefix(self.codec, self.plugin_id, tool["name"])
        self._step("hello")
        early, self._early = self._early or [], None
        return [Ready(hello), *early]

    def _left(self, message: Any) -> list[Event]:
        """HOST: the child is ready to go, or says why it could not leave in good order."""
        if message.error is ABSENT:
            self._step("farewell")
            return [Closed()]
        refusal = errors.from_wire(Shutdown, SHUTDOWN, message.error)
        what = f"shutdown handler failed: {refusal.message}"
        return self._fault(Failure(Code.PLUGIN_ERROR, what, origin=Origin.PLUGIN, detail=refusal.detail))

    # What we do.

    def greet(self) -> None:
        self._step("greet")
        if self.role == Role.HOST:
            self._last = INITIALIZE_ID
            self._ask(INITIALIZE_ID, INITIALIZE, {"nexo_version": self.nexo_version})

    def call(self, id: CallId, op: PluginOp | HostOp) -> Failure | None:
        if self.state != READY and (refusal := self._not_ready()) is not None:
            return refusal
        if not isinstance(id, int):
            raise Misuse("nexo numbers its calls")
        if type(op) is InvokeTool:
            return self._invoke(id, op)
        method = _SAYS[self.role].get(type(op))
        if method is None or type(op) is DeliverEvent:
            raise Misuse(f"nexo cannot ask {type(op).__name__} from {self.role}")
        wire = id + self._offset
        failure = self._ask(wire, method.name, messages.params(method, op, self.plugin_id))
        if failure is None:
            self._open[wire] = method
            self._last = wire
            if getattr(op, "stream", False):
                self._streams.add(wire)
        return failure

    def _not_ready(self) -> Failure | None:
        """Why nothing can be asked now; a plugin may ask before its greeting, and while it is leaving."""
        if self.state in OVER or (self.role == Role.HOST and self.state == CLOSING):
            return Failure(Code.UNAVAILABLE, "the conversation is being closed")
        if self.state == START or self.role == Role.HOST:
            raise Misuse(f"nexo {self.role}: nothing can be asked in {self.state!r}")
        return None

    def _invoke(self, id: int, op: InvokeTool) -> Failure | None:
        """A `tool.invoke`, spliced from what never changes and what was encoded before."""
        prefix = self._tools.get(op.tool)
        if prefix is None:
            if self.role == Role.PLUGIN:
                raise Misuse("nexo cannot ask InvokeTool from plugin")
            return errors.tool_not_offered(op.tool, self._tools)
        wire, agent, encoded = id + INITIALIZE_ID, op.context.get("agent_id"), self.codec.encode
        try:
            agent_id = b"null" if agent is None else encoded(agent)
            args = encoded(op.input)
            body = b'{"jsonrpc":"2.0","id":%d,%b%b,"agent_id":%b}}' % (wire, prefix, args, agent_id)
            if type(op.input) in (dict, list):  # what is raw was held to the limits when it was made
                gate(body)
        except (Unencodable, Malformed) as error:
            return Failure(Code.INVALID_INPUT, f"the input cannot be sent as JSON: {error}")
        if len(body) > self._most:
            return self._too_large(len(body))
        self._out.append(encode(body))
        self._open[wire] = TOOL
        self._last = wire
        return None

    def notify(self, op: PluginOp | HostOp) -> Failure | None:
        """A plugin may tell until it is gone: its output outlives its input."""
        method = _SAYS[self.role].get(type(op))
        if method is None or method.op not in messages.NOTIFICATIONS:
            raise Misuse(f"nexo cannot tell {type(op).__name__} from {self.role}")
        refusal = None if self.state == READY or self.role == Role.PLUGIN else self._not_ready()
        return refusal or self._tell(method.name, messages.params(method, op, self.plugin_id))

    def cancel(self, id: CallId, reason: str) -> None:
        """nexo has no word for it: the peer works on, and its answer is late."""
        if isinstance(id, int):
            self._open.pop(id + self._offset, None)
            self._streams.discard(id + self._offset)

    def finish(self, id: CallId, value: Any = None, failure: Failure | None = None) -> None:
        asked = self._asked.pop(id, None)
        if asked is None:
            raise Misuse(f"{id!r} is not a request that waits for an answer")
        if failure is None:
            failure = self._result(asked, value)
        if failure is not None:
            self._error(asked.id, *errors.to_wire(asked.op, failure))
        if asked.op is Shutdown and self._may("farewell"):
            self._step("farewell")

    def _result(self, asked: Asked, value: Any) -> Failure | None:
        shaped = replies.shaped(asked, value)
        if isinstance(shaped, Failure):
            return shaped
        failure = self._reply(asked.id, shaped)
        return failure and Failure(Code.INTERNAL, f"the result cannot be sent: {failure.message}")

    def progress(self, id: CallId, item: Any) -> Failure | None:
        """A delta of a streamed answer; nexo carries no other progress."""
        asked = self._asked.get(id)
        if asked is None or not asked.stream:
            return None
        asked.said |= bool(item)
        name = messages.COMPLETE_DELTA if self.role == Role.HOST else messages.CHAT_DELTA
        return self._tell(name, {"request_id": asked.id, "chunk": item})

    def close(self, reason: str) -> None:
        """A host asks its child to leave, once and only when it is ready; a plugin has nothing to say."""
        asks = self.role == Role.HOST and self.state == READY
        self._step("close")
        if asks:
            self._last = self._farewell = self._last + 1
            self._ask(self._farewell, SHUTDOWN, {"reason": "host requested"})
