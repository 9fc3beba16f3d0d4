"""`McpMachine`: the part of an MCP conversation that is the same for client and server.

Owns lines and batches, the ids of our own requests, progress, cancellation, and the table of states. The HOST role is
`client.ClientMachine`, the PLUGIN role `server.ServerMachine`; neither imports the other.

The ids on the wire are the machine's own, one for each request that it writes: one call may need several requests, and
the machine sends requests of its own as well.
"""

from __future__ import annotations

from plugbay.contracts.base import Misuse, Role, Traffic
from plugbay.contracts.mcp import messages, requests
from plugbay.contracts.mcp.messages import as_object
from plugbay.contracts.rpc import (
    CLOSED,
    CLOSING,
    FAILED,
    GREETING,
    OVER,
    READY,
    START,
    RpcMachine,
    answered_id,
    last_line,
    noise,
    plain_chunk,
)
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import CallFinished, CallProgress, CancelArrived
from plugbay.model.operations import ChangeRoots, InvokeTool
from plugbay.wire.json_gate import Malformed
from plugbay.wire.lines import HEAD_BYTES, LineDecoder, TooLong, encode
from plugbay.wire.strict_json import ABSENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

    from plugbay.contracts.rpc import Id, IncomingRequest
    from plugbay.model.events import CallId, Event
    from plugbay.model.operations import HostOp, PluginOp
    from plugbay.wire.strict_json import Codec

DISCOVERING, LISTING = "discovering", "listing"
"""States of a HOST: it has sent `server/discover`; the server is accepted and its lists are being read."""

CALL, HELLO, PAGE, LISTEN = "call hello page listen".split()
"""The purpose of a request: a caller's call, the greeting, a page of a list, a subscription."""

TOO_LONG = f"a line longer than the maximum of {messages.MAX_LINE:,} bytes"

MAX_BATCH = 1_000
"""Messages of a batch, 10 ms of work. A line has room for 400,000, which would block every other plugin."""

MAX_CANCELLED = 1_024
"""Cancelled calls that are remembered, to tell their late answers from unexpected ones. Most never answer."""

_NUMBERS = (int, float)


def _transitions() -> dict[tuple[str, str, str], str]:
    """MCP has no shutdown message: a host closes the server's input, and the server exits."""
    greeting, known = (GREETING, DISCOVERING), (LISTING, READY)
    host = {
        (START, "greet"): GREETING,
        (GREETING, "discover"): DISCOVERING,
        (DISCOVERING, "initialize"): GREETING,
        **{(state, "welcome"): LISTING for state in greeting},
        (LISTING, "hello"): READY,
        **{(state, "violation"): FAILED for state in (*greeting, *known)},
        (START, "close"): CLOSED,
        **{(state, "close"): CLOSING for state in (*greeting, *known, CLOSING)},
        (CLOSING, "eof"): CLOSED,
        **{(state, "close"): CLOSED for state in (CLOSED, FAILED)},
    }
    plugin = {
        (START, "greet"): GREETING,
        (GREETING, "hello"): READY,
        **{(state, "eof"): CLOSED for state in (GREETING, READY)},
        **{(state, "close"): CLOSED for state in (START, GREETING, READY, CLOSED)},
    }
    return {
        **{(Role.HOST, *key): state for key, state in host.items()},
        **{(Role.PLUGIN, *key): state for key, state in plugin.items()},
    }


class SentRequest:
    """A request of ours that waits for its answer. `members` are its parameters without `_meta`."""

    rounds = 0
    """How often it was answered with `input_required`. Rare, so these attributes are set only when that happens."""
    waiting = 0
    answers: dict[str, Any]
    state: str | None = None
    refusal: Failure | None = None
    """Why a question of the server was not answered. The server may go on without the answer, but not ask again."""

    def __init__(
        self,
        kind: str,
        method: str,
        members: bytes = b"",
        *,
        call: CallId | None = None,
        op: Any = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        self.kind = kind
        self.method = method
        self.members = members
        self.call = call
        self.op = op
        self.extra = extra
        """Keys that the caller adds to `_meta`."""


class McpMachine(RpcMachine):
    """Base of both roles: reads messages, and keeps track of the requests we sent."""

    __slots__ = ("_cancelled", "_decode", "_lines", "_wires", "dropped")

    CONTRACT: ClassVar[str] = "mcp"
    TRANSITIONS: ClassVar[dict[tuple[str, str, str], str]] = _transitions()
    SUPPORTS: ClassVar[frozenset[type]] = requests.SUPPORTS | {ChangeRoots}
    TRAFFIC: ClassVar[Traffic] = Traffic()
    HELLO: ClassVar[str] = "the greeting"
    GOOD_BYE_IS_ANSWERED: ClassVar[bool] = False

    def __init__(self, role: str, codec: Codec) -> None:
        super().__init__(role, codec, messages.MAX_LINE)
        self._lines = LineDecoder(messages.MAX_LINE)
        self._decode = codec.decoder(messages.READS, messages.READS_RAW)
        self._offset = 0
        self._wires: dict[CallId, int] = {}
        """The id on the wire of each call that waits."""
        self._cancelled: dict[int, CallId] = {}
        self.dropped = 0
        """Answers of ours that were not sent, because the peer had cancelled the request."""

    # For the two roles to fill in.

    def _build_meta(self, sent: SentRequest, wire: int) -> bytes:
        """The `_meta` of a request; empty: it has none."""
        raise NotImplementedError

    def _take_request(self, id: Id, name: str, params: dict[str, Any], line: bytes) -> list[Event]:
        """A request of the peer."""
        raise NotImplementedError

    def _take_notification(self, name: str, params: dict[str, Any], line: bytes) -> list[Event]:
        """A notification of the peer, other than progress."""
        raise NotImplementedError

    def _conclude(self, sent: SentRequest, message: Any, frame: bytes) -> list[Event]:
        """The answer to a request of ours."""
        raise NotImplementedError

    def _conclude_unreadable(self, sent: SentRequest, failure: Failure) -> list[Event]:
        """The answer to a request of ours arrived, but cannot be read."""
        raise NotImplementedError

    def _refuse_unreadable(self, head: bytes, why: str) -> None:
        """A line that answers nothing arrived, but cannot be read."""

    # Reading lines.

    @property
    def pending(self) -> int:
        return self._lines.pending

    def receive(self, data: bytes) -> list[Event]:
        events: list[Event] = []
        if self.state in OVER:
            return events
        plain = plain_chunk(self._lines, data)
        for line in self._lines.feed(data):
            if isinstance(line, TooLong):
                events += self._skip_unreadable(answered_id(line.head), line.head, TOO_LONG, Code.FRAME_TOO_LARGE)
            elif line:
                events += self._read(line, plain)
            if self.state in OVER:
                break
        return events

    def _read(self, line: bytes, plain: bool = False) -> list[Event]:
        try:
            message = self._decode(line, plain)
        except Malformed as error:
            if line.startswith(b"["):
                return self._read_batch(line)
            return self._skip_unreadable(answered_id(line[:HEAD_BYTES]), line, f"malformed line: {error}")
        return self._take(message, line)

    def _read_batch(self, line: bytes) -> list[Event]:
        """Several messages in one array (2025-03-26): each is read as if it had come alone."""
        try:
            items = self.codec.decode(line)
        except Malformed as error:
            return noise(line, f"malformed line: {error}")
        if not 0 < len(items) <= MAX_BATCH:
            return noise(line, f"a batch of {len(items):,} messages; there may be 1 to {MAX_BATCH:,}")
        events: list[Event] = []
        for item in items:
            body = self.codec.encode(item)
            events += self._read(body) if isinstance(item, dict) else noise(body, "not an object")
            if self.state in OVER:
                break
        return events

    def _frame(self, body: bytes) -> bytes:
        return encode(body)

    def _take_unfinished(self) -> list[Event]:
        """The last line may lack its line feed; half a message is not JSON and is skipped."""
        return self.receive(last_line(self._lines, self.codec) + b"\n")

    def _take(self, message: Any, line: bytes) -> list[Event]:
        """A message with a method is a request or a notification; without one it is an answer, found by its id."""
        method, id = message.method, message.id
        if not (isinstance(method, str) and method):
            return self._take_answer(id, message, line)
        if not messages.wants_answer(method, id):
            id = ABSENT
        if id is not ABSENT and type(id) not in messages.IDS:
            return noise(line, "a request whose id is neither a number nor a string")
        params = as_object(None if message.params is ABSENT else self.codec.load(message.params))
        if id is not ABSENT:
            return self._take_request(id, method, params, line)
        if method == messages.PROGRESS:
            return self._take_progress(params, line)
        return self._take_notification(method, params, line)

    def _skip_unreadable(
        self, id: int | None, frame: bytes, why: str, code: str = Code.MALFORMED_RESPONSE
    ) -> list[Event]:
        sent = None if id is None else self._outstanding.pop(id, None)
        if sent is None:
            self._refuse_unreadable(frame[:HEAD_BYTES], why)
            return noise(frame, why)
        self._wires.pop(sent.call, None)
        failure = Failure(code, f"the answer to {sent.method} cannot be used: {why}", origin=Origin.PLUGIN)
        return [*noise(frame, why), *self._conclude_unreadable(sent, failure)]

    # Answers to our requests.

    def _take_answer(self, id: Any, message: Any, line: bytes) -> list[Event]:
        sent = self._outstanding.get(id) if type(id) is int and message.error is ABSENT else None
        if sent is not None and type(sent.op) is InvokeTool and requests.is_plain_result(message.result, line):
            del self._outstanding[id], self._wires[sent.call]
            return [CallFinished(sent.call, message.result)]
        if message.error is None and message.result is not ABSENT:
            message.error = ABSENT  # some peers write every key
        has_content = message.result is not ABSENT or message.error is not ABSENT
        if type(id) is int and (has_content or id in self._outstanding):
            return self._dispatch_answer(id, message, line)
        return noise(line, "neither a request, a notification nor an answer to one")

    def _dispatch_answer(self, id: int, message: Any, frame: bytes) -> list[Event]:
        sent = self._outstanding.pop(id, None)
        if sent is not None:
            if sent.call is not None:
                del self._wires[sent.call]
            return self._conclude(sent, message, frame)
        call = self._cancelled.pop(id, None)
        if call is not None:
            return [CallFinished(call)]  # late: the caller has given up
        return noise(frame, "an answer to an unknown call")

    def _take_progress(self, params: dict[str, Any], line: bytes) -> list[Event]:
        token, progress = params.get(messages.TOKEN), params.get("progress")
        if type(token) is not int or type(progress) not in _NUMBERS:
            return noise(line, "progress needs the token of a request and a number")
        sent = self._outstanding.get(token)
        if sent is None or sent.call is None:
            return noise(line, "progress of an unknown call")
        item: dict[str, Any] = {"progress": progress}
        if type(params.get("total")) in _NUMBERS:
            item["total"] = params["total"]
        if isinstance(params.get("message"), str):
            item["message"] = params["message"]
        return [CallProgress(sent.call, item)]

    # Our requests.

    def _put(self, sent: SentRequest, more: bytes = b"") -> Failure | None:
        """Write a request under an id of its own; `more` members are added to its parameters."""
        wire = self._last_id + 1
        members, meta = sent.members + more, self._build_meta(sent, wire)
        params = b'{%b%b"_meta":%b}' % (members, b"," if members else b"", meta)
        failure = self._write_request(wire, sent.method, params if meta else b"{%b}" % members)
        if failure is None:
            self._remember(wire, sent)
            if sent.call is not None:
                self._wires[sent.call] = wire
        return failure

    def cancel(self, id: CallId, reason: str) -> None:
        wire = self._wires.pop(id, None)
        if wire is None:
            return
        del self._outstanding[wire]
        if len(self._cancelled) >= MAX_CANCELLED:
            del self._cancelled[next(iter(self._cancelled))]
        self._cancelled[wire] = id
        self._write_notification(messages.CANCELLED, self._json({"requestId": wire, "reason": reason}))

    def notify(self, op: PluginOp | HostOp) -> Failure | None:
        """Each role has the notifications of its own class."""
        raise Misuse(f"mcp cannot tell {type(op).__name__} from {self.role}")

    # Requests of the peer.

    def _cancel_incoming(self, params: dict[str, Any]) -> list[Event]:
        """The peer cancels a request of its own. An unknown id is ignored: it was answered already."""
        id = params.get("requestId")
        found = [number for number, asked in self._incoming.items() if asked.id == id and type(asked.id) is type(id)]
        return [event for number in found for event in self._drop(number, self._incoming.pop(number))]

    def _drop(self, number: CallId, request: IncomingRequest) -> list[Event]:
        """A request of the peer will not be answered."""
        return [CancelArrived(number)]

    def finish(self, id: CallId, value: Any = None, failure: Failure | None = None) -> None:
        """Answer a request. Nothing is sent for one that was cancelled: its handler may learn of that too late."""
        if id not in self._incoming and isinstance(id, int) and 0 < id <= self._arrivals:
            self.dropped += 1
            return
        super().finish(id, value, failure)

    def _explain_unsent(self, problem: Failure) -> Failure:
        """The peer must learn that an answer was too long: it may ask for a shorter one."""
        code = problem.code if problem.code == Code.FRAME_TOO_LARGE else Code.INTERNAL
        return Failure(code, super()._explain_unsent(problem).message, detail=problem.detail)
