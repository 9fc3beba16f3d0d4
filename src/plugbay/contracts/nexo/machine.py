"""`NexoMachine`: greeting, then requests and notifications in both directions at once, then shutdown. Both roles.

Owns lines, what each frame is and what is allowed in which state; `messages.py` has the shapes.
"""

from __future__ import annotations

from plugbay.contracts.base import Misuse, Role, Traffic
from plugbay.contracts.nexo import errors, messages
from plugbay.contracts.nexo.messages import INITIALIZE, SHUTDOWN, TOOL, StreamedRequest
from plugbay.contracts.rpc import (
    CLOSING,
    GREETING,
    GREETING_ID,
    OVER,
    READY,
    RpcMachine,
    answered_id,
    last_line,
    noise,
    plain_chunk,
    transitions,
)
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import CallFinished, CallProgress, Notified, Ready
from plugbay.model.operations import DeliverEvent, InvokeTool, Shutdown
from plugbay.wire.json_gate import Malformed, gate
from plugbay.wire.lines import HEAD_BYTES, LineDecoder, TooLong, encode
from plugbay.wire.strict_json import ABSENT, Unencodable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

    from plugbay.contracts.nexo.messages import Method
    from plugbay.contracts.rpc import Id, IncomingRequest
    from plugbay.model.events import CallId, Event
    from plugbay.model.operations import HostOp, PluginOp
    from plugbay.wire.strict_json import Codec

_SAYS = {
    Role.HOST: {method.op: method for method in messages.TO_CHILD},
    Role.PLUGIN: {method.op: method for method in messages.TO_HOST},
}
_HEARS = {
    Role.HOST: {method.name: method for method in messages.TO_HOST},
    Role.PLUGIN: {method.name: method for method in messages.TO_CHILD},
}
_IDS = (int, str, type(None))


class NexoMachine(RpcMachine):
    """One nexo conversation. HOST is bound to an id and the tools its manifest declares; PLUGIN has an identity."""

    __slots__ = tuple(
        "_decode _early _lines _max_read _serves _streams _tools declared identity nexo_version plugin_id".split()
    )

    CONTRACT: ClassVar[str] = "nexo"
    TRANSITIONS: ClassVar[dict[tuple[str, str, str], str]] = transitions(host_breaks=(GREETING, READY, CLOSING))
    SUPPORTS: ClassVar[frozenset[type]] = frozenset(_SAYS[Role.HOST])
    TRAFFIC: ClassVar[Traffic] = Traffic(capacity=64, drops="newest")
    GOOD_BYE: ClassVar[tuple[str, bytes]] = (SHUTDOWN, b'{"reason":"host requested"}')

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
        host = role == Role.HOST
        super().__init__(role, codec, messages.MAX_HOST_LINE - 1 if host else messages.MAX_CHILD_LINE)
        self._max_read = messages.MAX_CHILD_LINE if host else messages.MAX_HOST_LINE
        self._lines = LineDecoder(self._max_read)
        self._decode = codec.decoder(messages.READS, messages.READS_RAW)
        self.identity = identity or messages.Identity({}, "")
        self.plugin_id = plugin_id or self.identity.plugin_id
        self._serves = self.identity.serves - {DeliverEvent}
        self.declared = tools
        self.nexo_version = nexo_version
        self._streams: set[int] = set()
        self._tools: dict[str, bytes] = {}
        self._early: list[Event] = []
        """Publishes that came before the greeting was accepted."""

    # Lines.

    @property
    def pending(self) -> int:
        return self._lines.pending

    def _frame(self, body: bytes) -> bytes:
        return encode(body)

    def _take_unfinished(self) -> list[Event]:
        """The last line may lack its line feed; half a message answers nothing."""
        return self.receive(last_line(self._lines, self.codec) + b"\n")

    def receive(self, data: bytes) -> list[Event]:
        events: list[Event] = []
        if self.state in OVER:
            return events
        open = self._outstanding
        plain = plain_chunk(self._lines, data)
        for line in self._lines.feed(data):
            if isinstance(line, TooLong):
                why = f"dropped a line longer than the maximum of {self._max_read:,} bytes"
                events += self._skip_unreadable(answered_id(line.head), line.head, why, Code.FRAME_TOO_LARGE)
                continue
            try:
                message = self._decode(line, plain)
            except Malformed as error:
                if line:
                    events += self._skip_unreadable(answered_id(line[:HEAD_BYTES]), line, f"malformed line: {error}")
                if self.state in OVER:
                    break
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

    def _end_unreadable(self, wire: int, asked: Any, failure: Failure | None) -> CallFinished:
        self._streams.discard(wire)
        return super()._end_unreadable(wire, asked, failure)

    def _take(self, message: Any, line: bytes) -> list[Event]:
        """Classify a frame: with a method it is a request or a notification; else, with a number, an answer."""
        method, id = message.method, message.id
        if not (isinstance(method, str) and method):
            if type(id) is int:
                return self._dispatch_answer(id, message, line)
            why = "neither a request, a notification nor an answer"
            return noise(line, why if message.error is ABSENT else "an error for an unknown call")
        if id is not ABSENT and type(id) not in _IDS:
            return noise(line, "a request whose id is neither a number, a string nor null")
        params = None if message.params is ABSENT else self.codec.load(message.params)
        if self.role == Role.PLUGIN and method in (INITIALIZE, SHUTDOWN):
            return self._answer_greeting(id, params) if method == INITIALIZE else self._take_shutdown(id, params)
        return self._take_notification(method, params, line) if id is ABSENT else self._take_request(id, method, params)

    # Requests and notifications of the peer.

    def _take_request(self, id: Id, name: str, params: Any) -> list[Event]:
        if not self._greeted:
            self._write_error(id, errors.INTERNAL_ERROR, f"{name} is not yet wired: initialize was not accepted yet")
            return []
        method = _HEARS[self.role].get(name)
        if method is None or (self.role == Role.PLUGIN and method.op not in self._serves):
            self._write_error(id, errors.METHOD_NOT_FOUND, f"method not found: {name}")
            return []
        op = messages.read_request(method, params, self.plugin_id)
        if isinstance(op, str):
            self._write_error(id, errors.INVALID_PARAMS, f"{name}: {op}")
            return []
        return self._accept_request(StreamedRequest(id, op))

    def _take_notification(self, name: str, params: Any, line: bytes) -> list[Event]:
        if name == (messages.CHAT_DELTA if self.role == Role.HOST else messages.COMPLETE_DELTA):
            return self._take_progress(params, line)
        method = _HEARS[self.role].get(name)
        if method is None or method.op not in messages.NOTIFICATIONS:
            return noise(line, f"unknown notification {name[:HEAD_BYTES]!r}")
        op = messages.read_request(method, params, self.plugin_id)
        if isinstance(op, str):
            return noise(line, f"{name}: {op}")
        if self._greeted:
            return [Notified(op)]
        if len(self._early) >= messages.MAX_EARLY_PUBLISHES:
            return noise(line, f"more than {messages.MAX_EARLY_PUBLISHES} events before initialize was answered")
        self._early.append(Notified(op))
        return []

    def _take_progress(self, params: Any, line: bytes) -> list[Event]:
        wanted, what = (dict, "an object") if self.role == Role.HOST else (str, "a string")
        id = params.get("request_id") if isinstance(params, dict) else None
        if type(id) is not int or not isinstance(params.get("chunk"), wanted):
            return noise(line, f"a delta needs request_id (a number) and chunk ({what})")
        if id in self._streams or self._is_late(id):
            return [CallProgress(id - self._offset, params["chunk"])]
        return noise(line, "a delta for a call that did not request deltas")

    def _answer_greeting(self, id: Any, params: Any) -> list[Event]:
        """PLUGIN: answer the greeting, however often the host sends it."""
        if id is not ABSENT:
            failure = self._write_result(id, self._json(messages.build_greeting_result(self.identity)))
            if failure is not None:
                self._write_error(id, errors.INTERNAL_ERROR, f"the manifest cannot be sent: {failure.message}")
        if not self._may("hello"):
            return []
        self._step("hello")
        version = params.get("nexo_version") if isinstance(params, dict) else None
        return [Ready({"nexo_version": version if isinstance(version, str) else ""})]

    def _take_shutdown(self, id: Any, params: Any) -> list[Event]:
        """PLUGIN: report the shutdown; the code that exits sends the answer."""
        self._step("shutdown")
        op = messages.read_shutdown(params)
        return [Notified(op)] if id is ABSENT else self._accept_request(StreamedRequest(id, op))

    # Answers of the peer.

    def _dispatch_answer(self, id: int, message: Any, frame: bytes) -> list[Event]:
        self._streams.discard(id)
        return super()._dispatch_answer(id, message, frame)

    def _read_answer(self, asked: Method, message: Any, frame: bytes) -> tuple[Any, Failure | None]:
        return messages.read_answer(asked, message, frame, self.codec.load)

    def _is_late(self, id: int) -> bool:
        """Whether we asked this once and no longer wait."""
        return 0 < id <= self._last_id and id not in self._outstanding

    def _check_greeting(self, message: Any, frame: bytes) -> list[Event]:
        if message.error is not ABSENT:
            refusal = errors.from_wire(Shutdown, INITIALIZE, message.error)
            what = f"the plugin refused initialize: {refusal.message}"
            return self._fault(Failure(Code.HANDSHAKE_FAILED, what, origin=Origin.PLUGIN, detail=refusal.detail))
        result = None if message.result is ABSENT else self.codec.load(message.result)
        hello = messages.check_greeting(result, self.plugin_id, self.declared)
        if isinstance(hello, Failure):
            return self._fault(hello)
        for tool in hello["tools"]:
            self._tools[tool["name"]] = messages.tool_prefix(self.codec, self.plugin_id, tool["name"])
        self._step("hello")
        self._greeted = True
        early, self._early = self._early, []
        return [Ready(hello), *early]

    def _take_farewell(self, message: Any) -> list[Event]:
        """HOST: the child is ready to go, or says why it could not leave in good order."""
        if message.error is ABSENT:
            return super()._take_farewell(message)
        refusal = errors.from_wire(Shutdown, SHUTDOWN, message.error)
        what = f"shutdown handler failed: {refusal.message}"
        return self._fault(Failure(Code.PLUGIN_ERROR, what, origin=Origin.PLUGIN, detail=refusal.detail))

    # What we do.

    def _send_greeting(self) -> None:
        self._write_request(GREETING_ID, INITIALIZE, self._json({"nexo_version": self.nexo_version}))

    def call(self, id: CallId, op: PluginOp | HostOp) -> Failure | None:
        if type(op) is InvokeTool and self.state == READY and type(id) is int:
            return self._invoke(id + self._offset, op)
        return super().call(id, op)

    def _send_call(self, wire: int, op: Any) -> Failure | None:
        method = _SAYS[self.role].get(type(op))
        if method is None or type(op) is DeliverEvent:
            raise Misuse(f"nexo cannot ask {type(op).__name__} from {self.role}")
        failure = self._write_request(wire, method.name, self._json(messages.build_params(method, op, self.plugin_id)))
        if failure is None:
            self._remember(wire, method)
            if getattr(op, "stream", False):
                self._streams.add(wire)
        return failure

    def _invoke(self, wire: int, op: InvokeTool) -> Failure | None:
        """A `tool.invoke`, spliced from what never changes and what was encoded before."""
        prefix = self._tools.get(op.tool)
        if prefix is None:
            if self.role == Role.PLUGIN:
                raise Misuse("nexo cannot ask InvokeTool from plugin")
            return errors.tool_not_offered(op.tool, self._tools)
        agent, encoded = op.context.get("agent_id"), self.codec.encode
        try:
            agent_id = b"null" if agent is None else encoded(agent)
            raw = type(op.input) is self.codec.raw_type
            args = op.input if raw else encoded(op.input)
            body = b"".join((b'{"jsonrpc":"2.0","id":%d,' % wire, prefix, args, b',"agent_id":', agent_id, b"}}"))
            if not raw:  # what is raw was held to the limits when it was made
                gate(body)
        except (Unencodable, Malformed) as error:
            return Failure(Code.INVALID_INPUT, f"the input cannot be sent as JSON: {error}")
        if len(body) > self._max_frame:
            return self._frame_too_large(len(body))
        self._out.append(encode(body))
        self._outstanding[wire] = TOOL
        self._last_id = wire
        return None

    def notify(self, op: PluginOp | HostOp) -> Failure | None:
        """A plugin may tell until it is gone: its output outlives its input."""
        method = _SAYS[self.role].get(type(op))
        if method is None or method.op not in messages.NOTIFICATIONS:
            raise Misuse(f"nexo cannot tell {type(op).__name__} from {self.role}")
        refusal = None if self.state == READY or self.role == Role.PLUGIN else self._refuse_unless_ready()
        return refusal or self._write_notification(
            method.name, self._json(messages.build_params(method, op, self.plugin_id))
        )

    def cancel(self, id: CallId, reason: str) -> None:
        super().cancel(id, reason)
        if isinstance(id, int):
            self._streams.discard(id + self._offset)

    def _encode_result(self, asked: IncomingRequest, value: Any) -> bytes | Failure:
        assert isinstance(asked, StreamedRequest)
        shaped = messages.build_result(type(asked.op), value, asked.stream, asked.said)
        return shaped if isinstance(shaped, Failure) else self._json(shaped)

    def _explain_unsent(self, problem: Failure) -> Failure:
        return problem if problem.detail.get("not_implemented") else super()._explain_unsent(problem)

    def _encode_failure(self, asked: IncomingRequest, failure: Failure) -> tuple[int, str, dict[str, Any] | None]:
        return errors.to_wire(type(asked.op), failure)

    def progress(self, id: CallId, item: Any) -> Failure | None:
        """A delta of a streamed answer; nexo carries no other progress."""
        asked = self._incoming.get(id)
        if not isinstance(asked, StreamedRequest) or not asked.stream:
            return None
        asked.said |= bool(item)
        name = messages.COMPLETE_DELTA if self.role == Role.HOST else messages.CHAT_DELTA
        return self._write_notification(name, self._json({"request_id": asked.id, "chunk": item}))
