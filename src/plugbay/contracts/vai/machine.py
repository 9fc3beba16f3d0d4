"""The vai conversation: two hellos, then requests with events and responses, then a shutdown without an answer.

Owns the classification of frames and the states, for both roles. `messages.py` has the
bodies of requests and responses, and the check of a plugin's identity.

Only a host asks, so it alone judges: what it cannot place ends the conversation, unless it plainly belongs to one
request, which then has its answer. A plugin refuses what it cannot serve with `ok=false` where it can read an id, and
never repeats what it was sent: a host's frames hold secrets.
"""

from __future__ import annotations

from plugbay.contracts.base import Machine, Misuse, Role
from plugbay.contracts.rpc import CLOSED, CLOSING, FAILED, GREETING, HEAD_BYTES, OVER, READY, START, noise
from plugbay.contracts.vai import errors, messages
from plugbay.contracts.vai.errors import INVALID_FRAME
from plugbay.contracts.vai.messages import MAX_BODY
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import (
    CallArrived,
    CallFinished,
    CallProgress,
    CancelArrived,
    Closed,
    Noise,
    Notified,
    Ready,
)
from plugbay.model.operations import Shutdown
from plugbay.model.text import printable
from plugbay.wire.content_length import OPEN_HEADERS, ContentLengthDecoder, FrameFault, encode
from plugbay.wire.json_gate import Malformed, gate
from plugbay.wire.strict_json import ABSENT, Unencodable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

    from plugbay.model.events import CallId, Event
    from plugbay.model.operations import HostOp, PluginOp
    from plugbay.wire.strict_json import Codec

_BY_OP = {method.op: method for method in messages.METHODS}


def _transitions() -> dict[tuple[str, str, str], str]:
    talking = (GREETING, READY, CLOSING)
    both = {
        (START, "greet"): GREETING,
        (GREETING, "hello"): READY,
        (CLOSING, "eof"): CLOSED,
        **{(state, "close"): CLOSED for state in (START, CLOSED, FAILED)},
        **{(state, "violation"): FAILED for state in talking},
    }
    host = {(state, "close"): CLOSING for state in talking}
    plugin = {
        (READY, "shutdown"): CLOSING,
        **{(state, "close"): CLOSED for state in talking},
        **{(state, "eof"): CLOSED for state in (GREETING, READY)},
    }
    """A host may go away whenever it likes; a plugin that does so before it was asked to has crashed."""
    return {
        **{(Role.HOST, *key): state for key, state in {**both, **host}.items()},
        **{(Role.PLUGIN, *key): state for key, state in {**both, **plugin}.items()},
    }


class _Open:
    """A request without its response: the kind of its export, whose number it has, and whether it was cancelled."""

    __slots__ = ("cancelled", "kind", "number")

    def __init__(self, kind: str, number: CallId) -> None:
        self.kind = kind
        self.number = number
        self.cancelled = False


class VaiMachine(Machine):
    """One vai conversation. HOST is bound to the package that is installed; PLUGIN has an identity."""

    __slots__ = ("_decode", "_frames", "_open", "_who", "identity", "package_id", "version")

    CONTRACT: ClassVar[str] = "vai"
    FIRST_STATE: ClassVar[str] = START
    TRANSITIONS: ClassVar[dict[tuple[str, str, str], str]] = _transitions()
    SUPPORTS: ClassVar[frozenset[type]] = frozenset(_BY_OP)
    GOOD_BYE_IS_ANSWERED: ClassVar[bool] = False

    def __init__(
        self,
        role: str,
        codec: Codec,
        *,
        package_id: str = "",
        version: str = "",
        host_name: str = "plugbay",
        host_version: str = "",
        identity: messages.Identity | None = None,
    ) -> None:
        super().__init__(role, codec)
        self.package_id = package_id
        self.version = version
        self.identity = identity or messages.Identity("", "")
        self._open: dict[str, _Open] = {}
        """Requests that wait for a response, by their id: ours at a host, our host's at a plugin."""
        self._frames = ContentLengthDecoder(OPEN_HEADERS)
        if role == Role.HOST:
            self._who = {"name": host_name, "version": host_version}
            self._decode = codec.decoder(messages.HOST_READS, messages.HOST_READS_RAW)
        else:
            self._who = {"package_id": self.identity.package_id, "version": self.identity.version}
            self._decode = codec.decoder(messages.PLUGIN_READS)

    # Frames.

    @property
    def pending(self) -> int:
        return self._frames.pending

    def receive(self, data: bytes) -> list[Event]:
        events: list[Event] = []
        if self.state in OVER:
            return events
        for frame in self._frames.feed(data):
            events += self._unframed(frame) if isinstance(frame, FrameFault) else self._read(frame)
            if self.state in OVER:
                break
        return events

    def receive_eof(self) -> list[Event]:
        """The end of a host's output is its shutdown; the end of a plugin's, before it was asked to leave, a crash."""
        if self.state == START or self.state in OVER:
            return []
        cut = self._frames.eof()
        events = [] if cut is None else self._skip(cut.head, cut.reason)
        if self._may("eof"):
            self._step("eof")
            return [*events, Closed()]
        when = " before its hello" if self.state == GREETING else ""
        return events + self._fault(Failure(Code.CRASHED, f"the plugin closed its output{when}", origin=Origin.PLUGIN))

    def _unframed(self, fault: FrameFault) -> list[Event]:
        """Where the next frame begins can no longer be known."""
        code = errors.FRAME_TOO_LARGE if fault.code == Code.FRAME_TOO_LARGE else INVALID_FRAME
        return self._break(fault.code, code, f"it broke the framing: {fault.reason}", fault.head)

    def _read(self, frame: bytes) -> list[Event]:
        try:
            message = self._decode(frame)
        except Malformed as error:
            return self._unreadable(frame, str(error))
        version, type = message.protocol, message.type
        if version is ABSENT or not isinstance(type, str):
            return self._bad(message.id, INVALID_FRAME, "a frame without its protocol or type", frame)
        if version != messages.PROTOCOL:
            what = f"a frame of {version!r:.100}; {messages.PROTOCOL} is spoken here"
            return self._bad(message.id, errors.UNSUPPORTED_VERSION, what, frame)
        if type == messages.HELLO:
            return self._greeted(message, frame)
        if self.state == GREETING:
            return self._bad(message.id, INVALID_FRAME, f"a {type!r:.100} before the hello", frame)
        return self._heard(type, message, frame) if self.role == Role.HOST else self._was_told(type, message, frame)

    def _unreadable(self, frame: bytes, why: str) -> list[Event]:
        """A frame that is not JSON; what it quotes stands behind a colon, and stays here."""
        id = messages.glimpsed_id(frame[:HEAD_BYTES])
        what = f"a frame that cannot be read: {why.partition(':')[0]}"
        if self.role == Role.HOST and self.state != GREETING and id is not None:
            return self._settle(id, None, errors.invalid(why), frame)
        return self._bad(id, INVALID_FRAME, what, frame)

    def _bad(self, id: Any, code: str, why: str, frame: bytes) -> list[Event]:
        """A plugin can refuse what has an id; everything else is the end of the conversation."""
        wire = messages.read_id(id)
        if self.role == Role.PLUGIN and wire is not None:
            return self._refuse(wire, code, why)
        ours = Code.HANDSHAKE_FAILED if self.state == GREETING else Code.MALFORMED_RESPONSE
        version = code == errors.UNSUPPORTED_VERSION
        return self._break(Code.PROTOCOL_VERSION_MISMATCH if version else ours, code, f"it sent {why}", frame)

    def _break(self, ours: str, code: str, why: str, frame: bytes) -> list[Event]:
        if self.role == Role.PLUGIN:
            return self._fault(Failure(ours, why, detail={"plugin_code": code}))
        detail = {"plugin_code": code, "line": printable(frame[:HEAD_BYTES])}
        return self._fault(Failure(ours, f"the plugin broke the contract: {why}", origin=Origin.PLUGIN, detail=detail))

    def _skip(self, frame: bytes, why: str) -> list[Event]:
        return noise(frame, why) if self.role == Role.HOST else [Noise(b"", why)]

    # The hellos.

    def _greeted(self, message: Any, frame: bytes) -> list[Event]:
        if self.state == CLOSING:
            return self._skip(frame, "a hello during the shutdown")
        peer = Role.PLUGIN if self.role == Role.HOST else Role.HOST
        if self.state != GREETING:
            return self._bad(None, INVALID_FRAME, "a second hello", frame)
        if message.role != peer:
            return self._bad(None, INVALID_FRAME, f"a hello whose role is not {peer!r}", frame)
        if self.role == Role.PLUGIN:
            self._say_hello()
            self._step("hello")
            return [Ready(messages.read_greeting(message.host))]
        verdict = messages.check_greeting(message.plugin, self.package_id, self.version)
        if isinstance(verdict, Failure):
            return self._fault(verdict)
        self._step("hello")
        return [Ready(verdict)]

    def greet(self) -> None:
        """A host opens; a plugin says its hello once it was greeted."""
        self._step("greet")
        if self.role == Role.HOST:
            self._say_hello()

    def _say_hello(self) -> None:
        failure = self._send(messages.hello(self.role, self.codec.encode(self._who)))
        assert failure is None, failure

    # HOST: what a plugin says about our requests.

    def _heard(self, type: str, message: Any, frame: bytes) -> list[Event]:
        id = message.id if type == messages.RESPONSE else message.request_id
        if type not in (messages.RESPONSE, messages.EVENT):
            return self._bad(None, INVALID_FRAME, f"a {type!r:.100}, which no plugin sends", frame)
        if not isinstance(id, str):
            return self._bad(None, INVALID_FRAME, f"a {type} without the id of a request", frame)
        if type == messages.EVENT:
            return self._progressed(id, message, frame)
        asked = self._open.get(id)
        if asked is None:
            return self._settle(id, None, None, frame)
        value, failure = messages.read_response(asked.kind, message.ok, message.body, message.error, self.codec)
        return self._settle(id, value, failure, frame)

    def _settle(self, id: str, value: Any, failure: Failure | None, frame: bytes) -> list[Event]:
        asked = self._open.pop(id, None)
        if asked is None:
            return noise(frame, f"a response to {id!r:.100}, which is not expected")
        if failure is not None and failure.code == Code.MALFORMED_RESPONSE:
            failure = failure.with_detail(line=printable(frame[:HEAD_BYTES]))
        return [CallFinished(asked.number, value, failure)]

    def _progressed(self, id: str, message: Any, frame: bytes) -> list[Event]:
        asked = self._open.get(id)
        if asked is None:
            return noise(frame, f"an event of {id!r:.100}, which is not expected")
        event = None if message.event is ABSENT else self.codec.load(message.event)
        if not (isinstance(event, dict) and isinstance(event.get("type"), str)):
            return noise(frame, f"an event of {id} that is not an object with a type")
        return [CallProgress(asked.number, message.event)]

    # PLUGIN: what its host asks and tells.

    def _was_told(self, type: str, message: Any, frame: bytes) -> list[Event]:
        if type == messages.REQUEST:
            id = messages.read_id(message.id)
            what = "a request without an id that can be answered"
            return self._bad(None, INVALID_FRAME, what, frame) if id is None else self._was_asked(id, message)
        if type == messages.CANCEL:
            return self._was_cancelled(message.request_id, frame)
        if type == messages.SHUTDOWN:
            return self._was_dismissed(frame)
        return self._bad(message.id, INVALID_FRAME, f"a {type!r:.100}, which no host sends", frame)

    def _was_asked(self, id: str, message: Any) -> list[Event]:
        if self.state != READY:
            return self._refuse(id, INVALID_FRAME, "a request after the shutdown")
        if id in self._open:
            return self._refuse(id, errors.DUPLICATE_ID, f"{id} is already in progress")
        op = messages.read_request(message.op, message.body, self.identity.exports)
        if isinstance(op, tuple):
            return self._refuse(id, *op)
        self._open[id] = _Open(_BY_OP[type(op)].kind, id)
        return [CallArrived(id, op)]

    def _was_cancelled(self, id: Any, frame: bytes) -> list[Event]:
        """A cancel may cross the response it is about, and may come twice."""
        if not isinstance(id, str):
            return self._bad(None, INVALID_FRAME, "a cancel without the id of a request", frame)
        asked = self._open.get(id)
        if asked is None or asked.cancelled:
            return []
        asked.cancelled = True
        return [CancelArrived(id)]

    def _was_dismissed(self, frame: bytes) -> list[Event]:
        if self.state != READY:
            return self._skip(frame, "a second shutdown")
        self._step("shutdown")
        return [Notified(Shutdown())]

    # HOST: what we ask.

    def call(self, id: CallId, op: PluginOp | HostOp) -> Failure | None:
        method = _BY_OP.get(type(op))
        if self.role != Role.HOST or method is None or not isinstance(id, int):
            raise Misuse(f"vai cannot ask {type(op).__name__} under {id!r} from {self.role}")
        if self.state in (START, GREETING):
            raise Misuse(f"vai host: nothing can be asked in {self.state!r}")
        if self.state != READY:
            return Failure(Code.UNAVAILABLE, "the conversation is being closed")
        body = messages.write_request(method, op, self.codec)
        if isinstance(body, Failure):
            return body
        wire = messages.request_id(id)
        failure = self._send(messages.request(wire, method.name, body))
        if failure is None:
            self._open[wire] = _Open(method.kind, id)
        return failure

    def notify(self, op: PluginOp | HostOp) -> Failure | None:
        raise Misuse("vai has no notifications")

    def cancel(self, id: CallId, reason: str) -> None:
        """Say so once; the request stays open, because work that was done meanwhile still counts."""
        wire = messages.request_id(id) if isinstance(id, int) else ""
        asked = self._open.get(wire)
        if asked is None or asked.cancelled or self.state != READY:
            return
        asked.cancelled = True
        self._send(messages.cancel(self.codec.encode(wire), reason))

    def close(self, reason: str) -> None:
        """A host says that it is over, once and only to a plugin that has said hello; a plugin has nothing to say."""
        dismisses = self.role == Role.HOST and self.state == READY
        self._step("close")
        if dismisses:
            self._send(messages.SHUTDOWN_FRAME)

    # PLUGIN: what we answer. That is possible until we are gone: our output outlives our input.

    def finish(self, id: CallId, value: Any = None, failure: Failure | None = None) -> None:
        asked = self._open.pop(str(id), None)
        if self.role != Role.PLUGIN or asked is None:
            raise Misuse(f"{id!r} is not a request that waits for an answer")
        if failure is not None:
            self._end(str(id), failure)
        elif (problem := self._respond(str(id), messages.success(asked.kind, value))) is not None:
            self._end(str(id), _unsent(problem))

    def _end(self, id: str, failure: Failure) -> None:
        """Why there is no result. What cannot be sent of it is left out."""
        code = errors.refusal_of(failure)
        if code is not None:
            self._refuse(id, code, failure.message, failure.retry_after_ms)
        elif self._respond(id, messages.end(failure)) is not None:
            self._respond(id, messages.end(failure, leave=False))

    def progress(self, id: CallId, item: Any) -> Failure | None:
        if str(id) not in self._open:
            return Failure(Code.UNAVAILABLE, "its response was already sent")
        if not (isinstance(item, dict) and isinstance(item.get("type"), str)):
            return Failure(Code.INVALID_INPUT, "an event must be an object with a type")
        event = self._json(item)
        if isinstance(event, Failure):
            return event
        return self._send(messages.event(self.codec.encode(str(id)), event))

    def _respond(self, id: str, body: dict[str, Any]) -> Failure | None:
        part = self._json(body)
        return part if isinstance(part, Failure) else self._send(messages.response(self.codec.encode(id), part))

    def _refuse(self, id: str, code: str, why: str, retry_after_ms: int | None = None) -> list[Event]:
        error = self.codec.encode(errors.error(code, why, retry_after_ms))
        self._send(messages.refusal(self.codec.encode(id), error))
        return []

    # Writing: nothing that the peer would not read.

    def _json(self, value: Any) -> bytes | Failure:
        try:
            return self.codec.encode(value)
        except Unencodable as error:
            return Failure(Code.INVALID_INPUT, f"it cannot be sent as JSON: {error}")

    def _send(self, body: bytes) -> Failure | None:
        """One frame, or why the peer would not read it."""
        try:
            gate(body)
        except Malformed as error:
            return Failure(Code.INVALID_INPUT, f"it cannot be sent as JSON: {error}")
        if len(body) > MAX_BODY:
            what = f"the frame has {len(body):,} bytes; the peer reads at most {MAX_BODY:,}"
            return Failure(Code.FRAME_TOO_LARGE, what, detail={"size": len(body), "limit": MAX_BODY})
        self._out.append(encode(body, MAX_BODY))
        return None


def _unsent(problem: Failure) -> Failure:
    """Why a result was not sent: the fault of its maker."""
    code = problem.code if problem.code == Code.FRAME_TOO_LARGE else Code.INTERNAL
    return Failure(code, f"the result cannot be sent: {problem.message}", origin=Origin.PLUGIN)
