"""What we asked and wait for, in either role: numbers on the wire, progress, calling off.

The numbers on the wire are the machine's own, one for each request that it writes: a call may need several, and the
machine asks on its own account as well. Refuses to know what a request means; the two halves above fill that in.
"""

from __future__ import annotations

from plugbay.contracts.mcp import messages
from plugbay.contracts.mcp.framing import FramedMachine
from plugbay.contracts.rpc import answered_id, noise
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import CallFinished, CallProgress, CancelArrived

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from plugbay.contracts.rpc import IncomingRequest
    from plugbay.model.events import CallId, Event
    from plugbay.wire.strict_json import Codec

CALL, HELLO, PAGE, LISTEN = "call hello page listen".split()
"""What a request is for: somebody's call, the greeting, a page of a list, a subscription."""

MAX_CALLED_OFF = 1_024
"""Calls remembered after they were called off, to tell their late answers from nonsense. Most never answer."""

_NUMBERS = (int, float)


class Sent:
    """A request of ours that waits for its answer. `members` are its parameters without `_meta`."""

    rounds = 0
    """How often it was answered with questions. Few are, so what belongs to that is there only when it is."""
    waiting = 0
    answers: dict[str, Any]
    state: str | None = None
    refusal: Failure | None = None
    """Why a question of the server's was not answered; it may do without, but not ask again."""

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
        """What the caller adds to `_meta`."""


class CallingMachine(FramedMachine):
    """The half of the conversation in which we ask."""

    __slots__ = ("_called_off", "_wires", "dropped")

    def __init__(self, role: str, codec: Codec) -> None:
        super().__init__(role, codec)
        self._offset = 0
        self._wires: dict[CallId, int] = {}
        """The number on the wire of each call that waits."""
        self._called_off: dict[int, CallId] = {}
        self.dropped = 0
        """Answers of our own that were not sent, because nobody wanted them any more."""

    # For the halves to fill in.

    def _meta(self, sent: Sent, wire: int) -> bytes:
        """The `_meta` of a request; empty: it has none."""
        raise NotImplementedError

    def _concluded(self, sent: Sent, message: Any, frame: bytes) -> list[Event]:
        """The answer to a request."""
        raise NotImplementedError

    def _lost(self, sent: Sent, failure: Failure) -> list[Event]:
        """The answer to a request came and cannot be read."""
        raise NotImplementedError

    def _unreadable(self, head: bytes, why: str) -> None:
        """A line that answers nothing came and cannot be read."""
        raise NotImplementedError

    # Asking.

    def _put(self, sent: Sent, more: bytes = b"") -> Failure | None:
        """Write a request, with `more` members than it has itself, under a number of its own."""
        wire = self._last_id + 1
        members, meta = sent.members + more, self._meta(sent, wire)
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
        if len(self._called_off) >= MAX_CALLED_OFF:
            del self._called_off[next(iter(self._called_off))]
        self._called_off[wire] = id
        self._write_notification(messages.CANCELLED, self._json({"requestId": wire, "reason": reason}))

    # Answers.

    def _dispatch_answer(self, id: int, message: Any, frame: bytes) -> list[Event]:
        sent = self._outstanding.pop(id, None)
        if sent is None:
            return self._unexpected(id, frame)
        if sent.call is not None:
            del self._wires[sent.call]
        return self._concluded(sent, message, frame)

    def _unexpected(self, id: int, frame: bytes) -> list[Event]:
        call = self._called_off.pop(id, None)
        if call is not None:
            return [CallFinished(call)]  # nobody waits for it any more
        return noise(frame, "an answer to a call nobody made")

    def _skip_unreadable(self, head: bytes, code: str, why: str) -> list[Event]:
        """Noise; and where the line certainly answers a request, that need not wait any more."""
        id = answered_id(head)
        sent = None if id is None else self._outstanding.pop(id, None)
        if sent is None:
            self._unreadable(head, why)
            return noise(head, why)
        self._wires.pop(sent.call, None)
        failure = Failure(code, f"the answer to {sent.method} cannot be used: {why}", origin=Origin.PLUGIN)
        return [*noise(head, why), *self._lost(sent, failure)]

    def _take_progress(self, params: dict[str, Any], line: bytes) -> list[Event]:
        token, said = params.get(messages.TOKEN), params.get("progress")
        if type(token) is not int or type(said) not in _NUMBERS:
            return noise(line, "progress needs the token of a request and a number")
        sent = self._outstanding.get(token)
        if sent is None or sent.call is None:
            return noise(line, "progress of a call that nobody waits for")
        item: dict[str, Any] = {"progress": said}
        if type(params.get("total")) in _NUMBERS:
            item["total"] = params["total"]
        if isinstance(params.get("message"), str):
            item["message"] = params["message"]
        return [CallProgress(sent.call, item)]

    # What the peer asked and no longer wants.

    def _withdrawn(self, params: dict[str, Any]) -> list[Event]:
        """The peer calls off a request of its own; one that is not there was answered already."""
        id = params.get("requestId")
        found = [number for number, asked in self._incoming.items() if asked.id == id and type(asked.id) is type(id)]
        return [event for number in found for event in self._drop(number, self._incoming.pop(number))]

    def _drop(self, number: CallId, asked: IncomingRequest) -> list[Event]:
        return [CancelArrived(number)]

    def finish(self, id: CallId, value: Any = None, failure: Failure | None = None) -> None:
        """Nothing is sent for what was called off; whoever worked on it may not have heard in time."""
        if id not in self._incoming and isinstance(id, int) and 0 < id <= self._arrivals:
            self.dropped += 1
            return
        super().finish(id, value, failure)


def gone(why: str) -> Failure:
    """What becomes of a question whose call is over."""
    return Failure(Code.CANCELLED, why)
