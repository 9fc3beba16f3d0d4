"""`RpcMachine`: a conversation in which both ends send requests and notifications over JSON-RPC 2.0, at once.

Owns the states, the ids of calls, the open requests in either direction, and the check that a frame is not longer than
the peer reads. The contract's machine adds methods, framing and the meaning of answers.

The two directions number their calls independently. Ours on the wire: a host's call n is n + 1, since its greeting is
1; a plugin's call n is n. A request of the peer is reported under a number of our own, because its ids may repeat; its
own id comes back in the answer.
"""

from __future__ import annotations

from plugbay.contracts.base import Machine, Misuse, Role
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import CallArrived, CallFinished, Closed, Noise
from plugbay.model.operations import Shutdown
from plugbay.model.text import printable
from plugbay.wire.json_gate import Malformed, gate, plain_text
from plugbay.wire.lines import SPLIT_BYTES
from plugbay.wire.strict_json import Unencodable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

    from plugbay.model.events import CallId, Event
    from plugbay.model.operations import HostOp, Operation, PluginOp
    from plugbay.wire.lines import LineDecoder
    from plugbay.wire.strict_json import Codec

    Id = int | float | str | None

START, GREETING, READY, CLOSING, CLOSED, FAILED = "start greeting ready closing closed failed".split()
OVER = (CLOSED, FAILED)

GREETING_ID = 1
"""The first id of all; everything else a host asks counts on from here."""

HEAD_BYTES = 200
"""How much of a frame is shown to the operator when it is refused."""

MAX_ERROR_TEXT = 65_536
"""Characters of an error's message; whatever has to be escaped in it, the frame stays far below every limit."""

_ANSWERS = (b'"result"', b'"error"')
_MEMBERS = (b'"method"', b'"params"', *_ANSWERS)


def transitions(host_breaks: tuple[str, ...], plugin_breaks: tuple[str, ...] = ()) -> dict[tuple[str, str, str], str]:
    """The table of both roles; the arguments are the states in which the peer of each can break the contract."""
    both = {
        (START, "greet"): GREETING,
        (GREETING, "hello"): READY,
        (CLOSING, "farewell"): CLOSED,
        (CLOSING, "eof"): CLOSED,
        **{(state, "close"): CLOSED for state in (START, CLOSED)},
    }
    host = {
        **_broken(host_breaks),
        **{(state, "close"): CLOSING for state in (GREETING, READY, CLOSING)},
    }
    plugin = {
        **{(state, "close"): CLOSED for state in (GREETING, READY, CLOSING)},
        **{(state, "shutdown"): CLOSING for state in (GREETING, READY, CLOSING)},
        **{(state, "eof"): CLOSED for state in (GREETING, READY)},
        **_broken(plugin_breaks),
    }
    """A host may go away whenever it likes; a plugin that does so before it was asked to has crashed."""
    return {
        **{(Role.HOST, *key): state for key, state in {**both, **host}.items()},
        **{(Role.PLUGIN, *key): state for key, state in {**both, **plugin}.items()},
    }


def _broken(states: tuple[str, ...]) -> dict[tuple[str, str], str]:
    over = {(FAILED, "close"): CLOSED} if states else {}
    return {**over, **{(state, "violation"): FAILED for state in states}}


def plain_chunk(lines: LineDecoder, data: bytes) -> bool:
    """Whether one look at a chunk saves one at each of its lines: they all lie in it, and it is `plain_text`."""
    return len(data) <= SPLIT_BYTES and not lines.pending and plain_text(data)


def last_line(lines: LineDecoder, codec: Codec) -> bytes:
    """The line in which the stream ended, for it need not have had its end; empty when there is none.

    Or when it is half a message: that answers nothing, and waiting calls end because the peer is gone.
    """
    line = lines.eof()
    if not isinstance(line, bytes):
        return b""
    try:
        codec.decode(line)
    except Malformed:
        return b""
    return line


def noise(frame: bytes, why: str) -> list[Event]:
    """A frame that is skipped, and why."""
    return [Noise(frame[:HEAD_BYTES], why)]


def malformed(what: str, frame: bytes, **more: Any) -> Failure:
    """An answer that cannot be used; the beginning of it is quoted."""
    return Failure(Code.MALFORMED_RESPONSE, what, detail={"line": printable(frame[:HEAD_BYTES]), **more})


def error_text(error: dict[str, Any]) -> str:
    """The message of a peer's error; where it has none, its number is better than nothing."""
    text, code = error.get("message"), error.get("code")
    if isinstance(text, str) and text.strip():
        return text[:MAX_ERROR_TEXT]
    return f"error {code} without a message" if type(code) is int else "an error without a message"


def sendable(text: str) -> str:
    """A message of ours that reaches the peer even when it is huge or quotes a file name that is not UTF-8."""
    return text[:MAX_ERROR_TEXT].encode("utf-8", "backslashreplace").decode()


def answered_id(head: bytes) -> int | None:
    """Which call a frame answers, seen from its beginning: its reader could not use the rest.

    None where that is not certain: the id must stand before anything that might hold another one, and the first such
    thing after it must be an answer; a request may have its method where it cannot be seen any more.
    """
    before, _, after = head.partition(b'"id":')
    digits, _, rest = after.partition(b",")
    digits = digits.strip()
    if not digits.isdigit() or len(digits) > 15 or any(word in before for word in _MEMBERS):
        return None
    _, first = min(((rest.find(word), word) for word in _MEMBERS if word in rest), default=(0, b""))
    return int(digits) if first in _ANSWERS else None


class IncomingRequest:
    """A request of the peer that waits for our answer: its id over there, and what it wants."""

    __slots__ = ("id", "op")

    def __init__(self, id: Id, op: Operation) -> None:
        self.id = id
        self.op = op


class RpcMachine(Machine):
    """The open requests of both directions. The contract implements `receive` and the methods below."""

    __slots__ = ("_arrivals", "_farewell", "_greeted", "_incoming", "_last_id", "_max_frame", "_offset", "_outstanding")

    FIRST_STATE: ClassVar[str] = START
    HELLO: ClassVar[str] = "initialize"
    """The method with which a host greets."""
    GOOD_BYE: ClassVar[tuple[str, bytes]] = ("shutdown", b"{}")
    """The method with which a host asks its plugin to leave, and its parameters."""

    def __init__(self, role: str, codec: Codec, most: int) -> None:
        """`most`: bytes of a frame that the peer reads."""
        super().__init__(role, codec)
        self._max_frame = most
        self._offset = GREETING_ID if role == Role.HOST else 0
        self._outstanding: dict[int, Any] = {}
        """Our open requests, by their id on the wire, in the contract's own form."""
        self._incoming: dict[CallId, IncomingRequest] = {}
        """Open requests of the peer, by our own number."""
        self._arrivals = self._last_id = 0
        self._farewell: int | None = None
        self._greeted = role == Role.PLUGIN
        """Whether the answer to our greeting was accepted; a plugin sends no greeting."""

    # For the contract to fill in.

    def _frame(self, body: bytes) -> bytes:
        """One message as it goes over the wire."""
        raise NotImplementedError

    def _take_unfinished(self) -> list[Event]:
        """The events for an unfinished frame at the end of the stream."""
        raise NotImplementedError

    def _send_greeting(self) -> None:
        """HOST: write the greeting, under `GREETING_ID`."""
        raise NotImplementedError

    def _check_greeting(self, message: Any, frame: bytes) -> list[Event]:
        """HOST: the answer to the greeting."""
        raise NotImplementedError

    def _send_call(self, wire: int, op: Any) -> Failure | None:
        """Write the request for `op`."""
        raise NotImplementedError

    def _read_answer(self, asked: Any, message: Any, frame: bytes) -> tuple[Any, Failure | None]:
        """The answer to something in `_open`."""
        raise NotImplementedError

    def _encode_result(self, asked: IncomingRequest, value: Any) -> bytes | Failure:
        """The result of a request, as JSON, or why it has no such form."""
        raise NotImplementedError

    def _explain_unsent(self, problem: Failure) -> Failure:
        """Why a result was not sent: the fault of its maker, not of the caller."""
        return Failure(Code.INTERNAL, f"the result cannot be sent: {problem.message}")

    def _encode_failure(self, asked: IncomingRequest, failure: Failure) -> tuple[int, str, dict[str, Any] | None]:
        """The code, the message and the data of an error."""
        raise NotImplementedError

    def _method(self, asked: Any) -> str:
        """The method of an open request of ours."""
        return str(asked.name)

    def _end_unreadable(self, wire: int, asked: Any, failure: Failure | None) -> CallFinished:
        """The end of a call whose answer cannot be read."""
        return CallFinished(wire - self._offset, None, failure)

    # What the peer does.

    def receive_eof(self) -> list[Event]:
        events = [] if self.state in OVER else self._take_unfinished()
        if self.state == START or self.state in OVER:
            return events
        if self._may("eof"):
            self._step("eof")
            return [*events, Closed()]
        when = "" if self._greeted else f" before it answered {self.HELLO}"
        return events + self._fault(Failure(Code.CRASHED, f"the plugin closed its output{when}", origin=Origin.PLUGIN))

    def _accept_request(self, asked: IncomingRequest, within: CallId | None = None) -> list[Event]:
        """`within`: the call of ours that it belongs to, where the contract says which."""
        self._arrivals = number = self._arrivals + 1
        self._incoming[number] = asked
        return [CallArrived(number, asked.op, within)]

    def _dispatch_answer(self, id: int, message: Any, frame: bytes) -> list[Event]:
        """An answer belongs to the greeting, to the shutdown message, or to a call."""
        if id == GREETING_ID and not self._greeted:
            return self._check_greeting(message, frame) if self._may("hello") else []  # we no longer want to know
        if id == self._farewell:
            return self._take_farewell(message)
        asked = self._outstanding.pop(id, None)
        if asked is not None:
            value, failure = self._read_answer(asked, message, frame)
            return [CallFinished(id - self._offset, value, failure)]
        if 0 < id <= self._last_id:
            return [CallFinished(id - self._offset)]  # we no longer wait for it
        return noise(frame, "an answer to an unknown call")

    def _skip_unreadable(
        self, id: int | None, frame: bytes, why: str, code: str = Code.MALFORMED_RESPONSE
    ) -> list[Event]:
        """Report an unreadable frame as noise. The request that it answers, if any, fails now instead of timing out."""
        events, origin = noise(frame, why), Origin.PLUGIN if self.role == Role.HOST else Origin.HOST
        if id is None:
            return events
        if id == GREETING_ID and not self._greeted and self._may("hello"):
            what = f"the answer to {self.HELLO} cannot be used: {why}"
            return events + self._fault(Failure(Code.HANDSHAKE_FAILED, what, origin=origin))
        if id == self._farewell:
            self._step("farewell")
            return [*events, Closed()]
        asked = self._outstanding.pop(id, None)
        if asked is None:
            return events
        what, detail = (
            f"the answer to {self._method(asked)} cannot be used: {why}",
            {"line": printable(frame[:HEAD_BYTES])},
        )
        return [*events, self._end_unreadable(id, asked, Failure(code, what, origin=origin, detail=detail))]

    def _take_farewell(self, message: Any) -> list[Event]:
        """HOST: the plugin answered the shutdown message; the content does not matter."""
        self._step("farewell")
        return [Closed()]

    # What we do.

    def greet(self) -> None:
        self._step("greet")
        if self.role == Role.HOST:
            self._last_id = GREETING_ID
            self._send_greeting()

    def call(self, id: CallId, op: PluginOp | HostOp) -> Failure | None:
        if self.state != READY and (refusal := self._refuse_unless_ready()) is not None:
            return refusal
        if not isinstance(id, int):
            raise Misuse(f"{self.CONTRACT} numbers its calls")
        return self._send_call(id + self._offset, op)

    def _remember(self, wire: int, asked: Any) -> None:
        self._outstanding[wire] = asked
        self._last_id = wire

    def _refuse_unless_ready(self) -> Failure | None:
        """Why nothing can be asked now; a plugin may ask before its greeting, and while it is leaving."""
        if self.state in OVER or (self.role == Role.HOST and self.state == CLOSING):
            return Failure(Code.UNAVAILABLE, "the conversation is being closed")
        if self.state == START or self.role == Role.HOST:
            raise Misuse(f"{self.CONTRACT} {self.role}: nothing can be asked in {self.state!r}")
        return None

    def cancel(self, id: CallId, reason: str) -> None:
        """There is no word for it: the peer works on, and its answer is late."""
        if isinstance(id, int):
            self._outstanding.pop(id + self._offset, None)

    def finish(self, id: CallId, value: Any = None, failure: Failure | None = None) -> None:
        asked = self._incoming.pop(id, None)
        if asked is None:
            raise Misuse(f"{id!r} is not a request that waits for an answer")
        if failure is None:
            problem = self._write_result(asked.id, self._encode_result(asked, value))
            failure = problem and self._explain_unsent(problem)
        if failure is not None:
            self._write_error(asked.id, *self._encode_failure(asked, failure))
        if isinstance(asked.op, Shutdown) and self._may("farewell"):
            self._step("farewell")

    def progress(self, id: CallId, item: Any) -> Failure | None:
        """Carried only where the contract has a word for it."""
        return None

    def close(self, reason: str) -> None:
        """A host asks its plugin to leave, once and only when it is ready; a plugin has nothing to say."""
        asks = self.role == Role.HOST and self.state == READY
        self._step("close")
        if asks:
            self._last_id = self._farewell = self._last_id + 1
            self._write_request(self._farewell, *self.GOOD_BYE)

    # Writing. A call or a notification that the peer would not read is refused; an error always goes out.

    def _write(self, body: bytes) -> Failure | None:
        """One frame, or why the peer would not read it."""
        try:
            gate(body)
        except Malformed as error:
            return Failure(Code.INVALID_INPUT, f"it cannot be sent as JSON: {error}")
        if len(body) > self._max_frame:
            return self._frame_too_large(len(body))
        self._out.append(self._frame(body))
        return None

    def _frame_too_large(self, size: int) -> Failure:
        what = f"the message has {size:,} bytes; the peer reads at most {self._max_frame:,}"
        return Failure(Code.FRAME_TOO_LARGE, what, detail={"size": size, "limit": self._max_frame})

    def _json(self, value: Any) -> bytes | Failure:
        try:
            return self.codec.encode(value)
        except Unencodable as error:
            return Failure(Code.INVALID_INPUT, f"it cannot be sent as JSON: {error}")

    def _write_request(self, id: int, method: str, params: bytes | Failure) -> Failure | None:
        if isinstance(params, Failure):
            return params
        name = self.codec.encode(method)
        return self._write(b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":%b}' % (id, name, params))

    def _write_notification(self, method: str, params: bytes | Failure) -> Failure | None:
        if isinstance(params, Failure):
            return params
        return self._write(b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (self.codec.encode(method), params))

    def _write_result(self, id: Id, result: bytes | Failure) -> Failure | None:
        if isinstance(result, Failure):
            return result
        peers_id = b"%d" % id if type(id) is int else self.codec.encode(id)
        return self._write(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (peers_id, result))

    def _write_error(self, id: Id, code: int, message: str, data: dict[str, Any] | None = None) -> None:
        """An error answer; data that cannot be sent is left out, the error is not."""
        error = {"code": code, "message": sendable(message)}
        if data is None or self._try_write_error(id, {**error, "data": data}) is not None:
            self._try_write_error(id, error)

    def _try_write_error(self, id: Id, error: dict[str, Any]) -> Failure | None:
        body = self._json({"jsonrpc": "2.0", "id": id, "error": error})
        return body if isinstance(body, Failure) else self._write(body)
