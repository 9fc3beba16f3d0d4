"""The half of the conversation that a HOST plays once it knows its server: it calls, and answers what is asked back.

Owns what may be asked of a server, and what its questions look like above: the same in both eras. Refuses to know how a
server works; that is `server.py`.
"""

from __future__ import annotations

from plugbay.contracts.base import Misuse
from plugbay.contracts.mcp import errors, logs, messages, questions, replies, requests
from plugbay.contracts.mcp.calling import CALL, HELLO, LISTEN, PAGE, Sent
from plugbay.contracts.mcp.messages import HANDSHAKE, LIST_CHANGED, MODERN, as_object
from plugbay.contracts.mcp.replies import InputRequired
from plugbay.contracts.mcp.welcoming import WelcomingMachine
from plugbay.contracts.rpc import IncomingRequest, error_text, malformed, noise
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import CallFinished, Notified
from plugbay.model.operations import AskUser, ChangeResource, CheckHealth, InvokeTool, SetLogLevel, WatchResource
from plugbay.wire.lines import HEAD_BYTES
from plugbay.wire.strict_json import ABSENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from plugbay.contracts.rpc import Id
    from plugbay.model.events import CallId, Event
    from plugbay.wire.strict_json import Codec

MAX_ROUNDS = 16
"""How often a call may be answered with questions; a server that always has another one must not go on for ever."""

MAX_QUESTIONS = 16
"""Questions in one answer; each may mean a person."""

ANSWER_ROOM = 1 << 20
"""Bytes of a message that stay free for what is answered, when a call is made again with the server's state."""

ENDED = "the server ended the subscription to its changes"


class Input(IncomingRequest):
    """A question inside an answer of the server's: which call it belongs to, and under which key."""

    __slots__ = ("key", "sent")

    def __init__(self, op: Any, sent: Sent, key: str) -> None:
        super().__init__(None, op)
        self.sent = sent
        self.key = key


class ClientMachine(WelcomingMachine):
    """What a host asks and answers."""

    __slots__ = ("_asking",)

    def __init__(
        self, role: str, codec: Codec, era: str, client: Mapping[str, Any] | None, offers: frozenset[str]
    ) -> None:
        super().__init__(role, codec, era, client, offers)
        self._asking: dict[CallId, Sent] = {}
        """Calls whose server wants to know something first."""

    # Calls.

    def _call_server(self, id: CallId, op: Any) -> Failure | None:
        if type(op) is InvokeTool and type(op.input) is self.codec.raw_type and requests.CONTEXT not in op.context:
            prefix, arguments = self._tools.get(op.tool), self.codec.encode(op.input)
            if prefix is not None and arguments.startswith(b"{") and arguments.find(b"\n") < 0:
                return self._call_tool(id, op, prefix + arguments)
        if type(op) not in requests.SUPPORTS:
            raise Misuse(f"mcp cannot ask {type(op).__name__} from {self.role}")
        refusal = self._not_offered(op)
        if refusal is not None:
            return refusal
        if self.era == MODERN and type(op) is WatchResource:
            return self._watch(id, op)
        written = requests.written(op, self.codec)
        if isinstance(written, Failure):
            return written
        method, members = written
        if self.era == MODERN and type(op) is SetLogLevel:
            self._level = op.level  # said with every request from now on, beginning with a harmless one
            self._introduce()
            method, members = messages.DISCOVER, b""
        extra = self._said_beside(op)
        if isinstance(extra, Failure):
            return extra
        return self._put(Sent(CALL, method, members, call=id, op=op, extra=extra))

    def _call_tool(self, id: CallId, op: InvokeTool, members: bytes) -> Failure | None:
        """Most calls: arguments that were held to every limit when they were made JSON, and nothing beside them."""
        wire, ours = self._last_id + 1, self._about_us
        head = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{' % wire
        meta = b',"_meta":{%b%b"progressToken":%d}}}' % (ours, b"," if ours else b"", wire)
        body = b"".join((head, members, meta))
        if len(body) > self._max_frame:
            return self._frame_too_large(len(body))
        self._out.append(self._frame(body))
        self._remember(wire, Sent(CALL, messages.CALL_TOOL, members, call=id, op=op))
        self._wires[id] = wire
        return None

    @property
    def has_probe(self) -> bool:
        return self.era == HANDSHAKE

    def _said_beside(self, op: Any) -> dict[str, Any] | Failure | None:
        """What the caller adds to `_meta`; of the protocol's own keys he has none to give."""
        meta = getattr(op, "context", {}).get(requests.CONTEXT)
        if not isinstance(meta, dict) or not meta:
            return None
        extra = messages.own_meta(meta)
        unsayable = self._json(extra)
        return unsayable if isinstance(unsayable, Failure) else extra

    def _not_offered(self, op: Any) -> Failure | None:
        """Why the server cannot be asked this: it never said that it can."""
        if type(op) is InvokeTool:
            return None if op.tool in self._tools else self._no_such_tool(op.tool)
        if type(op) is CheckHealth:
            return None if self.has_probe else _undeclared("ping, which this revision of MCP does not have")
        if type(op) is SetLogLevel and op.level not in messages.LEVELS:
            return Failure(Code.INVALID_INPUT, f"the level must be one of {', '.join(messages.LEVELS)}")
        needed = requests.CAPABILITIES[type(op)]
        settings = self.capabilities.get(needed)
        if not isinstance(settings, dict):
            return _undeclared(needed)
        unwatchable = type(op) is WatchResource and settings.get("subscribe") is not True
        return _undeclared("subscriptions to resources") if unwatchable else None

    def _no_such_tool(self, tool: str) -> Failure:
        return Failure(Code.TOOL_NOT_EXPOSED, f"the server does not offer {tool!r}")

    def cancel(self, id: CallId, reason: str) -> None:
        if self._asking.pop(id, None) is not None:
            self._incoming = {number: asked for number, asked in self._incoming.items() if not _is_of(asked, id)}
        self._unwatch(id)
        super().cancel(id, reason)

    def _concluded(self, sent: Sent, message: Any, frame: bytes) -> list[Event]:
        if sent.kind == HELLO:
            return self._greeted_back(message) if self._may("welcome") else []  # we no longer want to know
        if sent.kind == PAGE:
            return self._page(message, len(frame))
        if sent.kind == LISTEN:
            return self._unheard(sent, _why_unheard(message))
        value, failure = replies.outcome(sent.op, sent.method, message, frame, self.codec)
        if isinstance(value, InputRequired):
            return self._asks(sent, value, frame)
        return self._over(sent, value, failure)

    def _lost(self, sent: Sent, failure: Failure) -> list[Event]:
        if sent.kind == HELLO:
            return self._fault(failure) if self._may("welcome") else []
        if sent.kind == PAGE:
            return self._page_failed(failure)
        return self._unheard(sent, failure.message) if sent.kind == LISTEN else self._over(sent, None, failure)

    def _over(self, sent: Sent, value: Any, failure: Failure | None) -> list[Event]:
        assert sent.call is not None
        return [CallFinished(sent.call, value, failure)]

    # Questions inside an answer: the modern era.

    def _asks(self, sent: Sent, required: InputRequired, frame: bytes) -> list[Event]:
        """The server wants to know something before it goes on: it is asked for above, then the call is made again."""
        assert sent.call is not None
        sent.rounds += 1
        asked = self._questions(sent, required, frame)
        if isinstance(asked, Failure):
            return self._over(sent, None, asked)
        sent.state = required.state
        sent.answers = {}
        sent.waiting = len(asked)
        if not asked:
            failure = self._put(sent, self._answers_of(sent))
            return [] if failure is None else self._over(sent, None, failure)
        self._asking[sent.call] = sent
        return [event for question in asked for event in self._accept_request(question, sent.call)]

    def _questions(self, sent: Sent, required: InputRequired, frame: bytes) -> list[IncomingRequest] | Failure:
        if sent.refusal is not None:
            return sent.refusal
        if sent.method not in messages.ANSWERS_LATER or self.era == HANDSHAKE:
            return malformed(f"the answer to {sent.method} wants input, which it must not", frame)
        if sent.rounds > MAX_ROUNDS or len(required.questions) > MAX_QUESTIONS:
            what = f"the server asked more than {MAX_QUESTIONS} questions at once or came back {MAX_ROUNDS} times"
            return Failure(Code.PLUGIN_ERROR, what, origin=Origin.PLUGIN)
        state = 0 if required.state is None else len(self.codec.encode(required.state))
        if len(sent.members) + state > messages.MAX_LINE - ANSWER_ROOM:
            what = f"the server's state has {state:,} bytes, so that it could not be sent back with the call"
            return Failure(Code.FRAME_TOO_LARGE, what, origin=Origin.PLUGIN)
        asked: list[IncomingRequest] = []
        for key, entry in required.questions.items():
            said = as_object(entry)
            method = messages.as_text(said.get("method"))
            op = questions.read(method, as_object(said.get("params")))
            if op is None or isinstance(op, str):
                return malformed(f"the answer to {sent.method} wants input that cannot be asked for: {op}", frame)
            if isinstance(op, AskUser):
                op.during = sent.op
            if questions.CAPABILITIES[method] not in self.offers:
                what = f"the server wants {questions.CAPABILITIES[method]}, which is not granted"
                return Failure(Code.CAPABILITY_NOT_ALLOWED, what, origin=Origin.POLICY)
            asked.append(Input(op, sent, key))
        return asked

    def _answers_of(self, sent: Sent) -> bytes:
        """What is added to a call that is made again."""
        answers = b',"inputResponses":%b' % self.codec.encode(sent.answers) if sent.rounds else b""
        state = b"" if sent.state is None else b',"requestState":%b' % self.codec.encode(sent.state)
        return answers + state

    def _input(self, asked: Input, value: Any, failure: Failure | None) -> None:
        """One answer is there; with the last one the call is made again."""
        sent = asked.sent
        if sent.call is None or self._asking.get(sent.call) is not sent:
            self.dropped += 1
            return
        said: Any = questions.result(asked.op, value) if failure is None else failure
        unsayable = None if isinstance(said, Failure) else self._json(said)
        if isinstance(unsayable, Failure):
            said = unsayable
        if isinstance(said, Failure):
            refusal = questions.refusal(asked.op)
            sent.refusal = said if refusal is None else sent.refusal
            said = refusal
        if said is not None:
            sent.answers[asked.key] = said
        sent.waiting -= 1
        if sent.waiting:
            return
        del self._asking[sent.call]
        unsent = self._put(sent, self._answers_of(sent))
        if unsent is not None:  # the server hears that nobody answered, and may not ask again
            sent.refusal, sent.answers = unsent, {}
            self._put(sent, self._answers_of(sent))

    # What a server asks and tells.

    def _unreadable(self, head: bytes, why: str) -> None:
        """What a server says that cannot be read is nobody's business; it may be no message at all."""

    def _asked_by_server(self, id: Id, name: str, params: dict[str, Any], line: bytes) -> list[Event]:
        if self.era == MODERN:
            return noise(line, "a request of the server's; this revision of MCP has none")
        if name == messages.PING:
            self._write_result(id, b"{}")
            return []
        op = questions.read(name, params)
        capability = questions.CAPABILITIES.get(name)
        if op is None or capability not in self.offers:
            self._write_error(id, errors.METHOD_NOT_FOUND, f"method not found: {name}")
            return [] if capability is None else noise(line, f"{name} needs {capability}, which is not granted")
        if isinstance(op, str):
            self._write_error(id, errors.INVALID_PARAMS, f"{name}: {op}")
            return []
        return self._accept_request(IncomingRequest(id, op))

    def _told_by_server(self, name: str, params: dict[str, Any], line: bytes) -> list[Event]:
        if name == messages.MESSAGE:
            log = logs.heard(params, self.codec.encode)
            return noise(line, log) if isinstance(log, str) else [Notified(log)]
        if not self._greeted:
            return noise(line, f"{name[:HEAD_BYTES]} before the greeting was answered")
        if name in LIST_CHANGED:
            return self._changed(LIST_CHANGED[name])
        if name == messages.UPDATED:
            uri = params.get("uri")
            return [Notified(ChangeResource(uri))] if isinstance(uri, str) else noise(line, "an update without a uri")
        if name == messages.ACKNOWLEDGED:
            return self._acknowledged(params)
        if name == messages.CANCELLED:
            return self._ended_by_server(params)
        return [] if name in messages.UNREMARKABLE else noise(line, f"unknown notification {name[:HEAD_BYTES]!r}")

    def _ended_by_server(self, params: dict[str, Any]) -> list[Event]:
        """It calls off a question of its own or, in the modern era, ends our subscription."""
        if self.era == HANDSHAKE:
            return self._withdrawn(params)
        id: Any = params.get("requestId")
        ended = self._outstanding.get(id) if type(id) is int else None
        if ended is None or ended.kind != LISTEN:
            return []
        del self._outstanding[id]
        return self._unheard(ended, ENDED)


def _is_of(asked: IncomingRequest, call: CallId) -> bool:
    """Whether a question came inside an answer to this call."""
    return isinstance(asked, Input) and asked.sent.call == call


def _why_unheard(message: Any) -> str:
    if message.error is ABSENT:
        return ENDED
    return f"the server does not tell of its changes: {error_text(as_object(message.error))}"


def _undeclared(what: str) -> Failure:
    return Failure(Code.CAPABILITY_NOT_DECLARED, f"the server does not announce {what}")
